// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
	"github.com/metricsbackend/metrics-backend-operator/plugin/tree"
)

const group = aggregation.GroupResourceMetrics

// trees are what is printed: a tree for each backend, or one for the cluster.
func trees(report *Report, now time.Time) []*tree.Node {
	if len(report.Backends) == 0 {
		root := tree.New(tree.Cell{Text: "No MetricsBackend", Tone: tree.Strong}, tree.Text("at "+report.Cluster))
		addAPIServices(root, report, "", now)
		return []*tree.Node{root}
	}
	var roots []*tree.Node
	for i := range report.Backends {
		b := &report.Backends[i]
		root := tree.New(tree.Cell{Text: "MetricsBackend " + b.Name, Tone: tree.Strong}, headline(b))
		addConditions(root, b)
		addAPIServices(root, report, b.Name, now)
		addPods(root, b)
		addCertificate(root, b, now)
		addConsumers(root, b)
		addSources(root, b)
		roots = append(roots, root)
	}
	return roots
}

// headline is the state in one word, and what the operator is doing.
func headline(b *Backend) tree.Cell {
	ready, stalled := b.condition(v1alpha1.ConditionReady), b.condition(v1alpha1.ConditionStalled)
	switch {
	case ready == nil:
		return tree.Cell{Text: "not looked at yet: does the operator run?", Tone: tree.Bad}
	case b.Deleting:
		return tree.Cell{Text: "Deleting: " + ready.Message, Tone: tree.Warning}
	case b.Status.ObservedGeneration < b.Generation:
		return tree.Cell{Text: fmt.Sprintf("generation %d not looked at yet: does the operator run?", b.Generation), Tone: tree.Warning}
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		return tree.Cell{Text: "Stalled: " + stalled.Message, Tone: tree.Bad}
	case ready.Status == metav1.ConditionTrue:
		return tree.Cell{Text: "Ready", Tone: tree.Good}
	case ready.Status == metav1.ConditionFalse:
		return tree.Cell{Text: "not Ready: " + ready.Message, Tone: tree.Bad}
	}
	return tree.Cell{Text: "in progress: " + ready.Message, Tone: tree.Warning}
}

// order puts the summary first, then the areas in the order of work.
var order = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling,
	v1alpha1.ConditionStaleAPIServicesRemoved, v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionServingReady,
	v1alpha1.ConditionAPIServicesRegistered, v1alpha1.ConditionSourcesHealthy, v1alpha1.ConditionRulesReady, v1alpha1.ConditionConsumersCompatible,
}

func addConditions(root *tree.Node, b *Backend) {
	conditions := slices.Clone(b.Status.Conditions)
	slices.SortStableFunc(conditions, func(x, y metav1.Condition) int { return rank(x.Type) - rank(y.Type) })
	if len(conditions) == 0 {
		root.Add(tree.Text("Conditions"), tree.Text("none yet"))
		return
	}
	node := root.Add(tree.Text("Conditions"))
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionSourcesHealthy {
			continue // see addSources
		}
		node.Add(tree.Text(c.Type), tree.Cell{Text: string(c.Status), Tone: toneOf(c)}, tree.Text(c.Reason), tree.Text(c.Message))
	}
}

func rank(kind string) int {
	if i := slices.Index(order, kind); i >= 0 {
		return i
	}
	return len(order)
}

func toneOf(c metav1.Condition) tree.Tone {
	switch {
	case c.Reason == v1alpha1.ReasonNotApplicable:
		return tree.Plain
	case c.Type == v1alpha1.ConditionReconciling:
		return tree.Warning
	case c.Type == v1alpha1.ConditionStalled:
		return tree.Bad
	case c.Status == metav1.ConditionTrue:
		return tree.Good
	case c.Status == metav1.ConditionFalse:
		return tree.Bad
	}
	return tree.Warning
}

func addPods(root *tree.Node, b *Backend) {
	serving := b.Status.Serving
	if b.Existing != "" {
		root.Add(tree.Text("Pods"), tree.Text("those of Service "+b.Existing+", which someone else runs"))
		if serving == nil || len(serving.Pods) == 0 {
			return
		}
	}
	if serving == nil {
		root.Add(tree.Text("Pods"), tree.Text("not known yet"))
		return
	}
	node := root.Add(tree.Text("Pods"), tree.Text(serving.Summary+" ready in namespace "+serving.Namespace))
	for _, p := range serving.Pods {
		ready := tree.Cell{Text: "ready", Tone: tree.Good}
		if !p.Ready {
			ready = tree.Cell{Text: "not ready", Tone: tree.Warning}
		}
		revision := ""
		if !p.UpToDate {
			revision = " (older revision)"
		}
		node.Add(tree.Text(p.Name), ready, serves(p), tree.Text(p.Image+revision))
	}
}

func serves(p v1alpha1.ServingPodStatus) tree.Cell {
	if p.Message != "" {
		return tree.Cell{Text: p.Message, Tone: tree.Warning}
	}
	var versions []string
	for _, name := range p.Versions {
		versions = append(versions, strings.TrimSuffix(name, "."+group))
	}
	if len(versions) == 0 {
		return tree.Cell{Text: "serves nothing yet", Tone: tree.Warning}
	}
	return tree.Text("serves " + strings.Join(versions, ", "))
}

func addCertificate(root *tree.Node, b *Backend, now time.Time) {
	if b.Status.Serving == nil || b.Status.Serving.CertificateNotAfter == nil {
		return
	}
	root.Add(tree.Text("Certificate"), until("valid", b.Status.Serving.CertificateNotAfter.Time, now))
}

func addConsumers(root *tree.Node, b *Backend) {
	if len(b.Status.Consumers) == 0 {
		if b.Existing != "" {
			return // only our serving component knows them
		}
		root.Add(tree.Text("Consumers"), nobodySeen(b))
		return
	}
	node := root.Add(tree.Text("Consumers"))
	consumers := slices.Clone(b.Status.Consumers)
	slices.SortStableFunc(consumers, func(x, y v1alpha1.ConsumerStatus) int { return strings.Compare(x.Version, y.Version) })
	for _, c := range consumers {
		node.Add(tree.Text(c.Version), tree.Text(c.UserAgent), tree.Text(c.User), tree.Text(c.LastSeen))
	}
}

// nobodySeen tells no clients from nobody who could tell of them.
func nobodySeen(b *Backend) tree.Cell {
	switch c := b.condition(v1alpha1.ConditionConsumersCompatible); {
	case c == nil:
		return tree.Text("not known yet")
	case c.Status == metav1.ConditionUnknown:
		return tree.Cell{Text: "not known: " + c.Message, Tone: tree.Warning}
	}
	return tree.Text("none seen today or yesterday")
}

// maxShown bounds rows of what fails; -o yaml has all.
const maxShown = 20

// addSources shows how each source is, and the rules that fail. Warnings are counted.
func addSources(root *tree.Node, b *Backend) {
	healthy := b.condition(v1alpha1.ConditionSourcesHealthy)
	if healthy == nil {
		return
	}
	node := root.Add(tree.Text("Sources"))
	node.Add(tree.Text(healthy.Type), tree.Cell{Text: string(healthy.Status), Tone: toneOf(*healthy)},
		tree.Text(healthy.Reason), tree.Text(healthy.Message))
	for i, s := range b.Status.Sources {
		if i == maxShown {
			node.Add(tree.Text(fmt.Sprintf("and %d more", len(b.Status.Sources)-maxShown)))
			break
		}
		state := tree.Cell{Text: "healthy", Tone: tree.Good}
		if !s.Healthy {
			state = tree.Cell{Text: "not healthy", Tone: tree.Bad}
		}
		node.Add(tree.Text(s.Name), state, tree.Text(s.Reason), tree.Text(s.Message))
	}
	if len(b.Status.Rules) == 0 {
		return
	}
	rules := root.Add(tree.Text("Rules"))
	shown, left, warnings := 0, 0, 0
	for _, r := range b.Status.Rules {
		switch {
		case r.State == v1alpha1.RuleWarning:
			warnings++
		case shown == maxShown:
			left++
		default:
			shown++
			rules.Add(tree.Text(r.Path), tree.Cell{Text: string(r.State), Tone: tree.Bad}, tree.Text(r.Reason), tree.Text(r.Message))
		}
	}
	if left > 0 {
		rules.Add(tree.Text(fmt.Sprintf("and %d more that fail", left)))
	}
	if warnings > 0 {
		rules.Add(tree.Cell{Text: fmt.Sprintf("warnings: %d, see -o yaml", warnings), Tone: tree.Warning})
	}
}
