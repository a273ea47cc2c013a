// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/testrestmapper"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	clientgoapplyconfigurations "k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/tools/events"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorapplyconfigurations "k8s.io/kube-aggregator/pkg/client/applyconfiguration"
	apiregistrationv1ac "k8s.io/kube-aggregator/pkg/client/applyconfiguration/apiregistration/v1"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

const (
	systemNamespace = "operator-ns"
	backendName     = "cluster"

	imageBoth    = "serving:both"
	imageV1beta1 = "serving:v1beta1-only"
	imageNothing = "serving:nothing"
	// imageFuture serves a version that this operator does not know.
	imageFuture = "serving:future"
)

var (
	v1      = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	v1beta1 = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	v2      = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v2"}

	customV1beta2   = schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}
	customV1beta1   = schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta1"}
	externalV1beta1 = schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}

	testVersions = []schema.GroupVersion{v2, v1, v1beta1, customV1beta2, customV1beta1, externalV1beta1}
)

// fakeCluster is a cluster as the reconciler sees it: a fake API server, and the steps of
// the Deployment controller, kubelets and aggregator. Nothing in it waits.
type fakeCluster struct {
	t *testing.T
	// raw is the API server; server is the same without the memoizing client.
	raw, server client.WithWatch
	memo        *memoClient
	clock       *testingclock.FakeClock

	// discovered follows the registered versions one step later.
	discovered map[schema.GroupVersion]bool
	// discoveryDelay is the number of additional steps until discovery follows; lagging
	// counts them.
	discoveryDelay int
	lagging        map[schema.GroupVersion]int
	// secondDiscovery is that of a second kube-apiserver, which only the test changes, or
	// nil.
	secondDiscovery map[schema.GroupVersion]bool
	// failingRequests returns why a request of the version to a pod fails, or "".
	failingRequests func(*corev1.Pod, schema.GroupVersion) string
	// overloaded pods answer 429 beside what fails.
	overloaded bool
	// withoutGate pods become ready whatever is registered, like old images.
	withoutGate bool
	// unreachable makes the kube-apiservers' own addresses unreachable.
	unreachable bool
	replicas    []*replica
	// failsUntil is when what fails in a test goes on again.
	failsUntil time.Time
	// views are the caches of kube-apiservers, in the explorer's runs alone.
	views []*view
	// other are implementations that someone else runs.
	other otherImplementation
	// blocked: kube-apiservers do not reach our pods. The operator does.
	blocked  bool
	attempts int
	// recheckDelay is how long an unavailable APIService stays so after it moved to our
	// pods: the aggregator is still checking its former Service. moved is when it did.
	recheckDelay time.Duration
	moved        map[schema.GroupVersion]time.Time
	// stale makes all samples too old; refused makes requests fail.
	stale, refused bool
	// unresponsive pods do not answer the operator; silent ones neither, if set.
	unresponsive bool
	silent       func(*corev1.Pod) bool
	// unready pods never become ready, if set.
	unready func(*corev1.Pod) bool
	// failingService is a Service to which requests through kube-apiserver fail, or "".
	failingService string
	// partial is the error that pods return after what they serve, or nil.
	partial error
	// report is what pods report of their kubelets.
	report v1alpha1.KubeletReport
	// sources is what pods report of sources and rules, if anything; with oldSettings for
	// the previous generation.
	sources     *v1alpha1.SourceReport
	oldSettings bool
	// consumers returns a pod's report of clients; nil means an empty one.
	consumers func(*corev1.Pod) (*v1alpha1.ConsumerReport, error)
	// theirs and ours are what another implementation and our pods answer, by path and query.
	theirs, ours map[string]string
	// violation is the first violation of the invariant.
	violation string
	podNumber int
	// terminationSteps is how many steps a deleted pod still answers and is ready;
	// stepsTerminating counts them.
	terminationSteps int
	stepsTerminating map[string]int
	// times are when MetricsBackends were deleted, and the canary API was applied, by name.
	times map[string]metav1.Time
	certs *certs
	// gatedUntil is when a pod that was not ready may become so, by name.
	gatedUntil map[string]time.Time
}

type replica struct {
	address string
	// lags: its cache does not follow. down: it cannot be reached.
	lags, down bool
}

func newFakeCluster(t *testing.T, objects ...client.Object) *fakeCluster {
	t.Helper()
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}, objectsRole())
	fc := &fakeCluster{
		times:            map[string]metav1.Time{},
		t:                t,
		clock:            testingclock.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)),
		discovered:       map[schema.GroupVersion]bool{},
		lagging:          map[schema.GroupVersion]int{},
		stepsTerminating: map[string]int{},
		certs:            newCerts(),
		gatedUntil:       map[string]time.Time{},
		moved:            map[schema.GroupVersion]time.Time{},
		report:           v1alpha1.KubeletReport{Nodes: 3, Healthy: 3},
		replicas:         []*replica{{address: "192.0.2.1:6443"}, {address: "192.0.2.2:6443"}},
	}
	fc.start(objects)
	return fc
}

// objectsRole is installed with the operator.
func objectsRole() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: manifests.ObjectsRole}}
}

// start creates the API server.
func (fc *fakeCluster) start(objects []client.Object) {
	fc.t.Helper()
	known, err := testSchema()
	fc.must(err)
	fc.server = fc.withTimes(fake.NewClientBuilder().
		WithScheme(known.kinds).
		WithRESTMapper(known.mapper).
		WithTypeConverters(known.converters...).
		WithStatusSubresource(&v1alpha1.MetricsBackend{}, &apiregistrationv1.APIService{}).
		WithReturnManagedFields().
		WithObjects(objects...).
		Build())
	fc.memo = newMemoClient()
	fc.raw = fc.memo.wrap(withGenerations(fc.server))
}

// withTimes has MetricsBackends deleted, and the canary API created, at the time of the cluster's clock: a fake client takes
// the machine's, or none.
func (fc *fakeCluster) withTimes(c client.WithWatch) client.WithWatch {
	set := func(o client.Object) {
		at, known := fc.times[o.GetName()]
		switch {
		case !known:
		case o.GetName() == manifests.CanaryAPIServiceName:
			o.SetCreationTimestamp(at)
		case o.GetDeletionTimestamp() != nil:
			o.SetDeletionTimestamp(&at)
		}
	}
	now := func(name string) { fc.times[name] = metav1.NewTime(fc.clock.Now()).Rfc3339Copy() }
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if b, ok := o.(*v1alpha1.MetricsBackend); ok {
				set(b)
			}
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, l, opts...)
			switch l := l.(type) {
			case *v1alpha1.MetricsBackendList:
				for i := range l.Items {
					set(&l.Items[i])
				}
			case *apiregistrationv1.APIServiceList:
				for i := range l.Items {
					set(&l.Items[i])
				}
			}
			return err
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if _, ok := o.(*v1alpha1.MetricsBackend); ok {
				now(o.GetName())
			}
			return c.Delete(ctx, o, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			if o, ok := o.(*apiregistrationv1ac.APIServiceApplyConfiguration); ok && *o.Name == manifests.CanaryAPIServiceName {
				now(*o.Name)
			}
			return c.Apply(ctx, o, opts...)
		},
	})
}

// testKinds are only the kinds that the operator uses: a fake client goes through all of
// them at each write.
func testKinds() map[schema.GroupVersion][]runtime.Object {
	return map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion: {
			&corev1.Namespace{}, &corev1.NamespaceList{}, &corev1.Pod{}, &corev1.PodList{}, &corev1.Secret{}, &corev1.SecretList{},
			&corev1.Service{}, &corev1.ServiceList{}, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{},
			&corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.ResourceQuota{}, &corev1.ResourceQuotaList{},
		},
		appsv1.SchemeGroupVersion: {&appsv1.Deployment{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSet{}, &appsv1.ReplicaSetList{}},
		rbacv1.SchemeGroupVersion: {
			&rbacv1.Role{}, &rbacv1.RoleList{}, &rbacv1.RoleBinding{}, &rbacv1.RoleBindingList{},
			&rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{},
		},
		policyv1.SchemeGroupVersion:          {&policyv1.PodDisruptionBudget{}, &policyv1.PodDisruptionBudgetList{}},
		networkingv1.SchemeGroupVersion:      {&networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicyList{}},
		autoscalingv2.SchemeGroupVersion:     {&autoscalingv2.HorizontalPodAutoscaler{}, &autoscalingv2.HorizontalPodAutoscalerList{}},
		coordinationv1.SchemeGroupVersion:    {&coordinationv1.Lease{}, &coordinationv1.LeaseList{}},
		discoveryv1.SchemeGroupVersion:       {&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
		authenticationv1.SchemeGroupVersion:  {&authenticationv1.TokenRequest{}},
		apiregistrationv1.SchemeGroupVersion: {&apiregistrationv1.APIService{}, &apiregistrationv1.APIServiceList{}},
		admissionregistrationv1.SchemeGroupVersion: {
			&admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyList{},
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{},
		},
		v1alpha1.GroupVersion: {
			&v1alpha1.MetricsBackend{}, &v1alpha1.MetricsBackendList{},
			&v1alpha1.ExternalMetricsPolicy{}, &v1alpha1.ExternalMetricsPolicyList{},
		},
	}
}

// testSchema is created once: it takes long.
var testSchema = sync.OnceValues(func() (*schemas, error) {
	kinds := runtime.NewScheme()
	for gv, objects := range testKinds() {
		kinds.AddKnownTypes(gv, objects...)
		metav1.AddToGroupVersion(kinds, gv)
	}
	kinds.AddKnownTypeWithName(manifests.CertificateKind, &unstructured.Unstructured{})
	kinds.AddKnownTypeWithName(manifests.CertificateKind.GroupVersion().WithKind("CertificateList"), &unstructured.UnstructuredList{})
	return &schemas{kinds, testrestmapper.TestOnlyStaticRESTMapper(kinds), []managedfields.TypeConverter{
		clientgoapplyconfigurations.NewTypeConverter(kinds),
		aggregatorapplyconfigurations.NewTypeConverter(kinds),
		managedfields.NewDeducedTypeConverter(),
	}}, nil
})

type schemas struct {
	kinds      *runtime.Scheme
	mapper     meta.RESTMapper
	converters []managedfields.TypeConverter
}

func newBackend(change ...func(*v1alpha1.MetricsBackendSpec)) *v1alpha1.MetricsBackend {
	backend := &v1alpha1.MetricsBackend{ObjectMeta: metav1.ObjectMeta{
		Name: backendName, UID: "uid-" + backendName, Generation: 1,
		CreationTimestamp: metav1.NewTime(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)),
	}}
	backend.Spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{}
	for _, c := range change {
		c(&backend.Spec)
	}
	return backend
}

// reconciler returns a new process that calls through funcs.
func (fc *fakeCluster) reconciler(funcs ...interceptor.Funcs) *Reconciler {
	c := fc.raw
	for _, f := range funcs {
		c = interceptor.NewClient(c, f)
	}
	return New(Options{
		Client: c, APIReader: c, Events: events.NewFakeRecorder(10_000),
		Pods: fc, Aggregator: fc, Clock: fc.clock,
		Namespace: systemNamespace, Namespaces: []string{systemNamespace, "other-ns"},
		ServingImage: imageBoth,
	})
}

func reconcileOnce(t *testing.T, r *Reconciler) (ctrl.Result, error) {
	t.Helper()
	return r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: backendName}})
}

func (fc *fakeCluster) pods() []corev1.Pod {
	var list corev1.PodList
	fc.list(&list)
	return list.Items
}

// apiServices returns those with a backend's label, or that point to its pods.
func (fc *fakeCluster) apiServices() []apiregistrationv1.APIService {
	var list apiregistrationv1.APIServiceList
	fc.list(&list)
	return slices.DeleteFunc(list.Items, func(s apiregistrationv1.APIService) bool {
		toUs := s.Spec.Service != nil && s.Spec.Service.Name == "metrics-serving-"+backendName
		return s.Labels[v1alpha1.LabelBackend] == "" && !toUs
	})
}

func (fc *fakeCluster) isRegistered(gv schema.GroupVersion) bool {
	return slices.ContainsFunc(fc.apiServices(), func(s apiregistrationv1.APIService) bool { return s.Name == apiServiceName(gv) })
}

// checkInvariant records a version in discovery that a ready pod does not serve.
func (fc *fakeCluster) checkInvariant(when string) {
	fc.checkOther(when)
	fc.checkTrust(when)
	pods := fc.pods()
	for _, gv := range testVersions {
		if !fc.discovered[gv] && !fc.secondDiscovery[gv] && !fc.isRegistered(gv) || !fc.mayReachPods(gv) {
			continue
		}
		for _, p := range pods {
			if isReady(&p) && !serves(&p, gv) && fc.mayReachPod(gv, &p) && fc.violation == "" {
				fc.violation = fmt.Sprintf("%s: %s is in discovery, ready pod %s (%s) does not serve it", when, gv, p.Name, p.Spec.Containers[0].Image)
			}
		}
	}
}

func (fc *fakeCluster) must(err error) {
	fc.t.Helper()
	if err != nil {
		fc.t.Fatal(err)
	}
}

func (fc *fakeCluster) backend() *v1alpha1.MetricsBackend {
	fc.t.Helper()
	backend := &v1alpha1.MetricsBackend{}
	fc.get(client.ObjectKey{Name: backendName}, backend)
	return backend
}

func (fc *fakeCluster) condition(kind string) metav1.Condition {
	fc.t.Helper()
	return ptr.Deref(meta.FindStatusCondition(fc.backend().Status.Conditions, kind), metav1.Condition{})
}

// change changes the spec and increments the generation.
func (fc *fakeCluster) change(change func(*v1alpha1.MetricsBackendSpec)) {
	fc.t.Helper()
	backend := fc.backend()
	change(&backend.Spec)
	backend.Generation++
	fc.update(backend)
}

func (fc *fakeCluster) isReady() bool {
	backend := fc.backend()
	ready := meta.FindStatusCondition(backend.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == backend.Generation
}

// reconcileRounds reconciles n times, with a step of the cluster after each.
func (fc *fakeCluster) reconcileRounds(r *Reconciler, n int) {
	fc.t.Helper()
	for range n {
		mustReconcile(fc.t, r)
		fc.checkInvariant("after a reconciliation")
		fc.step()
	}
}

// maxRounds is far above what any scenario takes.
const maxRounds = 1000

// reconcileUntil reconciles and steps until done.
func (fc *fakeCluster) reconcileUntil(r *Reconciler, done func() bool) {
	fc.t.Helper()
	var last error
	for range maxRounds {
		if done() {
			if fc.violation != "" {
				fc.t.Errorf("invariant broken: %s", fc.violation)
			}
			if fc.certs.violation != "" {
				fc.t.Errorf("trust broken: %s", fc.certs.violation)
			}
			return
		}
		_, last = reconcileOnce(fc.t, r)
		fc.checkInvariant("after a reconciliation")
		fc.step()
	}
	fc.t.Fatalf("not settled, last error %v, conditions:\n%s", last, fc.show())
}

func (fc *fakeCluster) show() string {
	backend := &v1alpha1.MetricsBackend{}
	if err := fc.raw.Get(context.Background(), client.ObjectKey{Name: backendName}, backend); err != nil {
		return err.Error()
	}
	return showStatus(backend)
}

func showStatus(backend *v1alpha1.MetricsBackend) string {
	out := ""
	for _, c := range backend.Status.Conditions {
		out += fmt.Sprintf("%s=%s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
	}
	for _, s := range backend.Status.APIServices {
		out += fmt.Sprintf("%s %s: %s\n", s.Name, s.State, s.Message)
	}
	return out
}

func becomeReadyWith(fc *fakeCluster, image string) {
	fc.reconcileUntil(fc.operator(image), func() bool { return fc.isReady() || fc.reportsNotServed() })
}

// operator returns a reconciler of a release with that default image.
func (fc *fakeCluster) operator(image string, funcs ...interceptor.Funcs) *Reconciler {
	r := fc.reconciler(funcs...)
	r.ServingImage = cmp.Or(image, imageBoth)
	return r
}
