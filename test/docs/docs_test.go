// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs checks the pages of docs/ against the tree.
package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// testsIn returns the tests and fuzz tests of a package, whatever their build tags.
func testsIn(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		for _, match := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllStringSubmatch(read(t, file), -1) {
			names = append(names, match[1])
		}
	}
	return names
}

// TestNamedTestsExist checks that each test that docs/concepts/security.md names is in the package that it is named with.
func TestNamedTestsExist(t *testing.T) {
	named, known := 0, map[string][]string{}
	for _, row := range strings.Split(read(t, root+"/docs/concepts/security.md"), "\n") {
		folder := ""
		for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row, -1) {
			switch name := match[1]; {
			case strings.HasPrefix(name, "Test"), strings.HasPrefix(name, "Fuzz"):
				named++
				if known[folder] == nil {
					known[folder] = testsIn(t, folder)
				}
				if folder == "" || !slices.Contains(known[folder], name) {
					t.Errorf("package %q has no %s", folder, name)
				}
			default:
				folder = name
			}
		}
	}
	if named == 0 {
		t.Error("the page names no tests")
	}
}

// anchors returns those that GitHub makes of the headings of a page.
func anchors(page string) []string {
	var all []string
	fenced := false
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if heading := strings.TrimLeft(line, "#"); !fenced && heading != line {
			anchor := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all = append(all, strings.ReplaceAll(anchor, " ", "-"))
		}
	}
	return all
}

// pagesOf returns the paths of README.md, of the pages beside it, and of all pages below docs/.
func pagesOf(t *testing.T) []string {
	t.Helper()
	pages := []string{root + "/README.md", root + "/CONTRIBUTING.md", root + "/CHANGELOG.md"}
	if err := filepath.WalkDir(root+"/docs", func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			pages = append(pages, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return pages
}

// TestLinks checks that links of the pages within the repository lead to a file, and to a heading of it.
func TestLinks(t *testing.T) {
	pages := pagesOf(t)
	checked := 0
	for _, page := range pages {
		text := regexp.MustCompile("`[^`\n]*`").ReplaceAllString(read(t, page), "") // code has no links, but regular expressions
		for _, match := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			link, err := url.Parse(match[1])
			if err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if link.IsAbs() {
				continue
			}
			checked++
			target := page
			if link.Path != "" {
				target = filepath.Join(filepath.Dir(page), link.Path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, link, err)
			} else if link.Fragment != "" && !slices.Contains(anchors(read(t, target)), link.Fragment) {
				t.Errorf("%s links to %s, which has no such heading", page, link)
			}
		}
	}
	if checked < len(pages) {
		t.Errorf("only %d links in %d pages", checked, len(pages))
	}
}
