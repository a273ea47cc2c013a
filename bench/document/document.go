// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package document writes results into a Markdown file, between HTML comments:
//
//	<!-- bench-NAME: begin -->
//	text before the sections
//	<!-- bench-NAME: section {"key": "value"} -->
//	text of the section
//	<!-- bench-NAME: end -->
//
// The JSON of a section's comment describes it, so that a later run that measures
// something else can keep it, and draw it.
package document

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Section is a part of the text between the comments. D describes it.
type Section[D any] struct {
	Data D
	Text string
}

func marker(name, what string) string { return fmt.Sprintf("<!-- bench-%s: %s -->", name, what) }

// cut returns what is before, between and after the comments.
func cut(content, name string) (before, between, after string, err error) {
	begin, end := marker(name, "begin"), marker(name, "end")
	before, rest, found := strings.Cut(content, begin)
	if found {
		between, after, found = strings.Cut(rest, end)
	}
	if !found {
		return "", "", "", fmt.Errorf("the document has no comments %s and %s, between which results are written", begin, end)
	}
	return before, between, after, nil
}

// Sections returns the sections of a document.
func Sections[D any](content, name string) ([]Section[D], error) {
	_, between, _, err := cut(content, name)
	if err != nil {
		return nil, err
	}
	const closing = " -->"
	parts := strings.Split(between, strings.TrimSuffix(marker(name, "section"), closing)+" ")
	var all []Section[D]
	for _, part := range parts[1:] {
		head, text, found := strings.Cut(part, closing+"\n")
		var s Section[D]
		if err := json.Unmarshal([]byte(head), &s.Data); err != nil || !found {
			return nil, fmt.Errorf("read the comment of a section of %s, %.60q: %w", name, head, err)
		}
		s.Text = strings.Trim(text, "\n")
		all = append(all, s)
	}
	return all, nil
}

// Replace returns the document with other sections, and with a text before them.
func Replace[D any](content, name, introduction string, sections []Section[D]) (string, error) {
	before, _, after, err := cut(content, name)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString(before + marker(name, "begin") + "\n\n" + strings.Trim(introduction, "\n") + "\n\n")
	for _, s := range sections {
		// encoding/json escapes < and >, so the comment does not end early.
		data, err := json.Marshal(s.Data)
		if err != nil {
			return "", fmt.Errorf("encode the comment of a section: %w", err)
		}
		b.WriteString(marker(name, "section "+string(data)) + "\n\n" + strings.Trim(s.Text, "\n") + "\n\n")
	}
	b.WriteString(marker(name, "end") + after)
	return b.String(), nil
}
