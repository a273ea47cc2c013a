// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/test/freeport"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
)

// binaries is the folder of what tests build, which goes with the process.
var binaries string

// operatorBinary is built by the first test that needs it.
var operatorBinary = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(binaries, "operator")
	cmd := exec.Command("go", "build", "-o", binary, "../../../cmd/operator")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cmd/operator: %w\n%s", err, out)
	}
	return binary, nil
})

func buildOperator(t *testing.T) string {
	t.Helper()
	binary, err := operatorBinary()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// The binary becomes leader, answers probes, serves its metrics to authorized users, logs JSON, and releases its Lease on
// SIGTERM.
func TestBinary(t *testing.T) {
	suite := take(t)
	binary := buildOperator(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content, err := suite.operator.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	metrics, health := freeport.Address(t), freeport.Address(t)
	cmd := exec.Command(binary, "--kubeconfig="+kubeconfig, "--metrics-bind-address="+metrics,
		"--health-probe-bind-address="+health, "--namespaces="+systemNamespace+","+otherNamespace, "--logging-format=json")
	cmd.Env = append(suite.environment(), "POD_NAMESPACE="+systemNamespace, "SERVING_IMAGE="+imageBoth)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	from := len(auditEvents(t, suite))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()

	for _, path := range []string{"/healthz", "/readyz"} {
		outcome.Eventually(t, patience, path, func(ctx context.Context) error {
			code, _, err := fetch(ctx, "http://"+health+path, "")
			if err != nil || code != http.StatusOK {
				return fmt.Errorf("%d, %v", code, err)
			}
			return nil
		})
	}
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: systemNamespace, Name: "metrics-backend-operator.metricsbackend.io"}
	outcome.Eventually(t, patience, "it leads", func(ctx context.Context) error {
		if err := suite.admin.Get(ctx, key, lease); err != nil {
			return err
		}
		if ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
			return fmt.Errorf("the Lease has no holder")
		}
		return nil
	})

	mustKubectl(t, suite, "create", "serviceaccount", "reader", "-n", systemNamespace)
	mustKubectl(t, suite, "create", "serviceaccount", "stranger", "-n", systemNamespace)
	mustKubectl(t, suite, "create", "clusterrolebinding", "reader", "--clusterrole=metrics-backend-operator-metrics-reader", "--serviceaccount="+systemNamespace+":reader")
	t.Cleanup(func() {
		_, _ = kubectl(suite, "delete", "serviceaccounts", "reader", "stranger", "-n", systemNamespace)
		_, _ = kubectl(suite, "delete", "clusterrolebinding", "reader")
		_, _ = kubectl(suite, "delete", "leases", "--all", "-n", systemNamespace)
	})
	// It listens once it has made a certificate for itself, which nothing waits for.
	outcome.Eventually(t, patience, "/metrics listens", func(ctx context.Context) error {
		_, _, err := fetch(ctx, "https://"+metrics+"/metrics", "")
		return err
	})
	for account, want := range map[string]int{"": http.StatusUnauthorized, "stranger": http.StatusForbidden, "reader": http.StatusOK} {
		bearer := ""
		if account != "" {
			bearer = strings.TrimSpace(mustKubectl(t, suite, "create", "token", account, "-n", systemNamespace))
		}
		// kube-apiserver's authorizer hears of a new binding a moment later.
		outcome.Eventually(t, patience, "/metrics answers "+account, func(ctx context.Context) error {
			code, body, err := fetch(ctx, "https://"+metrics+"/metrics", bearer)
			if err != nil {
				return err
			}
			if code != want {
				return fmt.Errorf("%d, want %d", code, want)
			}
			if code == http.StatusOK && !strings.Contains(body, "controller_runtime_active_workers") {
				return fmt.Errorf("it lacks controller-runtime's: %.300s", body)
			}
			return nil
		})
	}
	if code, _, err := fetch(t.Context(), "http://"+metrics+"/metrics", ""); err == nil && code == http.StatusOK {
		t.Error("/metrics without TLS")
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("after SIGTERM: %v\n%s", err, log.String())
		}
	case <-time.After(patience):
		outcome.Deadlinef(t, "it has not ended within %s of SIGTERM", patience)
	}
	if err := suite.admin.Get(t.Context(), key, lease); err != nil || ptr.Deref(lease.Spec.HolderIdentity, "") != "" {
		t.Errorf("the Lease is still held by %q (%v)", ptr.Deref(lease.Spec.HolderIdentity, ""), err)
	}
	for _, line := range strings.Split(strings.TrimSpace(log.String()), "\n") {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("logged, and not as JSON: %s", line)
		}
	}
	needed := map[string]bool{
		"create leases": false, "get leases": false, "update leases": false,
		"create tokenreviews": false, "create subjectaccessreviews": false, "create events": false,
	}
	for _, e := range auditEvents(t, suite)[from:] {
		if e.ResponseStatus.Code == http.StatusForbidden {
			t.Errorf("refused: %s %s: %s", e.Verb, e.RequestURI, e.ResponseStatus.Message)
		}
		if _, ok := needed[e.Verb+" "+e.ObjectRef.Resource]; ok {
			needed[e.Verb+" "+e.ObjectRef.Resource] = true
		}
	}
	for right, used := range needed {
		if !used {
			t.Errorf("granted and not used: %s", right)
		}
	}
}

func fetch(ctx context.Context, url, token string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // self-signed, and on loopback
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// A command line or environment that cannot work is refused at once, and says
// what to do.
func TestBinaryRefuses(t *testing.T) {
	t.Parallel()
	binary := buildOperator(t)
	good := []string{"POD_NAMESPACE=ns", "SERVING_IMAGE=image"}
	cases := map[string]struct {
		env, args []string
		want      string
	}{
		"no namespace":           {env: []string{"SERVING_IMAGE=image"}, want: "POD_NAMESPACE is not set"},
		"no image":               {env: []string{"POD_NAMESPACE=ns"}, want: "--serving-image (or the environment variable SERVING_IMAGE) must name the image"},
		"malformed namespace":    {env: good, args: []string{"--namespaces=a,B_c"}, want: `B_c\" is not a namespace`},
		"unknown flag":           {env: good, args: []string{"--colour=blue"}, want: "unknown flag: --colour"},
		"an argument":            {env: good, args: []string{"now"}, want: `unknown command "now"`},
		"kubeconfig is missing":  {env: good, args: []string{"--kubeconfig=/does/not/exist"}, want: "find kube-apiserver"},
		"unknown logging format": {env: good, args: []string{"--logging-format=xml"}, want: "xml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, binary, tc.args...)
			cmd.Env = tc.env
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v, want a failure with %q:\n%s", err, tc.want, out)
			}
			if strings.Contains(string(out), "goroutine ") {
				t.Errorf("it panicked:\n%s", out)
			}
		})
	}
}
