// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/metricsbackend/metrics-backend-operator/test/fleet"
)

func TestFlags(t *testing.T) {
	f, err := parse(strings.Fields("--nodes 7 --pods-per-node 3 --containers-per-pod 1 --period 20s --seed 9 --swap used --churn-move 2 --duration 1m"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Nodes != 7 || f.PodsPerNode != 3 || f.ContainersPerPod != 1 || f.Period != 20*time.Second || f.Seed != 9 ||
		f.Swap != fleet.SwapUsed || f.churn != (fleet.Churn{Move: 2}) || f.duration != time.Minute {
		t.Errorf("flags became %+v", f)
	}
	for arguments, want := range map[string]string{
		"nodes=3":                      `unexpected argument "nodes=3"`,
		"--node 3":                     "unknown flag: --node",
		"--churn-every 0s":             "must be positive",
		"--signing-ca-file /no/such":   "loading the CA",
		"--period often":               "invalid argument",
		"--swap idle --pods-per-node=": "invalid argument",
	} {
		if _, err := parse(strings.Fields(arguments)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q in it", arguments, err, want)
		}
	}
}

func TestRunServesUntilTheEnd(t *testing.T) {
	caFile := filepath.Join(t.TempDir(), "ca.crt")
	f, err := parse([]string{"--nodes", "3", "--ca-file", caFile})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	var out bytes.Buffer
	if err := run(ctx, f, &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"00:00  3 kubelets listen, the first at https://127.0.0.1:", "control endpoint: http://127.0.0.1:"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("printed %q, want %q in it", out.String(), want)
		}
	}
	if _, err := cert.CertsFromFile(caFile); err != nil {
		t.Errorf("the CA's file: %v", err)
	}
}

func TestRunSaysWhatIsWrong(t *testing.T) {
	folder := t.TempDir()
	broken := filepath.Join(folder, "kubeconfig")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ arguments, want string }{
		"no such folder for the CA": {"--ca-file " + folder + "/no/ca", "writing the CA"},
		"a broken kubeconfig":       {"--kubeconfig " + broken, "reading the kubeconfig"},
		"an open control endpoint":  {"--control 0.0.0.0:0", "must be on loopback"},
		"a wrong option":            {"--swap much", `swap "much"`},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse(append(strings.Fields(test.arguments), "--nodes=1"))
			if err != nil {
				t.Fatal(err)
			}
			if err := run(t.Context(), f, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestControlEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	address, err := control(ctx, "127.0.0.1:0", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.Get("http://" + address.String())
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	stop()
	for err == nil { // until the server has closed
		if response, err = http.Get("http://" + address.String()); err == nil {
			_ = response.Body.Close()
		}
	}
}
