//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"

	"sigs.k8s.io/controller-runtime/pkg/log"
)

// assetsVariable names the folder with kube-apiserver, etcd and kubectl.
const assetsVariable = "KUBEBUILDER_ASSETS"

// releaseFlags stamp a version as hack/ldflags.sh does for a release. It is far
// below any Kubernetes version, at which feature gates must not be read.
const releaseFlags = "-X k8s.io/component-base/version.gitVersion=v0.1.0" +
	" -X k8s.io/component-base/version.gitMajor= -X k8s.io/component-base/version.gitMinor="

var (
	// assets is the value of assetsVariable.
	assets string
	// servingBinary is the component under test.
	servingBinary string
	// cluster is the control plane that tests share.
	cluster *controlPlane
)

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	assets = os.Getenv(assetsVariable)
	if assets == "" {
		fmt.Fprintf(os.Stderr, "%s is not set: it names the folder with kube-apiserver, etcd and kubectl.\n"+
			"`make test-integration` builds them and sets it; by hand:\n"+
			"  export %s=$(go -C test/cluster run . binaries kube-apiserver etcd kubectl)\n", assetsVariable, assetsVariable)
		return 1
	}
	log.SetLogger(logr.Discard())
	folder, err := os.MkdirTemp("", "serving-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a folder for the test:", err)
		return 1
	}
	defer os.RemoveAll(folder)

	servingBinary = filepath.Join(folder, "serving")
	build := exec.Command("go", "build", "-ldflags", releaseFlags, "-o", servingBinary, "../../../cmd/serving")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "build cmd/serving:", err)
		return 1
	}
	// Both take some seconds, the control plane most of them to wait.
	cluster, err = startControlPlane(filepath.Join(folder, "control-plane"))
	built := build.Wait()
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the control plane:", err)
		return 1
	}
	defer func() {
		if err := cluster.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop the control plane:", err)
		}
	}()
	if built != nil {
		fmt.Fprintln(os.Stderr, "build cmd/serving:", built)
		return 1
	}
	return m.Run()
}
