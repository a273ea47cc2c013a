// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command vulncheck prints the known vulnerabilities that our binaries call, and fails for each that is not accepted.
//
// Usage: govulncheck -format json … | go run ./hack/vulncheck ACCEPTED
//
// ACCEPTED has a line for each accepted one: its ID (GO-2026-1234), the date (2026-01-31) and the reason.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: govulncheck -format json … | go run ./hack/vulncheck ACCEPTED")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func run(path string, results io.Reader, out io.Writer) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	accepted, err := parseAccepted(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	found, err := parseResults(results)
	if err != nil {
		return fmt.Errorf("results of govulncheck: %w", err)
	}
	report, err := judge(found, accepted)
	_, _ = fmt.Fprint(out, report)
	return err
}

// parseAccepted returns the reason of each accepted vulnerability, by ID. Empty lines and those that begin with # are comments.
func parseAccepted(content string) (map[string]string, error) {
	accepted := map[string]string{}
	for line := range strings.Lines(content) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, " ", 3)
		if len(fields) < 3 || !strings.HasPrefix(fields[0], "GO-") {
			return nil, fmt.Errorf("line %q: write ID, date and reason, as in: GO-2026-1234 2026-01-31 no client can reach it", line)
		}
		if _, err := time.Parse(time.DateOnly, fields[1]); err != nil {
			return nil, fmt.Errorf("line %q: the second word is the date, as in 2026-01-31", line)
		}
		accepted[fields[0]] = fields[2]
	}
	return accepted, nil
}

// vulnerability is one that a binary calls.
type vulnerability struct{ id, summary, call, fixed string }

// message is one of govulncheck's protocol (golang.org/x/vuln/internal/govulncheck), with the fields that are used.
type message struct {
	Config *struct {
		DBLastModified *time.Time `json:"db_last_modified"`
	} `json:"config"`
	OSV *struct {
		ID      string `json:"id"`
		Summary string `json:"summary"`
	} `json:"osv"`
	Finding *struct {
		OSV          string `json:"osv"`
		FixedVersion string `json:"fixed_version"`
		// Trace begins with the vulnerable symbol. It has a function if that is called, and otherwise only a module
		// or package.
		Trace []struct{ Module, Version, Package, Receiver, Function string } `json:"trace"`
	} `json:"finding"`
}

// parseResults returns the called vulnerabilities, each once, in the order of the results. It returns an error for
// results that are not complete enough to trust: a scan without its configuration.
func parseResults(r io.Reader) ([]vulnerability, error) {
	var found []vulnerability
	summaries, seen := map[string]string{}, map[string]bool{}
	configured := false
	for decoder := json.NewDecoder(r); ; {
		var m message
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		configured = configured || m.Config != nil && m.Config.DBLastModified != nil
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		if f := m.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Function != "" && !seen[f.OSV] {
			seen[f.OSV] = true
			at := f.Trace[0]
			name := at.Function
			if at.Receiver != "" {
				name = strings.TrimPrefix(at.Receiver, "*") + "." + name
			}
			found = append(found, vulnerability{
				id: f.OSV, call: at.Package + "." + name + " of " + at.Module + "@" + at.Version, fixed: f.FixedVersion,
			})
		}
	}
	if !configured {
		return nil, errors.New("they have no configuration with a database: did govulncheck run to its end?")
	}
	for i := range found {
		found[i].summary = summaries[found[i].id]
	}
	return found, nil
}

// judge returns a line for each called vulnerability and for each accepted one that is no longer called, and an error if
// one is not accepted.
func judge(found []vulnerability, accepted map[string]string) (string, error) {
	var report strings.Builder
	refused, called := 0, map[string]bool{}
	for _, v := range found {
		called[v.id] = true
		if reason, ok := accepted[v.id]; ok {
			fmt.Fprintf(&report, "accepted: %s %s (%s)\n", v.id, v.summary, reason)
			continue
		}
		refused++
		fixed := "no version fixes it yet"
		if v.fixed != "" {
			fixed = "fixed in " + v.fixed
		}
		fmt.Fprintf(&report, "%s: %s\n  called: %s; %s\n", v.id, v.summary, v.call, fixed)
	}
	for id := range accepted {
		if !called[id] {
			fmt.Fprintf(&report, "%s is accepted and no longer called: remove its line\n", id)
		}
	}
	if refused > 0 {
		return report.String(), fmt.Errorf("called and not accepted: %d; upgrade, or accept each with a date and a reason", refused)
	}
	if len(found) == 0 {
		report.WriteString("no known vulnerability is called\n")
	}
	return report.String(), nil
}
