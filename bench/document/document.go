// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package document writes results into a Markdown file, between HTML comments:
//
//	<!-- bench-NAME: begin -->
//	the results
//	<!-- bench-NAME: end -->
package document

import (
	"fmt"
	"strings"
)

// Replace returns the document with other results.
func Replace(content, name, results string) (string, error) {
	begin, end := fmt.Sprintf("<!-- bench-%s: begin -->", name), fmt.Sprintf("<!-- bench-%s: end -->", name)
	before, rest, found := strings.Cut(content, begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("the document has no comments %s and %s, between which results are written", begin, end)
	}
	return before + begin + "\n\n" + strings.Trim(results, "\n") + "\n\n" + end + after, nil
}
