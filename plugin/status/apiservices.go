// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"strings"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

// addAPIServices adds the APIServices of each group, of any owner, and the backend's versions
// that are not registered. It leaves out unused groups, except for metrics.k8s.io.
func addAPIServices(root *output.Node, report *Report, backend string, now time.Time) {
	for _, of := range aggregation.Groups() {
		if node := groupNode(report, backend, of, now); len(node.Children) > 0 {
			root.Children = append(root.Children, node)
		}
	}
}

// groupOf returns the group in VERSION.GROUP.
func groupOf(name string) string {
	_, group, _ := strings.Cut(name, ".")
	return group
}

func groupNode(report *Report, backend, of string, now time.Time) *output.Node {
	node := output.New(output.Text("APIServices of " + of))
	rows := map[string]*output.Node{}
	for i := range report.APIServices {
		s := &report.APIServices[i]
		if s.Group != of {
			continue
		}
		available := output.Cell{Text: "Available", Tone: output.Good}
		switch {
		case s.Deleting:
			available = output.Cell{Text: "being deleted", Tone: output.Warning}
		case !s.Available:
			available = output.Cell{Text: "not Available", Tone: output.Bad}
		}
		row := node.Add(output.Text(s.Name), available, output.Text(s.Service), output.Text(ownerOf(s, backend)))
		rows[s.Name] = row
		if !s.Available {
			addNext(row.Add(output.Cell{Text: s.Reason + ": " + s.Message, Tone: output.Bad}), "kubectl describe apiservice "+s.Name)
		}
		row.Add(trust(s, now))
		if s.Samples != nil || s.SamplesError != "" {
			samples := row.Add(data(s, now))
			if s.Samples == nil || s.Samples.Nodes == 0 {
				addNext(samples, "kubectl get --raw /apis/"+s.Group+"/"+s.Version+"/nodes")
			}
		}
		if s.AdoptedFrom != "" {
			row.Add(output.Text("taken over from " + s.AdoptedFrom))
		}
	}
	for i := range report.Backends {
		if b := &report.Backends[i]; b.Name == backend {
			addUnregistered(node, rows, b, of)
		}
	}
	if len(node.Children) == 0 && of == group {
		none := node.Add(output.Cell{Text: "none: kubectl top and autoscalers get no metrics", Tone: output.Bad})
		if backend == "" {
			addNext(none, connection.OperatorPods) // works without the CRD
		}
	}
	return node
}

// addUnregistered adds the states of versions without an APIService, and the messages of the
// others.
func addUnregistered(node *output.Node, rows map[string]*output.Node, b *Backend, of string) {
	for _, v := range b.Status.APIServices {
		switch row := rows[v.Name]; {
		case groupOf(v.Name) != of:
		case row == nil:
			node.Add(output.Text(v.Name), output.Cell{Text: string(v.State), Tone: output.Warning}, output.Text(v.Message))
		case v.Message != "":
			row.Add(output.Cell{Text: string(v.State) + ": " + v.Message, Tone: output.Warning})
		}
	}
}

func ownerOf(s *APIService, backend string) string {
	switch s.Backend {
	case backend:
		return ""
	case "":
		return "kept by someone else"
	}
	return "kept by MetricsBackend " + s.Backend
}

func trust(s *APIService, now time.Time) output.Cell {
	switch {
	case s.Service == "":
		return output.Text("answered by kube-apiserver itself")
	case s.InsecureSkipTLSVerify:
		return output.Cell{Text: "not verified: insecureSkipTLSVerify", Tone: output.Warning}
	case s.CABundleError != "":
		return output.Cell{Text: s.CABundleError, Tone: output.Bad}
	case s.CABundleNotAfter == nil:
		return output.Text("no caBundle: verified with the authorities of kube-apiserver's system")
	}
	words := "caBundle"
	if s.Authorities > 1 {
		words = fmt.Sprintf("caBundle of %d authorities", s.Authorities)
	}
	return until(words+" until", words+" ended on", s.CABundleNotAfter.Time, now)
}

func data(s *APIService, now time.Time) output.Cell {
	switch {
	case s.SamplesError != "":
		return output.Cell{Text: s.SamplesError, Tone: output.Bad}
	case s.Samples.Nodes == 0:
		return output.Cell{Text: "no node samples", Tone: output.Bad}
	}
	noun := "nodes"
	if s.Samples.Nodes == 1 {
		noun = "node"
	}
	return output.Text(fmt.Sprintf("samples of %d %s, the newest from %s", s.Samples.Nodes, noun, ago(now, s.Samples.Newest.Time)))
}

// until returns when something expires, after the words for the future or for the past.
func until(future, past string, end, now time.Time) output.Cell {
	date := end.UTC().Format(time.DateOnly)
	switch left := end.Sub(now); {
	case left <= 0:
		return output.Cell{Text: past + " " + date, Tone: output.Bad}
	case left < aggregation.ExpiresSoon:
		return output.Cell{Text: fmt.Sprintf("%s %s, in %s", future, date, span(left)), Tone: output.Warning}
	default:
		return output.Text(fmt.Sprintf("%s %s, in %s", future, date, span(left)))
	}
}
