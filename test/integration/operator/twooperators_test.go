// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/installation"
)

// secondNamespace is that of a second operator.
const secondNamespace = "metrics-backend-second"

// A second operator in another namespace, with the rights of an installation, changes nothing of a ready MetricsBackend,
// also when that is deleted, and both say so.
func TestTwoOperators(t *testing.T) {
	suite := take(t)
	second := installSecond(t, suite)
	createBackend(t, suite, newBackend("cluster"))
	waitReady(t, suite, "cluster")
	renewFirstLease(t, suite)
	flips := startFlipCount(t, suite)

	second.start(t, suite)
	waitCondition(t, suite, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonOtherInstallation)
	// Each change wakes both.
	for _, replicas := range []int32{3, 1, 2} {
		changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Replicas = ptr.To(replicas) })
		waitCondition(t, suite, "cluster", v1alpha1.ConditionServingReady, metav1.ConditionTrue, "")
		waitCondition(t, suite, "cluster", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonOtherInstallation)
	}
	if got := flips.all(); len(got) != 1 {
		t.Errorf("the subjects of ClusterRoleBinding metrics-serving-cluster were %v, one after the other", got)
	}
	deleteBackend(t, suite, "cluster")
	if got := second.writes(); len(got) != 1 || got[0] != "PATCH /apis/metricsbackend.io/v1alpha1/metricsbackends/cluster/status" {
		t.Errorf("writes of the second operator: %v", got)
	}
}

// secondOperator is an operator in secondNamespace.
type secondOperator struct {
	// account is its ServiceAccount, NAMESPACE:NAME.
	account string
	config  *rest.Config
	stopped <-chan struct{}
	ctx     context.Context

	mu      sync.Mutex
	written []string
}

// installSecond gives the account the rights that config/rbac would. The operator ends with the test.
func installSecond(t *testing.T, suite *controlPlane) *secondOperator {
	t.Helper()
	s := &secondOperator{account: secondNamespace + ":metrics-backend-operator"}
	subject := "--serviceaccount=" + s.account
	for _, args := range [][]string{
		{"create", "namespace", secondNamespace},
		{"apply", "--server-side", "-n", secondNamespace, "-k", "config/rbac/serving-namespace"},
		// It is for the suite's operator.
		{"delete", "rolebinding", "metrics-backend-operator-serving", "-n", secondNamespace},
		{"create", "rolebinding", "second", "-n", secondNamespace, "--role=metrics-backend-operator-serving", subject},
		{"create", "role", "second-leader", "-n", secondNamespace, "--verb=create,get,update", "--resource=leases.coordination.k8s.io"},
		{"create", "rolebinding", "second-leader", "-n", secondNamespace, "--role=second-leader", subject},
		{"create", "clusterrolebinding", "second", "--clusterrole=metrics-backend-operator", subject},
		{"create", "rolebinding", "second", "-n", "kube-system", "--role=metrics-backend-operator", subject},
		{"create", "rolebinding", "second", "-n", "default", "--role=metrics-backend-operator", subject},
	} {
		mustKubectl(t, suite, args...)
	}
	user, err := suite.env.AddUser(envtest.User{
		Name:   "system:serviceaccount:" + s.account,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + secondNamespace},
	}, &rest.Config{QPS: 50, Burst: 100})
	if err != nil {
		t.Fatal(err)
	}
	s.config = user.Config()
	s.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return countedWrites{s, next} })
	ctx, cancel := context.WithCancel(context.Background())
	s.ctx = ctx
	t.Cleanup(func() {
		cancel()
		if s.stopped != nil {
			<-s.stopped
		}
		_, _ = kubectl(suite, "delete", "clusterrolebinding", "second")
		for _, namespace := range []string{"kube-system", "default"} {
			_, _ = kubectl(suite, "delete", "rolebinding", "second", "-n", namespace, "--ignore-not-found")
		}
	})
	return s
}

func (s *secondOperator) start(t *testing.T, suite *controlPlane) {
	t.Helper()
	stopped, err := suite.startOperator(s.ctx, s.config, []string{secondNamespace}, ctrl.Options{
		LeaderElection: true, LeaderElectionID: installation.LeaseName, LeaderElectionNamespace: secondNamespace,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.stopped = stopped
}

// writes returns the requests that changed anything but Leases and events.
func (s *secondOperator) writes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.written...)
}

// countedWrites passes requests on.
type countedWrites struct {
	operator *secondOperator
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (c countedWrites) RoundTrip(request *http.Request) (*http.Response, error) {
	path := request.URL.Path
	if request.Method != http.MethodGet && !strings.Contains(path, "/leases") && !strings.Contains(path, "/events") {
		c.operator.mu.Lock()
		c.operator.written = append(c.operator.written, request.Method+" "+path)
		c.operator.mu.Unlock()
	}
	return c.next.RoundTrip(request)
}

// renewFirstLease renews the Lease of the suite's operator, which elects no leader.
func renewFirstLease(t *testing.T, suite *controlPlane) {
	t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: installation.LeaseName}}
	if err := suite.admin.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var renewed sync.WaitGroup
	renewed.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
			_ = suite.admin.Patch(ctx, lease.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
		}, 2*time.Second)
	})
	t.Cleanup(func() {
		cancel()
		renewed.Wait()
		_, _ = kubectl(suite, "delete", "lease", installation.LeaseName, "-n", systemNamespace)
	})
}

// flipCount is which namespaces the subjects of a ClusterRoleBinding were of.
type flipCount struct {
	mu   sync.Mutex
	seen []string
}

func startFlipCount(t *testing.T, suite *controlPlane) *flipCount {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	watcher, err := suite.admin.Watch(ctx, &rbacv1.ClusterRoleBindingList{}, client.MatchingLabels{v1alpha1.LabelBackend: "cluster"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watcher.Stop)
	f := &flipCount{}
	go func() {
		for event := range watcher.ResultChan() {
			binding, ok := event.Object.(*rbacv1.ClusterRoleBinding)
			if !ok || binding.Name != "metrics-serving-cluster" || event.Type == "DELETED" {
				continue
			}
			var namespaces []string
			for _, subject := range binding.Subjects {
				namespaces = append(namespaces, subject.Namespace)
			}
			f.add(strings.Join(namespaces, " "))
		}
	}()
	return f
}

func (f *flipCount) add(namespaces string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.seen) == 0 || f.seen[len(f.seen)-1] != namespaces {
		f.seen = append(f.seen, namespaces)
	}
}

func (f *flipCount) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.seen...)
}
