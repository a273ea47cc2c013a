// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package tiers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A test without a tier would never be skipped, and a renamed one would lose its tier.
func TestEachTestHasOneTier(t *testing.T) {
	t.Parallel()
	for suite, pattern := range map[Suite]string{EndToEnd: "../e2e/*_test.go", Integration: "../integration/*/*_test.go"} {
		t.Run(string(suite), func(t *testing.T) {
			t.Parallel()
			written := testFunctions(t, pattern)
			listed := append(Tests(suite, Test), Tests(suite, Long)...)
			slices.Sort(listed)
			if diff := cmp.Diff(written, listed); diff != "" {
				t.Errorf("tests, and those in the tiers test and long (-written +listed):\n%s", diff)
			}
			for _, name := range Tests(suite, Soak) {
				if !slices.Contains(listed, name) {
					t.Errorf("%s of the soak tier repeats none of the others", name)
				}
			}
		})
	}
	for _, name := range ExtraTests() {
		if !slices.Contains(Tests(EndToEnd, Long), name) {
			t.Errorf("%s is an extra test, and is not in the long tier", name)
		}
	}
}

// hack/testrun repeats a test if a subtest missed a deadline. It notices that the test itself failed for another reason
// only if that was reported by package outcome.
func TestFailuresBesideSubtestsSayTheirKind(t *testing.T) {
	t.Parallel()
	for _, function := range functions(t, "../e2e/*_test.go", "../integration/*/*_test.go") {
		first := token.NoPos
		ast.Inspect(function.Body, func(n ast.Node) bool {
			call, method := callOfT(n)
			switch {
			case method == "Run":
				if first == token.NoPos {
					first = call.Pos()
				}
				return false // a subtest's failures are its own
			case first != token.NoPos && slices.Contains([]string{"Error", "Errorf", "Fail", "Fatal", "Fatalf", "FailNow"}, method):
				t.Errorf("%s has subtests, and fails by t.%s after one: use outcome.Unsafe", function.Name.Name, method)
			}
			return true
		})
	}
}

// callOfT returns the method of the variable t that a node calls, or "".
func callOfT(n ast.Node) (*ast.CallExpr, string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return nil, ""
	}
	if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
		if receiver, ok := selector.X.(*ast.Ident); ok && receiver.Name == "t" {
			return call, selector.Sel.Name
		}
	}
	return call, ""
}

// testFunctions returns the names of the test functions in files, sorted.
func testFunctions(t *testing.T, pattern string) []string {
	t.Helper()
	var names []string
	for _, function := range functions(t, pattern) {
		if function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test") && function.Name.Name != "TestMain" {
			names = append(names, function.Name.Name)
		}
	}
	slices.Sort(names)
	return names
}

// functions returns the functions that files declare.
func functions(t *testing.T, patterns ...string) []*ast.FuncDecl {
	t.Helper()
	var all []*ast.FuncDecl
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("no files are called %s: %v", pattern, err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, declaration := range file.Decls {
				if function, ok := declaration.(*ast.FuncDecl); ok && function.Body != nil {
					all = append(all, function)
				}
			}
		}
	}
	return all
}

// A build machine ends a run after 90 minutes, without goroutines of the test that hangs.
func TestLimitsEndBeforeTheBuildMachineDoes(t *testing.T) {
	t.Parallel()
	if total := Total(Test); total >= 85*time.Minute {
		t.Errorf("the parts may take %s in all, want less than 85 minutes", total)
	}
	if _, err := Limit(Soak, "unit"); err == nil {
		t.Error("a limit of a part that the tier has not")
	}
}

func TestSkipLeavesTheTier(t *testing.T) {
	t.Parallel()
	extra := ExtraTest("0123456789abcdef")
	for _, suite := range []Suite{EndToEnd, Integration} {
		for _, tier := range All {
			pattern, err := Skip(suite, tier, extra)
			if err != nil {
				t.Fatal(err)
			}
			skip := regexp.MustCompile(pattern)
			for _, other := range All {
				for _, name := range Tests(suite, other) {
					want := !slices.Contains(Tests(suite, tier), name) && name != extra
					if got := skip.MatchString(name); got != want {
						t.Errorf("tier %s of %s: %s is left out: %t, want %t", tier, suite, name, got, want)
					}
				}
			}
			if skip.MatchString("TestOfAnotherPackage") {
				t.Errorf("tier %s of %s leaves out tests that it does not know", tier, suite)
			}
		}
	}
	if _, err := Skip("unit", Test); err == nil {
		t.Error("a suite without tiers, and no error")
	}
}

func TestEachExtraTestIsChosen(t *testing.T) {
	t.Parallel()
	var chosen []string
	for i := range 10000 {
		if name := ExtraTest(fmt.Sprintf("%040x", i)); !slices.Contains(chosen, name) {
			chosen = append(chosen, name)
		}
	}
	slices.Sort(chosen)
	want := ExtraTests()
	slices.Sort(want)
	if diff := cmp.Diff(want, chosen); diff != "" {
		t.Errorf("(-extra +chosen):\n%s", diff)
	}
}
