// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/inventory"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// wantCondition checks a condition's status, its reason unless that is empty, and that
// its message contains all parts.
func (fc *fakeCluster) wantCondition(kind string, status metav1.ConditionStatus, reason string, parts ...string) {
	fc.t.Helper()
	c := fc.condition(kind)
	if status != "" && c.Status != status || reason != "" && c.Reason != reason {
		fc.t.Errorf("%s is %+v, want %s %s", kind, c, status, reason)
	}
	for _, part := range parts {
		if !strings.Contains(c.Message, part) {
			fc.t.Errorf("%s has the message %q, want %q in it", kind, c.Message, part)
		}
	}
}

// isStalledBy reports whether the backend is stalled for the reason.
func (fc *fakeCluster) isStalledBy(reason string) bool {
	return fc.condition(v1alpha1.ConditionStalled).Reason == reason
}

// wantRegistered checks which versions are registered, sorted by name.
func (fc *fakeCluster) wantRegistered(versions ...string) {
	fc.t.Helper()
	if diff := cmp.Diff(versions, fc.registeredVersions()); diff != "" {
		fc.t.Errorf("registered versions (-want +got):\n%s", diff)
	}
}

// wantPointsTo checks to which Service the version's APIService points; "" if there is no
// APIService.
func (fc *fakeCluster) wantPointsTo(gv schema.GroupVersion, service string) {
	fc.t.Helper()
	if got := fc.pointsToNow(gv); got != service {
		fc.t.Errorf("%s points to %q, want %q", gv, got, service)
	}
}

// wantEvent checks that an event with all the parts was recorded, and consumes the events
// up to it.
func wantEvent(t *testing.T, r *Reconciler, parts ...string) {
	t.Helper()
	recorder := r.Events.(*events.FakeRecorder)
	for {
		select {
		case e := <-recorder.Events:
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(e, part) }) {
				return
			}
		default:
			t.Errorf("no event with %q", parts)
			return
		}
	}
}

func (fc *fakeCluster) isGone() bool {
	return apierrors.IsNotFound(fc.raw.Get(context.Background(), client.ObjectKey{Name: backendName}, &v1alpha1.MetricsBackend{}))
}

func (fc *fakeCluster) registeredVersions() []string {
	var versions []string
	for _, service := range fc.apiServices() {
		versions = append(versions, service.Spec.Version)
	}
	slices.Sort(versions)
	return versions
}

// inventory lists all objects of the backend, and its status.
func (fc *fakeCluster) inventory() string {
	out := fc.show()
	for _, kind := range inventory.Removable() {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		fc.list(list, client.HasLabels{v1alpha1.LabelBackend})
		for _, object := range list.Items {
			out += fmt.Sprintf("%s %s/%s\n", kind.Kind, object.Namespace, object.Name)
		}
	}
	for _, service := range fc.apiServices() {
		out += fmt.Sprintf("APIService %s -> %s\n", service.Name, lifecycle.DescribeTarget(&service))
	}
	return out
}

var podName = regexp.MustCompile(`pod-\d+`)

// endState is the state of the backend and all that it owns, without the numbers of pods.
func (fc *fakeCluster) endState() string { return podName.ReplaceAllString(fc.inventory(), "pod-N") }

// reportsNotServed reports whether the backend is stable with an image that lacks v1.
func (fc *fakeCluster) reportsNotServed() bool {
	return fc.condition(v1alpha1.ConditionReady).Reason == v1alpha1.ReasonVersionNotServed && !fc.isRegistered(v1) && fc.deployedImage() == imageV1beta1
}

// deployedImage returns the image of all pods, or "" while they differ.
func (fc *fakeCluster) deployedImage() string {
	images := sets.New[string]()
	for _, p := range fc.pods() {
		images.Insert(imageOf(&p.Spec))
	}
	if image, ok := images.PopAny(); ok && images.Len() == 0 {
		return image
	}
	return ""
}
