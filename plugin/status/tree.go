// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

const group = aggregation.GroupResourceMetrics

// trees returns a tree for each backend, or one for the cluster if there is none.
func trees(report *Report, now time.Time) []*output.Node {
	var roots []*output.Node
	if len(report.Backends) == 0 {
		root := output.New(output.Cell{Text: "No MetricsBackend", Tone: output.Strong}, output.Text("at "+report.Cluster))
		addAPIServices(root, report, "", now)
		roots = append(roots, root)
	}
	for i := range report.Backends {
		b := &report.Backends[i]
		root := output.New(output.Cell{Text: "MetricsBackend " + b.Name, Tone: output.Strong}, headline(b))
		next := nextCommands(b)
		if b.Status.ObservedGeneration < b.Generation {
			addNext(root, connection.OperatorPods)
		}
		addConditions(root, b, next)
		addAPIServices(root, report, b.Name, now)
		addPods(root, b)
		addCertificate(root, b, now)
		addConsumers(root, b)
		addSources(root, b, next)
		roots = append(roots, root)
	}
	addFlags(roots, report.flags)
	return roots
}

// headline returns the state in one word, with the message of the condition.
func headline(b *Backend) output.Cell {
	ready, stalled := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionReady), meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionStalled)
	switch {
	case ready == nil:
		return output.Cell{Text: "not looked at yet: does the operator run?", Tone: output.Bad}
	case b.Deleting:
		return output.Cell{Text: "Deleting: " + ready.Message, Tone: output.Warning}
	case b.Status.ObservedGeneration < b.Generation:
		return output.Cell{Text: fmt.Sprintf("generation %d not looked at yet: does the operator run?", b.Generation), Tone: output.Warning}
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		return output.Cell{Text: "Stalled: " + stalled.Message, Tone: output.Bad}
	case ready.Status == metav1.ConditionTrue:
		return output.Cell{Text: "Ready", Tone: output.Good}
	case ready.Status == metav1.ConditionFalse:
		return output.Cell{Text: "not Ready: " + ready.Message, Tone: output.Bad}
	}
	return output.Cell{Text: "in progress: " + ready.Message, Tone: output.Warning}
}

// order is the order of conditions: the summary first, then the areas.
var order = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling,
	v1alpha1.ConditionStaleAPIServicesRemoved, v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionServingReady,
	v1alpha1.ConditionAPIServicesRegistered, v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionRulesReady, v1alpha1.ConditionConsumersCompatible,
}

func addConditions(root *output.Node, b *Backend, next map[string]string) {
	conditions := inOrder(b.Status.Conditions)
	if len(conditions) == 0 {
		root.Add(output.Text("Conditions"), output.Text("none yet"))
		return
	}
	node := root.Add(output.Text("Conditions"))
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionSourcesHealthy {
			continue // see addSources
		}
		message := c.Message
		if strings.HasSuffix(headline(b).Text, ": "+message) && rank(c.Type) <= rank(v1alpha1.ConditionReconciling) {
			message = "" // it is in the first line
		}
		row := node.Add(output.Text(c.Type), output.Cell{Text: string(c.Status), Tone: toneOf(c)}, output.Text(c.Reason), output.Text(message))
		addNext(row, next[c.Type])
	}
}

// inOrder returns the conditions in their order.
func inOrder(conditions []metav1.Condition) []metav1.Condition {
	return slices.SortedStableFunc(slices.Values(conditions), func(x, y metav1.Condition) int { return rank(x.Type) - rank(y.Type) })
}

func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

func toneOf(c metav1.Condition) output.Tone {
	switch {
	case c.Reason == v1alpha1.ReasonNotApplicable:
		return output.Plain
	case c.Type == v1alpha1.ConditionReconciling:
		return output.Warning
	case c.Type == v1alpha1.ConditionStalled:
		return output.Bad
	case c.Status == metav1.ConditionTrue:
		return output.Good
	case c.Status == metav1.ConditionFalse:
		return output.Bad
	}
	return output.Warning
}

func addPods(root *output.Node, b *Backend) {
	serving := b.Status.Serving
	if b.Existing != "" {
		root.Add(output.Text("Pods"), output.Text("those of Service "+b.Existing+", which someone else runs"))
		if serving == nil || len(serving.Pods) == 0 {
			return
		}
	}
	if serving == nil {
		root.Add(output.Text("Pods"), output.Text("not known yet"))
		return
	}
	node := root.Add(output.Text("Pods"), output.Text(serving.Summary+" ready in namespace "+serving.Namespace))
	for _, p := range serving.Pods {
		ready := output.Cell{Text: "ready", Tone: output.Good}
		if !p.Ready {
			ready = output.Cell{Text: "not ready", Tone: output.Warning}
		}
		revision := ""
		if !p.UpToDate {
			revision = " (older revision)"
		}
		row := node.Add(output.Text(p.Name), ready, serves(p), output.Text(p.Image+revision))
		if !p.Ready {
			addNext(row, "kubectl describe pod -n "+serving.Namespace+" "+p.Name)
		}
	}
}

func serves(p v1alpha1.ServingPodStatus) output.Cell {
	if p.Message != "" {
		return output.Cell{Text: p.Message, Tone: output.Warning}
	}
	var versions []string
	for _, name := range p.Versions {
		versions = append(versions, strings.TrimSuffix(name, "."+group))
	}
	if len(versions) == 0 {
		return output.Cell{Text: "serves nothing yet", Tone: output.Warning}
	}
	return output.Text("serves " + strings.Join(versions, ", "))
}

func addCertificate(root *output.Node, b *Backend, now time.Time) {
	if serving := b.Status.Serving; serving != nil && serving.CertificateNotAfter != nil {
		root.Add(output.Text("Certificate"), until("valid until", "ended on", serving.CertificateNotAfter.Time, now))
	}
}

func addConsumers(root *output.Node, b *Backend) {
	if len(b.Status.Consumers) == 0 {
		if b.Existing != "" {
			return // only our serving component knows them
		}
		root.Add(output.Text("Consumers"), nobodySeen(b))
		return
	}
	node := root.Add(output.Text("Consumers"))
	byVersion := func(x, y v1alpha1.ConsumerStatus) int { return strings.Compare(x.Version, y.Version) }
	for _, c := range slices.SortedStableFunc(slices.Values(b.Status.Consumers), byVersion) {
		node.Add(output.Text(c.Version), output.Text(c.UserAgent), output.Text(c.User), output.Text(c.LastSeen))
	}
}

// nobodySeen distinguishes no consumers from unknown ones.
func nobodySeen(b *Backend) output.Cell {
	switch c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionConsumersCompatible); {
	case c == nil:
		return output.Text("not known yet")
	case c.Status == metav1.ConditionUnknown:
		return output.Cell{Text: "not known: " + c.Message, Tone: output.Warning}
	}
	return output.Text("none seen today or yesterday")
}

// maxShown bounds the rows of failures; -o yaml has all.
const maxShown = 20

// addSources adds the sources, the rules that fail, and the number of warnings.
func addSources(root *output.Node, b *Backend, next map[string]string) {
	healthy := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSourcesHealthy)
	if healthy == nil {
		return
	}
	node := root.Add(output.Text("Sources"))
	row := node.Add(output.Text(healthy.Type), output.Cell{Text: string(healthy.Status), Tone: toneOf(*healthy)},
		output.Text(healthy.Reason), output.Text(healthy.Message))
	addNext(row, next[healthy.Type])
	for i, s := range b.Status.Sources {
		if i == maxShown {
			node.Add(output.Text(fmt.Sprintf("and %d more", len(b.Status.Sources)-maxShown)))
			break
		}
		state := output.Cell{Text: "healthy", Tone: output.Good}
		if !s.Healthy {
			state = output.Cell{Text: "not healthy", Tone: output.Bad}
		}
		row := node.Add(output.Text(s.Name), state, output.Text(s.Reason), output.Text(s.Message))
		if command := nextOfSource(b, s.Reason); !s.Healthy && command != next[healthy.Type] {
			addNext(row, command)
		}
	}
	if len(b.Status.Rules) == 0 {
		return
	}
	rules := root.Add(output.Text("Rules"))
	failing := slices.DeleteFunc(slices.Clone(b.Status.Rules), func(r v1alpha1.RuleStatus) bool { return r.State == v1alpha1.RuleWarning })
	for _, r := range failing[:min(len(failing), maxShown)] {
		rules.Add(output.Text(r.Path), output.Cell{Text: string(r.State), Tone: output.Bad}, output.Text(r.Reason), output.Text(r.Message))
	}
	if left := len(failing) - maxShown; left > 0 {
		rules.Add(output.Text(fmt.Sprintf("and %d more that fail", left)))
	}
	if warnings := len(b.Status.Rules) - len(failing); warnings > 0 {
		rules.Add(output.Cell{Text: fmt.Sprintf("warnings: %d, see -o yaml", warnings), Tone: output.Warning})
	}
}
