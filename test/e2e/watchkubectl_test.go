// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/delivery"
)

// kubectlWatches are commands whose lines are compared with what is polled. The
// first four print Tables; the others each event's type and the resourceVersion.
var kubectlWatches = map[string]struct {
	resource  string
	namespace string // all, if empty
	args      []string
	events    bool
}{
	"pods v1":             {resource: "pods", args: []string{"pods.v1.metrics.k8s.io", "-A"}},
	"nodes v1":            {resource: "nodes", args: []string{"nodes.v1.metrics.k8s.io"}},
	"pods v1beta1":        {resource: "pods", args: []string{"pods.v1beta1.metrics.k8s.io", "-A"}},
	"nodes v1beta1":       {resource: "nodes", args: []string{"nodes.v1beta1.metrics.k8s.io"}},
	"events of pods":      {resource: "pods", args: []string{"pods.v1.metrics.k8s.io", "-A"}, events: true},
	"events of nodes":     {resource: "nodes", args: []string{"nodes.v1beta1.metrics.k8s.io"}, events: true},
	"events of one node":  {resource: "nodes", args: []string{"nodes.v1.metrics.k8s.io", "-l", "kubernetes.io/os=linux"}, events: true},
	"pods of a namespace": {resource: "pods", namespace: namespace, args: []string{"pods.metrics.k8s.io", "-n", namespace}, events: true},
}

// eventLine prints what of a point is not in a Table.
const eventLine = `jsonpath={.type} {.object.metadata.namespace} {.object.metadata.name} {.object.metadata.resourceVersion}{"\n"}`

// watchByKubectl holds `kubectl get --watch` through the aggregator for the watch window: no
// gap, no error, and no end but ours.
func watchByKubectl(t *testing.T, p *polls) {
	for name, watch := range kubectlWatches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"get", "--watch"}, watch.args...)
			s := &stream{resource: watch.resource, Stream: delivery.Stream{Identify: delivery.ByCells}}
			if watch.events {
				args, s.Identify = append(args, "--output-watch-events", "-o", eventLine), delivery.ByVersion
			}
			if watch.namespace != "" {
				s.In = watch.namespace + "/"
			}
			holdKubectl(t, args, func(line string) {
				words := strings.Fields(line)
				switch {
				case !watch.events && (words[0] == "NAME" || words[0] == "NAMESPACE"):
					// The header comes once.
				case !watch.events:
					s.add(strings.Join(words, " "))
				case words[0] != "ADDED":
					t.Errorf("an event other than ADDED: %s", line)
				default:
					s.add(strings.Join(words[1:len(words)-1], "/") + " " + words[len(words)-1])
				}
			})
			p.judge(t, s)
		})
	}
}

// holdKubectl runs kubectl for watchWindow, and fails if it ends before or complains.
func holdKubectl(t *testing.T, args []string, line func(string)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), watchWindow(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, "kubectl", args...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+t.TempDir())
	cmd.WaitDelay = 10 * time.Second
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	printed := bufio.NewReader(out)
	for {
		// The last line may be the half of one: kubectl is killed when its time is over.
		text, err := printed.ReadString('\n')
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, io.EOF) {
				t.Errorf("read what kubectl prints: %v", err)
			}
			break
		}
		if strings.TrimSpace(text) != "" {
			line(strings.TrimSuffix(text, "\n"))
		}
	}
	ended := cmd.Wait()
	if ctx.Err() == nil {
		t.Errorf("kubectl %s ended before its time: %v", strings.Join(args, " "), ended)
	}
	if complaints.Len() > 0 {
		t.Errorf("kubectl %s: %s", strings.Join(args, " "), complaints.String())
	}
}
