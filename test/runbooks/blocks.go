// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package runbooks reads pages of docs/runbooks, for the test that runs them.
package runbooks

import (
	"errors"
	"fmt"
	"strings"
)

// shell is the kind of a fenced block that readers paste into a shell.
const shell = "sh"

// Blocks returns the shell blocks of a page in order. A page without any is an error, and
// so is a command in a block of another kind, which nobody would run: both would pass.
func Blocks(page string) ([]string, error) {
	var blocks []string
	var block strings.Builder
	kind, open := "", false
	for number, line := range strings.SplitAfter(page, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && !open:
			kind, open = fence, true
			block.Reset()
		case isFence && kind == shell:
			blocks, open = append(blocks, block.String()), false
		case isFence:
			open = false
			if strings.Contains(block.String(), "kubectl") {
				return nil, fmt.Errorf("line %d: the block of kind %q has commands, which are run in those of kind %q only", number+1, kind, shell)
			}
		case open:
			block.WriteString(line)
		}
	}
	switch {
	case open:
		return nil, errors.New("the last block does not end")
	case len(blocks) == 0:
		return nil, fmt.Errorf("there is no block of kind %q", shell)
	}
	return blocks, nil
}
