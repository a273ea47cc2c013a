// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package runbooks

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// ReadSection returns the text below a second-level heading of a page, and stops the test if there is none.
func ReadSection(t testing.TB, path, heading string) string {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := section(string(page), heading)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return text
}

// section returns the text below a second-level heading of a page.
func section(page, heading string) (string, error) {
	_, text, found := strings.Cut("\n"+page, "\n## "+heading+"\n")
	if !found {
		return "", fmt.Errorf("there is no section %q", heading)
	}
	text, _, _ = strings.Cut("\n"+text, "\n## ")
	return text, nil
}

// Files returns the contents, by path, of the files in a section: its YAML blocks, each of which begins with a comment
// that is its path.
func Files(section string) (map[string]string, error) {
	all, err := yamlBlocks(section)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, b := range all {
		first, _, _ := strings.Cut(b.content, "\n")
		path, isComment := strings.CutPrefix(first, "# ")
		switch {
		case !isComment || !strings.HasSuffix(path, ".yaml") || strings.Contains(path, " "):
			return nil, fmt.Errorf("line %d: the YAML block does not begin with a comment with its path, but with %q", b.end, first)
		case files[path] != "":
			return nil, fmt.Errorf("%s is there twice", path)
		}
		files[path] = b.content
	}
	return files, nil
}
