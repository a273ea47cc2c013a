// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package sourceclient

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// proxiesIn has, in the process that TestProxies starts, the URLs to print the proxies of.
const proxiesIn = "TEST_PROXIES_OF"

// Sources are asked through the proxies of the environment, which a process reads once.
func TestProxies(t *testing.T) {
	if urls := os.Getenv(proxiesIn); urls != "" {
		printProxies(t, strings.Fields(urls))
		return
	}
	const proxy = "http://proxy.example:3128"
	want := map[string]string{
		"https://prometheus.example/api/v1/query": proxy,
		"https://thanos.monitoring.svc:9090/":     "none",
		"https://10.96.0.1/":                      "none",
		"https://10.97.0.1/":                      proxy,
		"http://prometheus.example/":              "none",
		"https://127.0.0.1:9090/":                 "none",
	}
	var urls []string
	for u := range want {
		urls = append(urls, u)
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxies$", "-test.v")
	c.Env = append(os.Environ(), proxiesIn+"="+strings.Join(urls, " "), "HTTPS_PROXY="+proxy, "NO_PROXY=.svc,10.96.0.0/16", "HTTP_PROXY=", "http_proxy=", "https_proxy=", "no_proxy=")
	output, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(output)) {
		if u, through, ok := strings.Cut(strings.TrimSpace(line), " through "); ok {
			got[u] = through
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("proxies (-want +got):\n%s", diff)
	}
}

// printProxies prints the proxies of URLs to the standard output.
func printProxies(t *testing.T, urls []string) {
	t.Helper()
	transport, err := newTransport(&Spec{}, &credentials{}, &Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range urls {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
		if err != nil {
			t.Fatal(err)
		}
		through, err := transport.Proxy(r)
		if err != nil {
			t.Fatal(err)
		}
		text := "none"
		if through != nil {
			text = through.String()
		}
		_, _ = os.Stdout.WriteString(u + " through " + text + "\n")
	}
}
