// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

var (
	metricsV1       = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1"}
	metricsV1beta1  = schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}
	customV1beta2   = schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta2"}
	customV1beta1   = schema.GroupVersion{Group: "custom.metrics.k8s.io", Version: "v1beta1"}
	externalV1beta1 = schema.GroupVersion{Group: "external.metrics.k8s.io", Version: "v1beta1"}
)

// allFlags returns the flags of options.
func allFlags(o *Options) *pflag.FlagSet {
	fs := pflag.NewFlagSet("serving", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		fs.AddFlagSet(set)
	}
	return fs
}

func parsedOptions(t *testing.T, args ...string) *Options {
	t.Helper()
	o := NewOptions()
	if err := allFlags(o).Parse(args); err != nil {
		t.Fatalf("parse %q: %v", args, err)
	}
	return o
}

func TestOptionsValidate(t *testing.T) {
	tests := map[string]struct {
		args []string
		// wantErr lists what the error must mention; empty for valid.
		wantErr []string
	}{
		"nothing":                {},
		"in the cluster":         {args: []string{"--backend=cluster", "--service-namespace=metrics", "--service-name=cluster", "--serving-ca-file=/ca.crt"}},
		"alone":                  {args: []string{"--backend-file=backend.yaml", "--kubeconfig=k", "--secure-port=4443", "--cert-dir=/tmp/x"}},
		"both origins":           {args: []string{"--backend=cluster", "--backend-file=backend.yaml"}, wantErr: []string{"--backend and --backend-file exclude each other"}},
		"a Service without name": {args: []string{"--service-namespace=metrics"}, wantErr: []string{"--service-name and --service-namespace must be given together"}},
		"a negative timeout":     {args: []string{"--rates-timeout=-1s"}, wantErr: []string{"--rates-timeout"}},
		"no port":                {args: []string{"--secure-port=0"}, wantErr: []string{"--secure-port"}},
		"several mistakes": {
			args:    []string{"--secure-port=70000", "--service-name=x", "--shutdown-delay-duration=-1s"},
			wantErr: []string{"--secure-port", "--service-namespace", "--shutdown-delay-duration"},
		},
		"an unknown version": {args: []string{"--runtime-config=metrics.k8s.io/v2=true"}, wantErr: []string{"metrics.k8s.io/v2 is not known here"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := parsedOptions(t, tc.args...).Validate()
			if len(tc.wantErr) == 0 {
				if err != nil {
					t.Fatalf("Validate: %v", err)
				}
				return
			}
			if err == nil {
				t.Fatalf("no error, want one that mentions %q", tc.wantErr)
			}
			for _, part := range tc.wantErr {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q does not mention %q", err, part)
				}
			}
		})
	}
}

func TestEnabledVersions(t *testing.T) {
	values := []schema.GroupVersion{customV1beta1, customV1beta2, externalV1beta1}
	with := func(versions ...schema.GroupVersion) []schema.GroupVersion {
		return append(slices.Clone(values), versions...)
	}
	tests := map[string]struct {
		config  string
		want    []schema.GroupVersion
		wantErr string
	}{
		"default":                    {want: with(metricsV1, metricsV1beta1)},
		"v1 out":                     {config: "metrics.k8s.io/v1=false", want: with(metricsV1beta1)},
		"v1beta1 out":                {config: "metrics.k8s.io/v1beta1=false", want: with(metricsV1)},
		"custom v1beta1 out":         {config: "custom.metrics.k8s.io/v1beta1=false", want: []schema.GroupVersion{customV1beta2, externalV1beta1, metricsV1, metricsV1beta1}},
		"betas out":                  {config: "api/beta=false", want: []schema.GroupVersion{metricsV1}},
		"all out but one":            {config: "api/all=false,metrics.k8s.io/v1=true", want: []schema.GroupVersion{metricsV1}},
		"all out":                    {config: "api/all=false", wantErr: "nothing would be served"},
		"a resource":                 {config: "metrics.k8s.io/v1/pods=false", wantErr: "only whole versions"},
		"an unknown version":         {config: "metrics.k8s.io/v3=true", wantErr: "is not known here"},
		"a value that is no boolean": {config: "metrics.k8s.io/v1=maybe", wantErr: "maybe"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var args []string
			if tc.config != "" {
				args = []string{"--runtime-config=" + tc.config}
			}
			enabled, err := parsedOptions(t, args...).enabledVersions()
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want one that mentions %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatalf("enabledVersions: %v", err)
			}
			got := enabled.UnsortedList()
			slices.SortFunc(got, func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("enabled (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUsualFlags guards the names on which manifests and runbooks rely.
func TestUsualFlags(t *testing.T) {
	fs := allFlags(parsedOptions(t))
	defaults := map[string]string{
		"secure-port": "10443", "bind-address": "0.0.0.0", "cert-dir": "", "tls-cert-file": "", "tls-private-key-file": "",
		"http2-max-streams-per-connection": "250", "kubeconfig": "", "authentication-kubeconfig": "", "authorization-kubeconfig": "",
		"audit-policy-file": "", "audit-log-path": "", "runtime-config": "", "feature-gates": "", "v": "0", "logging-format": "text",
		"shutdown-delay-duration": "10s", "shutdown-send-retry-after": "false", "shutdown-watch-termination-grace-period": "10s",
		"min-request-timeout": "1800", "request-timeout": "1m0s", "max-requests-inflight": "400", "rates-timeout": "1m30s",
		"backend": "", "backend-file": "", "service-namespace": "", "service-name": "", "serving-ca-file": "", "kubelet-ca-file": "",
	}
	for name, want := range defaults {
		switch flag := fs.Lookup(name); {
		case flag == nil:
			t.Errorf("there is no flag --%s", name)
		case flag.DefValue != want && flag.DefValue != "["+want+"]":
			t.Errorf("the default of --%s is %q, want %q", name, flag.DefValue, want)
		}
	}
	for _, name := range []string{"enable-priority-and-fairness", "etcd-servers", "enable-admission-plugins"} {
		if fs.Lookup(name) != nil {
			t.Errorf("there is a flag --%s, which would do nothing", name)
		}
	}
}

func TestGateDefaults(t *testing.T) {
	o := parsedOptions(t)
	if err := o.registry.Set(); err != nil {
		t.Fatalf("set feature gates: %v", err)
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.WatchListCompression) {
		t.Error("WatchListCompression is on: an event would be compressed once per watcher")
	}
	// A gate that became default in 1.16 is off when gates are read at the
	// version of this binary instead of that of the libraries.
	if !utilfeature.DefaultFeatureGate.Enabled(features.APIResponseCompression) {
		t.Error("APIResponseCompression is off: feature gates are not read at the libraries' version")
	}
}

func TestScrapeAccount(t *testing.T) {
	tests := map[string]struct {
		value string
		want  types.NamespacedName
		valid bool
	}{
		"none":             {valid: true},
		"an account":       {value: "ns/scrape", want: types.NamespacedName{Namespace: "ns", Name: "scrape"}, valid: true},
		"no namespace":     {value: "scrape"},
		"no name":          {value: "ns/"},
		"too many slashes": {value: "a/b/c"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv(v1alpha1.ScrapeAccountVariable, tc.value)
			o := parsedOptions(t)
			got, err := o.scrapeAccount()
			if got != tc.want || (err == nil) != tc.valid {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
			if err := o.Validate(); (err == nil) != tc.valid {
				t.Errorf("Validate: %v", err)
			}
		})
	}
}
