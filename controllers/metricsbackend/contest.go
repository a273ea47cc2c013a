// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

const (
	// contestLimit bounds how often one APIService is written against the same field
	// manager within contestWindow. An edit by hand is corrected; without the limit, two
	// controllers would overwrite each other for ever.
	contestLimit  = 3
	contestWindow = 6 * time.Hour
)

// contests are by APIService name.
type contests map[string]*contest

// contest counts the writes of one APIService against other field managers, for one
// generation of the spec.
type contest struct {
	generation int64
	writes     map[string][]time.Time
	// stopped is when the operator stopped writing, or zero. After a contestWindow one more
	// write tests whether the other manager still changes the APIService back.
	stopped time.Time
}

// contest returns the contest over an APIService. A new one is stopped if the stored
// status says so of this generation, so that a restart does not start the writes over.
func (s *reconcileState) contest(name string) *contest {
	c := s.history.contests[name]
	if c == nil || c.generation != s.backend.Generation {
		restarted := c == nil && s.wasContested()
		c = &contest{generation: s.backend.Generation, writes: map[string][]time.Time{}}
		if restarted {
			c.stopped = s.now
		}
		s.history.contests[name] = c
	}
	return c
}

// isContested reports whether the operator has paused writing the APIService, since another
// manager keeps changing what differs from the target with this caBundle.
func (s *reconcileState) isContested(service *apiregistrationv1.APIService, caBundle []byte) bool {
	_, contested := s.conflictingManager(service, s.targetWith(caBundle))
	return contested && s.contest(service.Name).paused(s.now)
}

// paused reports whether nothing may be written for now.
func (c *contest) paused(now time.Time) bool {
	return !c.stopped.IsZero() && now.Sub(c.stopped) < contestWindow
}

// allowWrite reports whether one more write against the field manager may be made, and
// counts it.
func (c *contest) allowWrite(manager string, now time.Time) bool {
	if !c.stopped.IsZero() {
		if c.paused(now) {
			return false
		}
		c.stopped = now
		return true
	}
	c.writes[manager] = slices.DeleteFunc(c.writes[manager], func(at time.Time) bool { return now.Sub(at) >= contestWindow })
	if len(c.writes[manager]) >= contestLimit {
		c.stopped = now
		return false
	}
	c.writes[manager] = append(c.writes[manager], now)
	return true
}

// expire removes a stopped contest once our last write has stayed for a contestWindow:
// the other manager may only be slow.
func (c contests) expire(name string, now time.Time) {
	if known := c[name]; known != nil && !known.stopped.IsZero() && !known.paused(now) {
		delete(c, name)
	}
}

// addContested adds a conflict for an APIService that another manager keeps changing
// back.
func (s *reconcileState) addContested(gv schema.GroupVersion, live *apiregistrationv1.APIService, manager string) string {
	who := "someone"
	if manager != "" {
		who = "field manager \"" + manager + "\""
	}
	where := ", to " + lifecycle.DescribeTarget(live)
	if s.ours().PointsToTarget(live) {
		where = ""
	}
	s.addConflict(gv, v1alpha1.ReasonContested,
		"APIService %s is contested: %s keeps changing it back%s, so the operator has stopped to write it. Take it out of what that "+
			"applies, then delete it (kubectl delete apiservice %s) and it is registered again; or leave it to them "+
			"by taking version %s out of %s. The operator tries once more every %d hours, and after a change of the spec",
		live.Name, who, where, live.Name, gv.Version, versionsField(gv), int(contestWindow.Hours()))
	return s.conflict(live.Name).message
}

// wasContested reports whether the stored status says that writing stopped in this
// generation.
func (s *reconcileState) wasContested() bool {
	stalled := meta.FindStatusCondition(s.storedStatus.Conditions, v1alpha1.ConditionStalled)
	return stalled != nil && stalled.Reason == v1alpha1.ReasonContested && stalled.ObservedGeneration == s.backend.Generation
}

// conflictingManager returns the field manager that changed our fields of an APIService,
// and whether there is one. If no field was changed, only the desired state differs.
func (s *reconcileState) conflictingManager(live *apiregistrationv1.APIService, target manifests.Target) (string, bool) {
	for _, field := range s.differingFields(live, target) {
		if manager, changed := lifecycle.ChangedBy(live, field); changed {
			return manager, true
		}
	}
	return "", false
}

// differingFields returns the paths of fields and labels that differ from what target
// requires.
func (s *reconcileState) differingFields(live *apiregistrationv1.APIService, target manifests.Target) [][]string {
	spec := &live.Spec
	to := ptr.Deref(spec.Service, apiregistrationv1.ServiceReference{})
	gv, _ := versionOf(live.Name)
	desired := manifests.APIService(s.serving, gv, target)
	var paths [][]string
	for _, field := range []struct {
		same bool
		path []string
	}{
		{s.ours().HasLabel(live), []string{"f:metadata", "f:labels", "f:" + v1alpha1.LabelBackend}},
		{to.Namespace == target.Namespace, lifecycle.ServiceNamespaceField},
		{to.Name == target.Name, lifecycle.ServiceNameField},
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
