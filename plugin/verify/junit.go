// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"encoding/xml"
	"fmt"
	"io"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

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
		Name: "kubectl metrics verify", Tests: len(report.Checks),
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
