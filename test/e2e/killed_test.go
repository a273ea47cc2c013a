// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// The serving process of one pod after the other is killed hard: the kubelet
// starts it again, and the backend is Ready without a hand.
func TestServingProcessKilled(t *testing.T) {
	requireBackend(t)
	waitServing(t, 2)
	load := startTraffic(t, trafficPaths...)
	for _, name := range readyPods(t.Context(), t) {
		killContainer(t, name)
		waitServing(t, 2)
	}
	waitReady(t)
	// Requests that the dead process held, and those sent there until its
	// endpoint was gone, are lost: docs/tasks/operations.md, "Losing a pod".
	total, failures := load.result()
	t.Logf("%d requests while both processes were killed, %d failed", total, len(failures))
	if len(failures) > total/10 {
		outcome.Unsafe(t, "more than a tenth of the requests failed, so the other pod did not carry on: %s", strings.Join(failures, "\n"))
	}
}

// killContainer sends SIGKILL to the process of a pod's only container, and
// waits until the kubelet has started another.
func killContainer(t *testing.T, pod string) {
	t.Helper()
	id, restarts, err := container(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := findProcess(id)
	if err != nil {
		t.Fatalf("find the process of pod %s: %v", pod, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill process %d of pod %s: %v", pid, pod, err)
	}
	outcome.Eventually(t, time.Minute, "the kubelet starts the container again", func(ctx context.Context) error {
		_, now, err := container(ctx, pod)
		if err == nil && now <= restarts {
			err = fmt.Errorf("%d restarts", now)
		}
		return err
	})
}

// container returns the ID and the number of restarts of a pod's container.
func container(ctx context.Context, pod string) (id string, restarts int32, err error) {
	p, err := suite.core.CoreV1().Pods(namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return "", 0, fmt.Errorf("get pod %s: %w", pod, err)
	}
	if len(p.Status.ContainerStatuses) != 1 {
		return "", 0, fmt.Errorf("pod %s has the containers %+v", pod, p.Status.ContainerStatuses)
	}
	status := p.Status.ContainerStatuses[0]
	_, id, _ = strings.Cut(status.ContainerID, "://")
	return id, status.RestartCount, nil
}

// findProcess finds the process in the cgroup of a container.
func findProcess(container string) (int, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range files {
		cgroups, err := os.ReadFile(file)
		if err != nil {
			continue // It has ended meanwhile.
		}
		if container != "" && strings.Contains(string(cgroups), container) {
			return strconv.Atoi(filepath.Base(filepath.Dir(file)))
		}
	}
	return 0, fmt.Errorf("no process of container %q on this machine", container)
}
