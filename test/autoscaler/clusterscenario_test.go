// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package autoscaler

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	metricsclient "k8s.io/metrics/pkg/client/clientset/versioned"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// clusterScenario is a namespace of a real cluster in which the cluster's own HPA controller may change nothing.
type clusterScenario struct {
	t      *testing.T
	name   string // of everything there is one of
	config *rest.Config
	core   kubernetes.Interface
}

// newClusterScenario takes the cluster of KUBECONFIG, which has resource metrics and the image of test/cluster that burns CPU.
func newClusterScenario(t *testing.T) *clusterScenario {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatalf("KUBECONFIG must be for a cluster: %v", err)
	}
	config.QPS, config.Burst = 100, 200
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &clusterScenario{t: t, name: "autoscaler-by-watch", config: config, core: core}
	s.clear()
	t.Cleanup(s.clear)
	s.create()
	return s
}

// as is another user's configuration.
func (s *clusterScenario) as(user string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Impersonate.UserName = user
	return config
}

// controllerConfig has the rights of the stock controller, and no others.
func (s *clusterScenario) controllerConfig() *rest.Config {
	return s.as("system:serviceaccount:" + s.name + ":autoscaler")
}

// run runs parts until the test is over, and waits for their end.
func (s *clusterScenario) run(parts ...func(context.Context)) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() { part(ctx) })
	}
	s.t.Cleanup(func() { cancel(); running.Wait() })
}

// workloads calls do for each pair, and waits for gap between two.
func (s *clusterScenario) workloads(gap time.Duration, do func(names ...string)) {
	ticker := time.NewTicker(gap)
	defer ticker.Stop()
	for i := range pairs {
		do(workload("watch", i), workload("poll", i))
		<-ticker.C
	}
}

func workload(way string, i int) string { return fmt.Sprintf("%s-%d", way, i) }

// deploy makes the workloads, and returns when each has a data point of a time in which it was ready all along: the
// controller takes no others.
func (s *clusterScenario) deploy() {
	s.workloads(time.Millisecond, func(names ...string) {
		for _, name := range names {
			if _, err := s.core.AppsV1().Deployments(s.name).Create(s.t.Context(), deployment(name), metav1.CreateOptions{}); err != nil {
				s.t.Fatal(err)
			}
		}
	})
	metrics, err := metricsclient.NewForConfig(s.config)
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("each pod has metrics", func(ctx context.Context) error {
		pods, err := s.core.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		list, err := metrics.MetricsV1().PodMetricses(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		began := map[string]time.Time{}
		for _, point := range list.Items {
			began[point.Name] = point.Timestamp.Add(-point.Window.Duration)
		}
		if len(pods.Items) != 2*pairs {
			return fmt.Errorf("%d pods, want %d", len(pods.Items), 2*pairs)
		}
		for _, pod := range pods.Items {
			if ready := readySince(&pod); ready.IsZero() || began[pod.Name].Before(ready) {
				return fmt.Errorf("pod %s: ready since %v, metrics from %v on", pod.Name, ready, began[pod.Name])
			}
		}
		return nil
	})
}

func readySince(pod *corev1.Pod) time.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			return condition.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// load has the workloads burn CPU, pair by pair, and returns when each began to.
func (s *clusterScenario) load(gap time.Duration) map[string]time.Time {
	began := map[string]time.Time{}
	var mu sync.Mutex
	s.workloads(gap, func(names ...string) {
		var both sync.WaitGroup
		for _, name := range names {
			both.Go(func() {
				at, err := s.burn(name)
				mu.Lock()
				defer mu.Unlock()
				if began[name] = at; err != nil {
					s.t.Errorf("load on %s: %v", name, err)
				}
			})
		}
		both.Wait()
	})
	if s.t.Failed() {
		s.t.FailNow()
	}
	return began
}

// burn starts a second process beside the idle one in a pod's container. It says a line when it begins.
func (s *clusterScenario) burn(name string) (time.Time, error) {
	ctx := s.t.Context()
	pods, err := s.core.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil || len(pods.Items) != 1 {
		return time.Time{}, fmt.Errorf("%d pods: %w", len(pods.Items), err)
	}
	request := s.core.CoreV1().RESTClient().Post().Namespace(s.name).Resource("pods").Name(pods.Items[0].Name).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Command: []string{"/burn", fmt.Sprintf("--millicores=%d", loadMillicores)}, Stdout: true,
		}, scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(s.config, "GET", request.URL().String())
	if err != nil {
		return time.Time{}, err
	}
	reader, writer := io.Pipe()
	// It ends with the pod, or with the test.
	go func() {
		_ = writer.CloseWithError(executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: writer}))
	}()
	if _, err := bufio.NewReader(reader).ReadString('\n'); err != nil {
		return time.Time{}, err
	}
	return time.Now(), nil
}

// clear removes what this or a former run has left.
func (s *clusterScenario) clear() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 2*time.Minute)
	defer cancel()
	admission := s.core.AdmissionregistrationV1()
	for what, remove := range map[string]func(context.Context, string, metav1.DeleteOptions) error{
		"namespace":      s.core.CoreV1().Namespaces().Delete,
		"role binding":   s.core.RbacV1().ClusterRoleBindings().Delete,
		"policy":         admission.ValidatingAdmissionPolicies().Delete,
		"policy binding": admission.ValidatingAdmissionPolicyBindings().Delete,
	} {
		if err := remove(ctx, s.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.t.Errorf("remove the %s: %v", what, err)
		}
	}
	if err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := s.core.CoreV1().Namespaces().Get(ctx, s.name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	}); err != nil {
		s.t.Errorf("the namespace %s does not go: %v", s.name, err)
	}
}

// eventually waits until check returns nil.
func (s *clusterScenario) eventually(what string, check func(context.Context) error) {
	s.t.Helper()
	outcome.Eventually(s.t, 4*time.Minute, what, check)
}
