// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/metricsbackend/metrics-backend-operator/plugin/connection"
	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
	"github.com/metricsbackend/metrics-backend-operator/test/plugincluster"
)

// runPlugin runs a command line against a kubeconfig.
func runPlugin(t *testing.T, kubeconfig string, args ...string) (code int, out, errs string) {
	t.Helper()
	t.Setenv("KUBECONFIG", kubeconfig)
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), args, genericiooptions.IOStreams{In: strings.NewReader(""), Out: &stdout, ErrOut: &stderr})
	return code, stdout.String(), stderr.String()
}

// kubeconfig points to a server.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelp(t *testing.T) {
	for _, command := range []string{"", "adopt", "explain", "import", "import prometheus-adapter", "preflight", "release", "status", "top", "verify", "wait"} {
		t.Run("kubectl metrics-backend "+command, func(t *testing.T) {
			code, out, errs := runPlugin(t, os.DevNull, strings.Fields(command+" --help")...)
			if code != output.OK || errs != "" {
				t.Fatalf("exit code %d, stderr %s", code, errs)
			}
			text := out
			if command == "" { // what kubectl's own flags say changes with Kubernetes
				var flags string
				text, flags, _ = strings.Cut(out, "\nFlags:")
				if !strings.Contains(flags, "--kubeconfig") || !strings.Contains(flags, "-v, --v") {
					t.Errorf("flags:%s", flags)
				}
			}
			plugincluster.Golden(t, "help-"+strings.ReplaceAll(command, " ", "-")+".txt", text)
		})
	}
}

func TestCommandLine(t *testing.T) {
	world := plugincluster.Healthy(plugincluster.Authority(t, plugincluster.Now.AddDate(10, 0, 0)))
	// A client of the command line has a real clock, and learns the cluster's time.
	healthy := kubeconfig(t, plugincluster.Start(t, world).Config.Host)
	stale := plugincluster.Healthy(nil)
	stale.Backends = nil
	rollback := kubeconfig(t, plugincluster.Start(t, stale).Config.Host)

	others := plugincluster.Healthy(nil)
	others.ServeOthers()
	metrics := kubeconfig(t, plugincluster.Start(t, others).Config.Host)

	unregistered := plugincluster.MetricsServer()
	unregistered.Unregister("v1beta1")
	nothing := kubeconfig(t, plugincluster.Start(t, unregistered).Config.Host)

	cases := map[string]struct {
		kubeconfig string
		args       []string
		code       int
		out, errs  string
	}{
		"status": {kubeconfig: healthy, args: []string{"status"}, out: "MetricsBackend cluster  Ready\n"},
		"status of a context": {
			kubeconfig: nothing, args: []string{"status", "--context=c"}, out: "next: kubectl get pods -A -l app.kubernetes.io/name=metrics-backend-operator --context=c\n",
		},
		"verify":            {kubeconfig: healthy, args: []string{"verify"}, out: "22 passed\n"},
		"wait":              {kubeconfig: healthy, args: []string{"wait"}, out: "metricsbackend/cluster has Ready=True\n"},
		"verify a rollback": {kubeconfig: rollback, args: []string{"verify", "--expect", "v1beta1"}, code: output.NotMet, out: "FAIL  apiservice-stale "},
		"verify of a context": {
			kubeconfig: rollback, args: []string{"verify", "--expect=v1beta1", "--context=c"}, code: output.NotMet,
			out: "      next: kubectl metrics-backend status cluster --context=c\n",
		},
		"verify as JSON": {
			kubeconfig: rollback, args: []string{"verify", "--expect=v1beta1", "--context=c", "-o=json"}, code: output.NotMet,
			out: `"command": "kubectl metrics-backend status cluster --context=c"`,
		},
		"verify as YAML": {
			kubeconfig: rollback, args: []string{"verify", "--expect=v1beta1", "--context=c", "-o=yaml"}, code: output.NotMet,
			out: "- command: kubectl metrics-backend status cluster --context=c\n",
		},
		"preflight":                       {kubeconfig: healthy, args: []string{"preflight"}, code: output.NotMet, out: "FAIL  serving-reachable "},
		"preflight of what verify checks": {kubeconfig: healthy, args: []string{"preflight", "--skip=hpa-active"}, code: output.NotRun, errs: "known: serving-reachable, nothing-lost\n"},
		"verify as JUnit": {
			kubeconfig: rollback, args: []string{"verify", "--expect=v1beta1", "--context=c", "-o=junit"}, code: output.NotMet,
			out: "waits for&#xA;next: kubectl metrics-backend status cluster --context=c</failure>",
		},
		"wait once":                {kubeconfig: rollback, args: []string{"wait", "--for=versions=none", "--timeout=0s"}, code: output.NotMet, errs: "error: metrics.k8s.io with no version not reached within 0s\n"},
		"top of what is neither":   {kubeconfig: healthy, args: []string{"top", "deployments"}, code: output.NotRun, errs: "error: \"deployments\": there are metrics of nodes and of pods only\n"},
		"top nodes":                {kubeconfig: healthy, args: []string{"top", "nodes", "--no-headers"}, out: "node-a "},
		"adopt what nobody serves": {kubeconfig: healthy, args: []string{"adopt", "custom"}, code: output.NotMet, errs: "error: nobody serves custom.metrics.k8s.io: "},
		"release of nobody":        {kubeconfig: healthy, args: []string{"release", "custom"}, code: output.NotMet, errs: "error: no MetricsBackend has taken custom.metrics.k8s.io over from another implementation: nobody gets it back\n"},
		"adopt without a group":    {kubeconfig: healthy, args: []string{"adopt", "--yes"}, code: output.NotRun, errs: "error: accepts 1 arg(s), received 0\n"},
		"adopt CPU and memory":     {kubeconfig: healthy, args: []string{"adopt", "resource"}, code: output.NotRun, errs: "error: invalid argument \"resource\" for \"kubectl metrics-backend adopt\"\n"},
		"negative timeout":         {kubeconfig: healthy, args: []string{"wait", "--timeout=-1s"}, code: output.NotRun, errs: "error: --timeout must not be negative\n"},
		"unknown flag":             {kubeconfig: healthy, args: []string{"verify", "--expekt", "v1"}, code: output.NotRun, errs: "error: unknown flag: --expekt\n"},
		"unknown command":          {kubeconfig: healthy, args: []string{"tip"}, code: output.NotRun, errs: `error: unknown command "tip" for "kubectl metrics-backend"`},
		"no kubeconfig":            {kubeconfig: "/does/not/exist", args: []string{"verify"}, code: output.NotRun, errs: "error: "},
		"kube-apiserver is down": {
			kubeconfig: kubeconfig(t, "http://127.0.0.1:1"), args: []string{"verify"}, code: output.NotRun,
			errs: "error: list MetricsBackends: ",
		},
		"completion of backends":     {kubeconfig: healthy, args: []string{"__complete", "status", ""}, out: "cluster\n:4\n", errs: "Completion ended"},
		"completion of checks":       {kubeconfig: healthy, args: []string{"__complete", "verify", "--skip", ""}, out: "hpa-active\n", errs: "Completion ended"},
		"completion when down":       {kubeconfig: kubeconfig(t, "http://127.0.0.1:1"), args: []string{"__complete", "status", ""}, out: ":4\n", errs: "Completion ended"},
		"completion of namespaces":   {kubeconfig: healthy, args: []string{"__complete", "top", "pods", "-n", ""}, out: "default\n:4\n", errs: "Completion ended"},
		"completion of what to show": {kubeconfig: healthy, args: []string{"__complete", "top", ""}, out: "nodes\npods\n:4\n", errs: "Completion ended"},
		"completion of nodes":        {kubeconfig: healthy, args: []string{"__complete", "top", "nodes", ""}, out: "node-a\nnode-b\n:4\n", errs: "Completion ended"},
		"completion of pods":         {kubeconfig: healthy, args: []string{"__complete", "top", "pods", "-n", "default", ""}, out: "web-0\n:4\n", errs: "Completion ended"},
		"completion of metrics":      {kubeconfig: metrics, args: []string{"__complete", "explain", ""}, out: "hits\nlatency\nqueue_depth\n:4\n", errs: "Completion ended"},
		"version":                    {kubeconfig: healthy, args: []string{"version"}, out: connection.Version() + "\n"},
		"version, as a flag":         {kubeconfig: healthy, args: []string{"--version"}, out: "kubectl metrics-backend version v"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			code, out, errs := runPlugin(t, tc.kubeconfig, tc.args...)
			if code != tc.code || !strings.Contains(out, tc.out) || !strings.Contains(errs, tc.errs) || (tc.errs == "" && errs != "") {
				t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", code, tc.code, out, errs)
			}
		})
	}
}
