// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

const (
	// contestLimit is how often one APIService is written against the same field
	// manager within contestWindow. An edit by hand is corrected; a GitOps tool
	// that applies its own APIService each few minutes would go on for ever.
	contestLimit  = 3
	contestWindow = 6 * time.Hour
)

// contest is how often one APIService was written against a rival.
type contest struct {
	generation int64
	writes     map[string][]time.Time
	// lost is when the writing stopped; zero while it has not. After a
	// contestWindow one more write shows whether the rival goes on.
	lost time.Time
}

// contestOf is the contest over one APIService, one for each generation of the spec.
// lost is what the persisted status says of this generation: a restart does not
// begin the fight anew.
func (m *memory) contestOf(backend, name string, generation int64, lost bool, now time.Time) *contest {
	if m.contests[backend] == nil {
		m.contests[backend] = map[string]*contest{}
	}
	c := m.contests[backend][name]
	if c == nil || c.generation != generation {
		restarted := c == nil && lost
		c = &contest{generation: generation, writes: map[string][]time.Time{}}
		if restarted {
			c.lost = now
		}
		m.contests[backend][name] = c
	}
	return c
}

// lost tells whether nothing is to be written for now.
func (m *memory) lost(backend, name string, generation int64, persisted bool, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.contestOf(backend, name, generation, persisted, now)
	return !c.lost.IsZero() && now.Sub(c.lost) < contestWindow
}

// contend tells whether one more write against rival may be made, and counts it.
func (m *memory) contend(backend, name, rival string, generation int64, persisted bool, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.contestOf(backend, name, generation, persisted, now)
	if !c.lost.IsZero() {
		if now.Sub(c.lost) < contestWindow {
			return false
		}
		c.lost = now
		return true
	}
	var recent []time.Time
	for _, at := range c.writes[rival] {
		if now.Sub(at) < contestWindow {
			recent = append(recent, at)
		}
	}
	if len(recent) >= contestLimit {
		c.lost = now
		return false
	}
	c.writes[rival] = append(recent, now)
	return true
}

// uncontested forgets a contest that was lost once our last write has stood for a
// contestWindow: who is slow to change it back has not stopped.
func (m *memory) uncontested(backend, name string, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.contests[backend][name]; c != nil && !c.lost.IsZero() && now.Sub(c.lost) >= contestWindow {
		delete(m.contests[backend], name)
	}
}

// settled forgets a contest: the APIService is gone.
func (m *memory) settled(backend, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.contests[backend], name)
}

// holdContested holds a version whose APIService someone keeps changing back.
func (s *scope) holdContested(gv schema.GroupVersion, live *apiregistrationv1.APIService, rival string) string {
	who := "someone"
	if rival != "" {
		who = "field manager \"" + rival + "\""
	}
	where := ", to " + whereTo(live)
	if leadsTo(live, s.target()) {
		where = ""
	}
	s.hold(gv, v1alpha1.ReasonContested,
		"APIService %s is contested: %s keeps changing it back%s, so the operator has stopped to write it. Take it out of what that "+
			"applies, then delete it (kubectl delete apiservice %s) and it is registered anew; or leave it to them "+
			"by taking version %s out of %s. The operator tries once more every %d hours, and after a change of the spec",
		live.Name, who, where, live.Name, gv.Version, versionsField(gv), int(contestWindow.Hours()))
	return s.held[live.Name].message
}

// wasContested tells whether the persisted status says that this generation lost.
func (s *scope) wasContested() bool {
	stalled := meta.FindStatusCondition(s.before.Conditions, v1alpha1.ConditionStalled)
	return stalled != nil && stalled.Reason == v1alpha1.ReasonContested && stalled.ObservedGeneration == s.backend.Generation
}

// rivalOf is the field manager that changed what we wrote in an APIService since,
// and whether anybody did. A field that we still own, alone or with others, is as
// we wrote it: then only what we want has changed.
func (s *scope) rivalOf(live *apiregistrationv1.APIService, target manifests.Target) (string, bool) {
	for _, field := range s.differing(live, target) {
		if manager, changed := changedBy(live, field); changed {
			return manager, true
		}
	}
	return "", false
}

// changedBy is the field manager that changed a field that we wrote, and whether
// anybody did: one that we still own, alone or with others, is as we wrote it.
func changedBy(live *apiregistrationv1.APIService, field []string) (string, bool) {
	var others []metav1.ManagedFieldsEntry
	for _, entry := range live.ManagedFields {
		if entry.Subresource != "" || !owns(entry, field) {
			continue
		}
		if entry.Manager == v1alpha1.FieldOwner {
			return "", false
		}
		others = append(others, entry)
	}
	switch {
	case len(others) > 0:
		return newest(others).Manager, true
	case len(live.ManagedFields) > 0:
		// A field that is gone has no manager: whoever wrote last took it.
		return newest(notOurs(live.ManagedFields)).Manager, true
	}
	return "", false
}

var (
	serviceNamespaceField = []string{"f:spec", "f:service", "f:namespace"}
	serviceNameField      = []string{"f:spec", "f:service", "f:name"}
)

// differing are the paths of the fields that are not as target says, and of our
// labels: who replaces the object takes away the one that makes it ours, too.
func (s *scope) differing(live *apiregistrationv1.APIService, target manifests.Target) [][]string {
	spec := &live.Spec
	to := ptr.Deref(spec.Service, apiregistrationv1.ServiceReference{})
	gv, _ := versionOf(live.Name)
	desired := manifests.APIService(s.serving, gv, target)
	var paths [][]string
	for _, field := range []struct {
		same bool
		path []string
	}{
		{s.holds(live), []string{"f:metadata", "f:labels", "f:" + v1alpha1.LabelBackend}},
		{to.Namespace == target.Namespace, serviceNamespaceField},
		{to.Name == target.Name, serviceNameField},
		{ptr.Deref(to.Port, manifests.ServicePort) == target.Port, []string{"f:spec", "f:service", "f:port"}},
		{spec.InsecureSkipTLSVerify == target.InsecureSkipTLSVerify, []string{"f:spec", "f:insecureSkipTLSVerify"}},
		{bytes.Equal(spec.CABundle, target.CABundle), []string{"f:spec", "f:caBundle"}},
		{spec.GroupPriorityMinimum == *desired.Spec.GroupPriorityMinimum, []string{"f:spec", "f:groupPriorityMinimum"}},
		{spec.VersionPriority == *desired.Spec.VersionPriority, []string{"f:spec", "f:versionPriority"}},
	} {
		if !field.same {
			paths = append(paths, field.path)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(desired.Labels)) {
		if key != v1alpha1.LabelBackend && live.Labels[key] != desired.Labels[key] {
			paths = append(paths, []string{"f:metadata", "f:labels", "f:" + key})
		}
	}
	return paths
}

func owns(entry metav1.ManagedFieldsEntry, path []string) bool {
	var fields map[string]any
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	_, found, err := unstructured.NestedFieldNoCopy(fields, path...)
	return found && err == nil
}

func notOurs(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var others []metav1.ManagedFieldsEntry
	for _, entry := range entries {
		if entry.Manager != v1alpha1.FieldOwner && entry.Subresource == "" {
			others = append(others, entry)
		}
	}
	return others
}

func newest(entries []metav1.ManagedFieldsEntry) metav1.ManagedFieldsEntry {
	var last metav1.ManagedFieldsEntry
	for _, entry := range entries {
		if last.Time == nil || entry.Time != nil && last.Time.Before(entry.Time) {
			last = entry
		}
	}
	return last
}
