// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// cluster counts writes, and how those were made.
type cluster struct {
	client.WithWatch
	applies, forced int
	deletes         []string
	// beforeApply runs before each apply, as another client would.
	beforeApply func()
	clock       *testingclock.FakePassiveClock
}

func newCluster(t *testing.T, objects ...client.Object) *cluster {
	t.Helper()
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, policyv1.AddToScheme, networkingv1.AddToScheme,
		apiregistrationv1.AddToScheme, admissionregistrationv1.AddToScheme,
	} {
		if err := add(kinds); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{beforeApply: func() {}, clock: testingclock.NewFakePassiveClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))}
	base := fake.NewClientBuilder().WithScheme(kinds).
		WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithReturnManagedFields().
		WithObjects(objects...).Build()
	c.WithWatch = interceptor.NewClient(base, interceptor.Funcs{
		Apply: func(ctx context.Context, inner client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			c.beforeApply()
			c.applies++
			options := &client.ApplyOptions{}
			options.ApplyOptions(opts)
			if options.Force != nil && *options.Force {
				c.forced++
			}
			if options.FieldManager != v1alpha1.FieldOwner {
				t.Errorf("applied as %q", options.FieldManager)
			}
			return inner.Apply(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, inner client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			options := (&client.DeleteOptions{}).ApplyOptions(opts)
			if options.Preconditions == nil || options.Preconditions.UID == nil || options.Preconditions.ResourceVersion == nil {
				t.Errorf("deleted %s without preconditions", o.GetName())
			}
			c.deletes = append(c.deletes, o.GetObjectKind().GroupVersionKind().Kind+" "+Path(client.ObjectKeyFromObject(o)))
			return inner.Delete(ctx, o, opts...)
		},
	})
	return c
}

func newApplier(t *testing.T, objects ...client.Object) (*cluster, *Applier) {
	t.Helper()
	c := newCluster(t, objects...)
	return c, NewApplier(c, c, c.clock)
}

func serving(change ...func(*v1alpha1.ServingSpec)) manifests.Serving {
	spec := v1alpha1.MetricsBackendSpec{}
	for _, c := range change {
		c(&spec.Serving)
	}
	v1alpha1.SetDefaults(&spec)
	return manifests.Serving{Backend: "b", Namespace: "ns", Image: "image", KubeletPort: 10250, Quota: true, Scrapes: true, Spec: spec.Serving}
}

func apply(t *testing.T, a *Applier, s manifests.Serving) {
	t.Helper()
	for _, object := range manifests.All(s) {
		if _, err := a.Apply(t.Context(), "b", object); err != nil {
			t.Fatal(err)
		}
	}
}

// A state that is in force makes no request; each change of the live object, or
// of what is desired, makes one.
func TestApplyWritesOnlyWhatChanged(t *testing.T) {
	c, a := newApplier(t)
	all := len(manifests.All(serving()))
	writes := func() int {
		n := c.applies
		c.applies = 0
		return n
	}
	apply(t, a, serving())
	if got := writes(); got != all || c.forced != 0 {
		t.Fatalf("at first %d applies, %d with force, want %d and 0", got, c.forced, all)
	}
	apply(t, a, serving())
	if got := writes(); got != 0 {
		t.Errorf("steady state: %d applies", got)
	}

	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: "ns", Name: "metrics-serving-b"}
	if err := c.Get(t.Context(), key, service); err != nil {
		t.Fatal(err)
	}
	service.Spec.Selector[v1alpha1.LabelBackend] = "other"
	if err := c.Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	apply(t, a, serving())
	if got := writes(); got != 1 || c.forced != 1 {
		t.Errorf("after drift: %d applies, %d with force, want 1 and 1", got, c.forced)
	}
	if err := c.Get(t.Context(), key, service); err != nil || service.Spec.Selector[v1alpha1.LabelBackend] != "b" {
		t.Errorf("drift was not corrected: %v, %v", err, service.Spec.Selector)
	}

	changed := serving(func(spec *v1alpha1.ServingSpec) { spec.PriorityClassName = "other" })
	apply(t, a, changed)
	if got := writes(); got != 1 {
		t.Errorf("after a change of the pods: %d applies, want that of the Deployment", got)
	}
	successor := NewApplier(c, c, clock.RealClock{})
	apply(t, successor, changed)
	if got := writes(); got != all {
		t.Errorf("a new process makes sure: %d applies, want %d", got, all)
	}
}

func TestApplyReturnsTheGeneration(t *testing.T) {
	_, a := newApplier(t)
	deployment := func() manifests.Object { return manifests.Deployment(serving()) }
	first, err := a.Apply(t.Context(), "b", deployment())
	if err != nil {
		t.Fatal(err)
	}
	again, err := a.Apply(t.Context(), "b", deployment())
	if err != nil || first != again {
		t.Errorf("generation %+v at first, %+v when nothing changed (%v)", first, again, err)
	}
}

// Objects of others are never touched, whoever they belong to.
func TestNotOwned(t *testing.T) {
	cases := map[string]struct {
		labels map[string]string
		want   string
	}{
		"nobody's":          {want: "Service ns/metrics-serving-b exists and does not belong to this MetricsBackend: delete it, or hand it over with the label metricsbackend.io/backend=b"},
		"another backend's": {labels: map[string]string{v1alpha1.LabelBackend: "other"}, want: `Service ns/metrics-serving-b belongs to MetricsBackend "other"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c, a := newApplier(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "metrics-serving-b", Labels: tc.labels}})
			for call, err := range map[string]error{
				"Check": a.Check(t.Context(), "b", manifests.Service(serving())),
				"Apply": second(a.Apply(t.Context(), "b", manifests.Service(serving()))),
			} {
				var notOwned *NotOwnedError
				if !errors.As(err, &notOwned) || err.Error() != tc.want {
					t.Errorf("%s: %v, want %s", call, err, tc.want)
				}
			}
			if c.applies != 0 {
				t.Error("it was applied all the same")
			}
			if err := a.Prune(t.Context(), "b", "ns", nil); err != nil || len(c.deletes) > 0 {
				t.Errorf("swept %v, %v", c.deletes, err)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// Someone makes an object of the same name in the moment between the look and the
// apply: kube-apiserver refuses, since a new object is not forced.
func TestApplyDoesNotSeize(t *testing.T) {
	c, a := newApplier(t)
	c.beforeApply = func() {
		c.beforeApply = func() {}
		foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "metrics-serving-b"}}
		foreign.Spec.Selector = map[string]string{"app": "theirs"}
		foreign.Spec.Ports = []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}}
		foreign.Spec.Type = corev1.ServiceTypeNodePort
		if err := c.Create(context.Background(), foreign, client.FieldOwner("someone")); err != nil {
			t.Error(err)
		}
	}
	_, err := a.Apply(t.Context(), "b", manifests.Service(serving()))
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	service := &corev1.Service{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "metrics-serving-b"}, service); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"app": "theirs"}, service.Spec.Selector); diff != "" {
		t.Errorf("their Service was changed:\n%s", diff)
	}
}

// What the cache does not show may still exist.
func TestNotOwnedBehindTheCache(t *testing.T) {
	live := newCluster(t, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "metrics-serving-b"}})
	var notOwned *NotOwnedError
	err := NewApplier(newCluster(t), live, clock.RealClock{}).Check(t.Context(), "b", manifests.Service(serving()))
	if !errors.As(err, &notOwned) {
		t.Errorf("got %v, want that it belongs to someone else", err)
	}
}

func TestSweep(t *testing.T) {
	c, a := newApplier(t)
	before := serving(func(spec *v1alpha1.ServingSpec) { spec.NetworkPolicy = v1alpha1.NetworkPolicyRestricted })
	apply(t, a, before)
	after := serving(func(spec *v1alpha1.ServingSpec) { spec.Replicas = new(int32(1)) })
	apply(t, a, after)
	// What another version of the operator made, and what belongs to others.
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "from-the-future", Labels: map[string]string{v1alpha1.LabelBackend: "b"}}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "another", Labels: map[string]string{v1alpha1.LabelBackend: "other"}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "unlabelled"}},
		&apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: "v9.metrics.k8s.io", Labels: map[string]string{v1alpha1.LabelBackend: "b"}}},
	} {
		if err := c.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Prune(t.Context(), "b", "ns", manifests.All(after)); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PodDisruptionBudget ns/metrics-serving-b", "NetworkPolicy ns/metrics-serving-b", "ClusterRole from-the-future",
	}
	if diff := cmp.Diff(want, c.deletes); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
}

func TestRemoveAll(t *testing.T) {
	c, a := newApplier(t)
	apply(t, a, serving(func(spec *v1alpha1.ServingSpec) { spec.NetworkPolicy = v1alpha1.NetworkPolicyRestricted }))
	found, err := a.RemoveAll(t.Context(), "b", "ns")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"PodDisruptionBudget ns/metrics-serving-b",
		"NetworkPolicy ns/metrics-serving-b",
		"Deployment ns/metrics-serving-b",
		"ResourceQuota ns/metrics-serving-b",
		"RoleBinding ns/metrics-serving-b",
		"RoleBinding kube-system/metrics-serving-b-auth-reader",
		"Role ns/metrics-serving-b",
		"ClusterRoleBinding metrics-serving-b",
		"ClusterRoleBinding metrics-serving-b-auth-delegator",
		"ClusterRoleBinding metrics-serving-b-prober",
		"ClusterRoleBinding metrics-serving-b-scrape",
		"ClusterRole metrics-serving-b",
		"ClusterRole metrics-serving-b-prober",
		"ClusterRole metrics-serving-b-reader",
		"ClusterRole metrics-serving-b-scrape",
		"ServiceAccount ns/metrics-serving-b",
		"ServiceAccount ns/metrics-serving-b-prober",
		"ServiceAccount ns/metrics-serving-b-scrape",
		"Service ns/metrics-serving-b",
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, c.deletes); diff != "" {
		t.Errorf("deleted (-want +got):\n%s", diff)
	}
	if left, err := a.RemoveAll(t.Context(), "b", "ns"); err != nil || len(left) > 0 {
		t.Errorf("left after the second time: %v, %v", left, err)
	}
}

// Of a namespace that is gone, or about to be, only the rest is removed.
func TestRemoveAllOutsideTheNamespace(t *testing.T) {
	_, a := newApplier(t)
	apply(t, a, serving())
	found, err := a.RemoveAll(t.Context(), "b", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range found {
		if strings.Contains(object, " ns/") {
			t.Errorf("%s is in the namespace", object)
		}
	}
	if len(found) != 9 {
		t.Errorf("found %v, want 4 ClusterRoles, 4 ClusterRoleBindings and a RoleBinding", found)
	}
}

// A removal that a finalizer holds up is seen, and not asked for again.
func TestRemoveAllSeesWhatIsHeld(t *testing.T) {
	c, a := newApplier(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "held", Labels: map[string]string{v1alpha1.LabelBackend: "b"}, Finalizers: []string{"example.com/held"},
	}})
	for range 2 {
		found, err := a.RemoveAll(t.Context(), "b", "ns")
		if diff := cmp.Diff([]string{"Secret ns/held"}, found); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if len(c.deletes) != 1 {
		t.Errorf("deleted %v, want once", c.deletes)
	}
}

// An object that changed hands between the look and the deletion stays.
func TestRemoveHonoursPreconditions(t *testing.T) {
	c := newCluster(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "handed-over", UID: "1", Labels: map[string]string{v1alpha1.LabelBackend: "b"},
	}})
	stale := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := inner.List(ctx, list, opts...)
			secrets, ok := list.(*metav1.PartialObjectMetadataList)
			if ok && len(secrets.Items) > 0 && secrets.Items[0].Name == "handed-over" {
				var secret corev1.Secret
				key := client.ObjectKey{Namespace: "ns", Name: "handed-over"}
				if err := inner.Get(ctx, key, &secret); err != nil {
					return err
				}
				secret.Labels = nil
				return errors.Join(err, inner.Update(ctx, &secret))
			}
			return err
		},
	})
	_, err := NewApplier(c, stale, clock.RealClock{}).RemoveAll(t.Context(), "b", "ns")
	if !apierrors.IsConflict(err) {
		t.Errorf("got %v, want a conflict", err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "handed-over"}, &corev1.Secret{}); err != nil {
		t.Errorf("it is gone: %v", err)
	}
}

// Each kind has one informer: what Prototype gives is what lists are made of.
func TestPrototypes(t *testing.T) {
	for _, kind := range Watched() {
		object, list := Prototype(kind.GroupVersionKind), prototypeList(kind.GroupVersionKind)
		_, metadataOnly := object.(*metav1.PartialObjectMetadata)
		_, metadataListOnly := list.(*metav1.PartialObjectMetadataList)
		if metadataOnly != metadataListOnly {
			t.Errorf("%s: object %T, list %T", kind.Kind, object, list)
		}
	}
}

func TestFailuresNameTheObject(t *testing.T) {
	broken := errors.New("broken")
	c := interceptor.NewClient(newCluster(t).WithWatch, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return broken
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error { return broken },
	})
	a := NewApplier(c, c, clock.RealClock{})
	for name, err := range map[string]error{
		"get Service ns/metrics-serving-b":                  second(a.Apply(t.Context(), "b", manifests.Service(serving()))),
		"list each ValidatingAdmissionPolicyBinding":        a.Prune(t.Context(), "b", "ns", nil),
		"list each ValidatingAdmissionPolicyBinding of":     second(a.RemoveAll(t.Context(), "b", "ns")),
		"list each ValidatingAdmissionPolicyBinding of the": a.RemoveAdmission(t.Context(), "b"),
	} {
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want the cause and %q", err, name)
		}
	}
}

// What another manager keeps changing is corrected at once, then less and less often, and it is named.
func TestApplyAgainstAnother(t *testing.T) {
	c, a := newApplier(t)
	key := client.ObjectKey{Namespace: "ns", Name: "metrics-serving-b"}
	start := c.clock.Now()
	// step lets the other one write at that time, and reports whether it was corrected, and who is named.
	step := func(after time.Duration) (bool, string) {
		t.Helper()
		c.clock.SetTime(start.Add(after))
		service := &corev1.Service{}
		if err := c.Get(t.Context(), key, service); err != nil {
			t.Fatal(err)
		}
		service.Spec.Selector[v1alpha1.LabelBackend] = "other"
		if err := c.Update(t.Context(), service, client.FieldOwner("rival")); err != nil {
			t.Fatal(err)
		}
		applied, err := a.Apply(t.Context(), "b", manifests.Service(serving()))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), key, service); err != nil {
			t.Fatal(err)
		}
		return service.Spec.Selector[v1alpha1.LabelBackend] == "b", applied.ChangedBy
	}
	if _, err := a.Apply(t.Context(), "b", manifests.Service(serving())); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		after     time.Duration
		corrected bool
		changedBy string
	}{
		{time.Second, true, ""}, {2 * time.Second, true, "rival"}, {50 * time.Second, false, "rival"},
		{2 * time.Minute, false, "rival"}, {123 * time.Second, true, "rival"}, {5 * time.Minute, false, "rival"},
		// After a long pause, it is as at first.
		{3 * time.Hour, true, ""},
	} {
		if corrected, changedBy := step(tc.after); corrected != tc.corrected || changedBy != tc.changedBy {
			t.Errorf("after %s: corrected %t, changed by %q, want %t and %q", tc.after, corrected, changedBy, tc.corrected, tc.changedBy)
		}
	}
	// A change of what is desired does not wait.
	changed := manifests.Service(serving())
	changed.WithLabels(map[string]string{"new": "label"})
	if _, err := a.Apply(t.Context(), "b", changed); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{}
	if err := c.Get(t.Context(), key, service); err != nil || service.Labels["new"] != "label" {
		t.Errorf("%v, labels %v", err, service.Labels)
	}
}
