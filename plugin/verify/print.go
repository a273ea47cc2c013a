// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// formats are the values of -o.
var formats = map[string]func(io.Writer, *Report) error{
	"text": printText, "junit": printJUnit,
	"json": func(w io.Writer, r *Report) error { return output.Format("json").Print(w, r) },
	"yaml": func(w io.Writer, r *Report) error { return output.Format("yaml").Print(w, r) },
}

var tones = map[Outcome]output.Tone{Pass: output.Good, Warn: output.Warning, Skip: output.Faint, Fail: output.Bad, Error: output.Bad}

// printText writes a line for each result, followed by its remedy and the next command.
func printText(w io.Writer, report *Report) error {
	if _, err := fmt.Fprintf(w, "%s at %s, expected: %s (%s)\n\n", group, report.Cluster, listed(report.Expected), report.ExpectedBy); err != nil {
		return err
	}
	var rows [][]output.Cell
	for _, check := range report.Checks {
		tone := tones[check.Outcome]
		rows = append(rows, []output.Cell{
			{Text: strings.ToUpper(string(check.Outcome)), Tone: tone}, output.Text(check.ID), output.Text(check.Subject), output.Text(check.Message),
		})
		if check.Remedy != "" {
			rows = append(rows, []output.Cell{output.Text(""), {Text: "to do: " + check.Remedy, Tone: tone}})
		}
		if check.Command != "" {
			rows = append(rows, []output.Cell{output.Text(""), output.NextCommand(check.Command)})
		}
	}
	if err := output.Rows(w, rows...); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", summary(report))
	return err
}

func summary(report *Report) string {
	parts := []string{fmt.Sprintf("%d passed", report.count(Pass))}
	for _, outcome := range []struct {
		outcome Outcome
		words   string
	}{{Fail, "failed"}, {Error, "could not be run"}, {Warn, "with a warning"}, {Skip, "skipped"}} {
		if n := report.count(outcome.outcome); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, outcome.words))
		}
	}
	return strings.Join(parts, ", ")
}

// The elements of JUnit's XML that CI systems read.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name      string          `xml:"name,attr"`
		Tests     int             `xml:"tests,attr"`
		Failures  int             `xml:"failures,attr"`
		Errors    int             `xml:"errors,attr"`
		Skipped   int             `xml:"skipped,attr"`
		Time      string          `xml:"time,attr"`
		Timestamp string          `xml:"timestamp,attr"`
		Property  []junitProperty `xml:"properties>property"`
		Cases     []junitCase     `xml:"testcase"`
	}
	junitProperty struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Error   *junitMessage `xml:"error,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// printJUnit writes the report as JUnit XML. A warning is a passed test with the message as
// its output, since JUnit has no warnings.
func printJUnit(w io.Writer, report *Report) error {
	suite := junitSuite{
		Name: "kubectl metrics-backend " + report.command, Tests: len(report.Checks),
		Failures: report.count(Fail), Errors: report.count(Error), Skipped: report.count(Skip),
		Time: "0", Timestamp: report.Time.UTC().Format(time.RFC3339),
		Property: []junitProperty{
			{Name: "cluster", Value: report.Cluster}, {Name: "expected", Value: listed(report.Expected)},
		},
	}
	for _, check := range report.Checks {
		c := junitCase{Class: group + "." + check.ID, Name: check.Subject, Time: "0"}
		remedy := check.Remedy
		if check.Command != "" {
			remedy += "\n" + output.NextCommand(check.Command).Text
		}
		message := &junitMessage{Message: check.Message, Text: remedy}
		switch check.Outcome {
		case Fail:
			c.Failure = message
		case Error:
			c.Error = message
		case Skip:
			c.Skipped = message
		default:
			c.Output = check.Message
			if remedy != "" {
				c.Output += "\n" + remedy
			}
		}
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(junitSuites{Suites: []junitSuite{suite}}); err != nil {
		return fmt.Errorf("write JUnit XML: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}
