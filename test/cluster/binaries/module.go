// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// makeModule makes a module that builds another version of Kubernetes, such as v1.31.4: the go.mod of that release,
// whose libraries are not those of folders beside it, but of the same release, v0.31.4. Its sums are those of the
// release; the go command adds those of the libraries, verified by the checksum database.
func makeModule(ctx context.Context, folder, kubernetes string) error {
	out, err := goOutput(ctx, "", "mod", "download", "-json", "k8s.io/kubernetes@"+kubernetes)
	if err != nil {
		return err
	}
	var release struct{ Dir string }
	if err := json.Unmarshal(out, &release); err != nil {
		return fmt.Errorf("reading where Kubernetes %s was downloaded to: %w", kubernetes, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the module of Kubernetes %s: %w", kubernetes, err)
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(release.Dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, name), content, 0o644)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("making the module of Kubernetes %s: %w", kubernetes, err)
		}
	}
	out, err = goOutput(ctx, folder, "mod", "edit", "-json")
	if err != nil {
		return err
	}
	edit, err := edits(out, kubernetes)
	if err != nil {
		return err
	}
	if _, err := goOutput(ctx, folder, append([]string{"mod", "edit"}, edit...)...); err != nil {
		return err
	}
	packages := make([]string, 0, len(tools))
	for _, t := range tools {
		if !t.isEtcd() {
			packages = append(packages, t.pkg)
		}
	}
	// The go command adds to go.mod and go.sum only with this flag.
	_, err = goOutput(ctx, folder, append([]string{"list", "-mod=mod", "-deps"}, packages...)...)
	return err
}

// edits returns what go mod edit changes in the release's go.mod, which is given as go mod edit -json prints it.
func edits(goMod []byte, kubernetes string) ([]string, error) {
	var file struct {
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal(goMod, &file); err != nil {
		return nil, fmt.Errorf("reading go.mod of Kubernetes %s: %w", kubernetes, err)
	}
	edit := []string{"-module=" + modulePath + "/kubernetes", "-require=k8s.io/kubernetes@" + kubernetes}
	for _, replaced := range file.Replace {
		if strings.HasPrefix(replaced.New.Path, "./staging/") {
			edit = append(edit, "-replace="+replaced.Old.Path+"="+replaced.Old.Path+"@"+strings.Replace(kubernetes, "v1.", "v0.", 1))
		}
	}
	return edit, nil
}
