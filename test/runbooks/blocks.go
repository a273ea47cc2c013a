// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runbooks reads the commands and the files in pages of docs/, for the tests that run them.
package runbooks

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// shell is the kind of a fenced block that readers paste into a shell.
const shell = "sh"

// Blocks returns the shell blocks of a page in order. A page without any is an error, and
// so is a command in a block of another kind, which nobody would run: both would pass.
func Blocks(page string) ([]string, error) {
	all, err := fencedBlocks(page)
	if err != nil {
		return nil, err
	}
	var blocks []string
	for _, b := range all {
		switch {
		case b.kind == shell:
			blocks = append(blocks, b.content)
		case strings.Contains(b.content, "kubectl"):
			return nil, fmt.Errorf("line %d: the block of kind %q has commands, which are run in those of kind %q only", b.end, b.kind, shell)
		}
	}
	if len(blocks) == 0 {
		return nil, fmt.Errorf("there is no block of kind %q", shell)
	}
	return blocks, nil
}

// YAMLBlocks returns the contents of the YAML blocks of a page or a section in order. None is an error.
func YAMLBlocks(page string) ([]string, error) {
	found, err := yamlBlocks(page)
	var blocks []string
	for _, b := range found {
		blocks = append(blocks, b.content)
	}
	return blocks, err
}

// yamlBlocks returns the YAML blocks of a page in order. None is an error.
func yamlBlocks(page string) ([]block, error) {
	all, err := fencedBlocks(page)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(b block) bool { return b.kind != "yaml" })
	if len(all) == 0 {
		return nil, errors.New("there is no YAML block")
	}
	return all, nil
}

// block is a fenced block of a page.
type block struct {
	kind, content string
	// end is the number of its last line.
	end int
}

func fencedBlocks(page string) ([]block, error) {
	var all []block
	var content strings.Builder
	kind, open := "", false
	for number, line := range strings.SplitAfter(page, "\n") {
		mark, isMark := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isMark && !open:
			kind, open = mark, true
			content.Reset()
		case isMark:
			all, open = append(all, block{kind: kind, content: content.String(), end: number + 1}), false
		case open:
			content.WriteString(line)
		}
	}
	if open {
		return nil, errors.New("the last block does not end")
	}
	return all, nil
}
