// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/servingcert"
	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/runbooks"
)

// program builds a command of test/ that runs the packages of another project, and returns its binary.
func program(t *testing.T, suite *controlPlane, name string) string {
	t.Helper()
	cmd := exec.Command("hack/build-program.sh", name)
	cmd.Dir, cmd.Stderr = suite.root, os.Stderr
	folder, err := cmd.Output()
	if err != nil {
		t.Fatalf("build %s: %v", name, err)
	}
	return filepath.Join(strings.TrimSpace(string(folder)), name)
}

// startCertManager installs cert-manager's CRDs and runs its controllers until the test ends.
func startCertManager(t *testing.T, suite *controlPlane) {
	t.Helper()
	binary := program(t, suite, "cert-manager")
	out, err := command(suite, "go", "-C", "test/cert-manager", "mod", "download", "-json", "github.com/cert-manager/cert-manager")
	if err != nil {
		t.Fatalf("find cert-manager's module: %v: %s", err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &module); err != nil {
		t.Fatal(err)
	}
	crds := filepath.Join(module.Dir, "deploy", "crds")
	mustKubectl(t, suite, "apply", "--server-side", "-f", crds)
	t.Cleanup(func() {
		if out, err := kubectl(suite, "delete", "-f", crds); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	mustKubectl(t, suite, "wait", "--for=condition=Established", "--timeout=60s", "-f", crds)
	if out, err := kubectl(suite, "create", "namespace", "cert-manager"); err != nil && !strings.Contains(out, "AlreadyExists") {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(binary, "--kubeconfig="+suite.kubeconfig)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("cert-manager: %v\n%s", err, log.String())
		}
	})
}

// certManagerPage is the first YAML block of docs/tasks/certificates.md with cert-manager's objects.
func certManagerPage(t *testing.T, suite *controlPlane) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(suite.root, "docs", "tasks", "certificates.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := runbooks.YAMLBlocks(string(page))
	if err != nil {
		t.Fatalf("docs/tasks/certificates.md: %v", err)
	}
	for _, block := range blocks {
		if strings.Contains(block, "kind: ClusterIssuer\n") {
			return block
		}
	}
	t.Fatal("docs/tasks/certificates.md has no YAML with a ClusterIssuer")
	return ""
}

// moreIssuers are a chain below another root, and one that signs each certificate with its own key.
const moreIssuers = `
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: other-root, namespace: cert-manager}
spec:
  isCA: true
  commonName: other-root
  secretName: other-root
  issuerRef: {name: self-signed, kind: ClusterIssuer}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: other-root}
spec:
  ca: {secretName: other-root}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: other-intermediate, namespace: cert-manager}
spec:
  isCA: true
  commonName: other-intermediate
  secretName: other-intermediate
  issuerRef: {name: other-root, kind: ClusterIssuer}
---
apiVersion: cert-manager.io/v1
kind: ClusterIssuer
metadata: {name: other-intermediate}
spec:
  ca: {secretName: other-intermediate}
`

// renew does what cmctl renew does.
func renew(t *testing.T, suite *controlPlane, namespace, name string) {
	t.Helper()
	mustKubectl(t, suite, "patch", "certificate", name, "-n", namespace, "--subresource=status", "--type=json", "-p",
		`[{"op":"add","path":"/status/conditions/-","value":{"type":"Issuing","status":"True","reason":"ManuallyTriggered",`+
			`"message":"Certificate re-issuance manually triggered","lastTransitionTime":"`+time.Now().UTC().Format(time.RFC3339)+`"}}]`)
}

// servingPods are the names of the serving pods.
func servingPods(t *testing.T, suite *controlPlane, backend string) []string {
	t.Helper()
	var pods []string
	for _, pod := range getBackend(t, suite, backend).Status.Serving.Pods {
		pods = append(pods, pod.Name)
	}
	slices.Sort(pods)
	return pods
}

func secretData(ctx context.Context, suite *controlPlane, namespace, name string) (map[string][]byte, error) {
	secret := &corev1.Secret{}
	err := suite.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	return secret.Data, err
}

// servedLeaf is the first certificate of what pods mount.
func servedLeaf(ctx context.Context, suite *controlPlane, name string) ([]byte, error) {
	data, err := secretData(ctx, suite, systemNamespace, "metrics-serving-"+name+"-tls")
	if err != nil {
		return nil, err
	}
	chain := servingcert.ParseBundle(data[v1alpha1.SecretKeyCertificate])
	if len(chain) == 0 {
		return nil, fmt.Errorf("no certificate is mounted")
	}
	return chain[0].Raw, nil
}

// waitLongLived waits until a certificate of cert-manager's default duration is served.
func waitLongLived(t *testing.T, suite *controlPlane) {
	t.Helper()
	outcome.Eventually(t, patience, "a certificate of the default duration is served", func(context.Context) error {
		ends := getBackend(t, suite, "cluster").Status.Serving.CertificateNotAfter
		if ends == nil || time.Until(ends.Time) < 24*time.Hour {
			return fmt.Errorf("it ends at %s", ends)
		}
		return nil
	})
}

// cert-manager's own controllers issue the certificate that docs/tasks/certificates.md asks for, renew it before it expires, and
// issue it from another CA, from an intermediate, and from an issuer that has no CA. No request fails, and no APIService
// has a caBundle that does not verify what pods serve.
func TestCertManagerControllers(t *testing.T) {
	suite := take(t)
	startCertManager(t, suite)
	applyYAML(t, suite, certManagerPage(t, suite))
	t.Cleanup(func() { deleteBackend(t, suite, "cluster") })
	waitReady(t, suite, "cluster")
	ca, err := secretData(t.Context(), suite, "cert-manager", "internal-ca")
	if err != nil {
		t.Fatal(err)
	}
	if got := trusted(t, suite); !got.Equal(servingcert.ParseBundle(ca[v1alpha1.SecretKeyCertificate])) {
		t.Errorf("clients trust %d CAs, want the one of the issuer", len(got))
	}
	suite.pods.behave(t, behaviour{secretDelay: 2 * time.Second})
	pods := servingPods(t, suite, "cluster")
	load := startRequests(t, suite, "v1", "v1beta1")
	served := startCertificateCheck(t, suite, "cluster")

	t.Log("renewals before expiry, 10 s after each issuance")
	former := trusted(t, suite)
	mustKubectl(t, suite, "patch", "certificate", "metrics-serving-cluster", "-n", systemNamespace, "--type=merge", "--field-manager=test",
		"-p", `{"spec":{"duration":"1h","renewBefore":"59m50s"}}`)
	// The duration is used from the next certificate on.
	renew(t, suite, systemNamespace, "metrics-serving-cluster")
	leaves := map[string]bool{}
	outcome.Eventually(t, 2*patience, "three certificates are served one after another", func(ctx context.Context) error {
		leaf, err := servedLeaf(ctx, suite, "cluster")
		if err != nil {
			return err
		}
		leaves[string(leaf)] = true
		if now := trusted(t, suite); !now.Equal(former) {
			t.Fatalf("a renewal by the same CA changed what clients trust: %d CAs", len(now))
		}
		if len(leaves) < 4 { // the first one is from before
			return fmt.Errorf("%d certificates: %s", len(leaves), show(getBackend(t, suite, "cluster")))
		}
		return nil
	})
	mustKubectl(t, suite, "patch", "certificate", "metrics-serving-cluster", "-n", systemNamespace, "--type=merge", "--field-manager=test",
		"-p", `{"spec":{"duration":null,"renewBefore":null}}`)
	renew(t, suite, systemNamespace, "metrics-serving-cluster")
	waitLongLived(t, suite)
	waitReady(t, suite, "cluster")

	t.Log("the issuer's CA is replaced")
	renew(t, suite, "cert-manager", "internal-ca")
	outcome.Eventually(t, patience, "the CA is another", func(ctx context.Context) error {
		next, err := secretData(ctx, suite, "cert-manager", "internal-ca")
		if err == nil && bytes.Equal(next[v1alpha1.SecretKeyCertificate], ca[v1alpha1.SecretKeyCertificate]) {
			err = fmt.Errorf("it is still the first one")
		}
		return err
	})
	former = trusted(t, suite)
	renew(t, suite, systemNamespace, "metrics-serving-cluster")
	waitTrusted(t, suite, "cluster", former)

	issuer := func(name string) {
		changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) {
			spec.Serving.Certificates.CertManager.IssuerRef.Name = name
		})
	}
	t.Log("an intermediate below another root")
	applyYAML(t, suite, moreIssuers)
	former = trusted(t, suite)
	issuer("other-intermediate")
	waitTrusted(t, suite, "cluster", former)
	issued, err := secretData(t.Context(), suite, systemNamespace, "metrics-serving-cluster-issued")
	if err != nil {
		t.Fatal(err)
	}
	if chain := servingcert.ParseBundle(issued[v1alpha1.SecretKeyCertificate]); len(chain) != 2 || chain[1].Subject.CommonName != "other-intermediate" {
		t.Errorf("tls.crt has %d certificates, want the intermediate too", len(chain))
	}
	if now := trusted(t, suite); now[0].Subject.CommonName != "other-root" {
		t.Errorf("clients trust %s", now[0].Subject)
	}

	t.Log("an issuer without a CA: each certificate is its own")
	for change := range 2 {
		former = trusted(t, suite)
		if change == 0 {
			issuer("self-signed")
		} else {
			renew(t, suite, systemNamespace, "metrics-serving-cluster")
		}
		waitTrusted(t, suite, "cluster", former)
	}

	t.Log("managed again")
	former = trusted(t, suite)
	changeBackend(t, suite, "cluster", func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Certificates = v1alpha1.CertificatesSpec{} })
	waitTrusted(t, suite, "cluster", former)
	served.stop(t)
	load.stop(t)
	if diff := cmp.Diff(pods, servingPods(t, suite, "cluster")); diff != "" {
		t.Errorf("pods were replaced (-before +now):\n%s", diff)
	}
	outcome.Eventually(t, patience, "nothing of cert-manager is left", func(ctx context.Context) error {
		certificate := unstructuredOf(map[string]any{"apiVersion": "cert-manager.io/v1", "kind": "Certificate"})
		err := suite.admin.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "metrics-serving-cluster"}, certificate)
		_, secretErr := secretData(ctx, suite, systemNamespace, "metrics-serving-cluster-issued")
		if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(secretErr) {
			return fmt.Errorf("the Certificate: %v, its Secret: %v", err, secretErr)
		}
		return nil
	})
}
