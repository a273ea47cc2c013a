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

// addAPIServices shows those of each group, since all compete for its versions, and
// the versions of the backend that are not registered yet, or no longer. Groups that
// nobody serves or wants are left out, but for the one that kubectl top needs.
func addAPIServices(root *tree.Node, report *Report, backend string, now time.Time) {
	for _, of := range aggregation.Groups() {
		if of == group || inUse(report, backend, of) {
			addGroup(root, report, backend, of, now)
		}
	}
}

// inUse tells whether the group has an APIService, or the backend a version of it.
func inUse(report *Report, backend, group string) bool {
	return slices.ContainsFunc(report.APIServices, func(s APIService) bool { return s.Group == group }) ||
		slices.ContainsFunc(report.Backends, func(b Backend) bool {
			return b.Name == backend && slices.ContainsFunc(b.Status.APIServices, func(v v1alpha1.APIServiceStatus) bool { return groupOf(v.Name) == group })
		})
}

// groupOf is the group in VERSION.GROUP.
func groupOf(name string) string {
	_, group, _ := strings.Cut(name, ".")
	return group
}

func addGroup(root *tree.Node, report *Report, backend, of string, now time.Time) {
	node := root.Add(tree.Text("APIServices of " + of))
	rows := map[string]*tree.Node{}
	for i := range report.APIServices {
		s := &report.APIServices[i]
		if s.Group != of {
			continue
		}
		available := tree.Cell{Text: "Available", Tone: tree.Good}
		switch {
		case s.Deleting:
			available = tree.Cell{Text: "being deleted", Tone: tree.Warning}
		case !s.Available:
			available = tree.Cell{Text: "not Available", Tone: tree.Bad}
		}
		row := node.Add(tree.Text(s.Name), available, tree.Text(s.Service), tree.Text(ownerOf(s, backend)))
		rows[s.Name] = row
		if !s.Available {
			row.Add(tree.Cell{Text: s.Reason + ": " + s.Message, Tone: tree.Bad})
		}
		row.Add(trust(s, now))
		if s.Samples != nil || s.SamplesError != "" {
			row.Add(data(s, now))
		}
		if s.AdoptedFrom != "" {
			row.Add(tree.Text("taken over from " + s.AdoptedFrom))
		}
	}
	for i := range report.Backends {
		if b := &report.Backends[i]; b.Name == backend {
			addUnregistered(node, rows, b, of)
		}
	}
	if len(node.Children) == 0 && of == group {
		node.Add(tree.Cell{Text: "none: kubectl top and autoscalers get no metrics", Tone: tree.Bad})
	}
}

// addUnregistered shows what the operator says of versions without an APIService,
// and why one is on its way out.
func addUnregistered(node *tree.Node, rows map[string]*tree.Node, b *Backend, of string) {
	for _, v := range b.Status.APIServices {
		switch row := rows[v.Name]; {
		case groupOf(v.Name) != of:
		case row == nil:
			node.Add(tree.Text(v.Name), tree.Cell{Text: string(v.State), Tone: tree.Warning}, tree.Text(v.Message))
		case v.Message != "":
			row.Add(tree.Cell{Text: string(v.State) + ": " + v.Message, Tone: tree.Warning})
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

func trust(s *APIService, now time.Time) tree.Cell {
	switch {
	case s.Service == "":
		return tree.Text("answered by kube-apiserver itself")
	case s.InsecureSkipTLSVerify:
		return tree.Cell{Text: "not verified: insecureSkipTLSVerify", Tone: tree.Warning}
	case s.CABundleError != "":
		return tree.Cell{Text: s.CABundleError, Tone: tree.Bad}
	case s.CABundleNotAfter == nil:
		return tree.Text("no caBundle: verified with the authorities of kube-apiserver's system")
	}
	words := "caBundle"
	if s.Authorities > 1 {
		words = fmt.Sprintf("caBundle of %d authorities", s.Authorities)
	}
	return until(words, s.CABundleNotAfter.Time, now)
}

func data(s *APIService, now time.Time) tree.Cell {
	switch {
	case s.SamplesError != "":
		return tree.Cell{Text: s.SamplesError, Tone: tree.Bad}
	case s.Samples.Nodes == 0:
		return tree.Cell{Text: "no node samples", Tone: tree.Bad}
	}
	noun := "nodes"
	if s.Samples.Nodes == 1 {
		noun = "node"
	}
	return tree.Text(fmt.Sprintf("samples of %d %s, the newest from %s", s.Samples.Nodes, noun, ago(now, s.Samples.Newest.Time)))
}

// until tells when something ends.
func until(what string, end, now time.Time) tree.Cell {
	date := end.UTC().Format(time.DateOnly)
	switch left := end.Sub(now); {
	case left <= 0:
		return tree.Cell{Text: fmt.Sprintf("%s ended on %s", what, date), Tone: tree.Bad}
	case left < aggregation.ExpiresSoon:
		return tree.Cell{Text: fmt.Sprintf("%s until %s, in %s", what, date, span(left)), Tone: tree.Warning}
	default:
		return tree.Text(fmt.Sprintf("%s until %s, in %s", what, date, span(left)))
	}
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
