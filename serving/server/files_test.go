// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	genericoptions "k8s.io/apiserver/pkg/server/options"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// TestServingCertificate: the files of a volume are followed, as a kubelet replaces them, and the pair is replaced when
// both files are valid.
func TestServingCertificate(t *testing.T) {
	volume := t.TempDir()
	generation := func(name, certificate, key string) string {
		folder := filepath.Join(volume, name)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		if certificate != "" {
			write(t, filepath.Join(folder, "tls.crt"), certificate)
		}
		write(t, filepath.Join(folder, "tls.key"), key)
		return name
	}
	pair := func(name string) (certificate, key string) {
		c, k, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(c), string(k)
	}
	firstCertificate, firstKey := pair("first")
	secondCertificate, secondKey := pair("second")
	first, second := generation("1", firstCertificate, firstKey), generation("2", secondCertificate, secondKey)
	mismatched, missing, junk := generation("3", secondCertificate, firstKey), generation("4", "", firstKey), generation("5", "junk", "junk")
	link := filepath.Join(volume, "..data")
	show := func(generation string) {
		if err := os.Symlink(generation, link+".new"); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link+".new", link); err != nil {
			t.Fatal(err)
		}
	}
	show(first)
	files := genericoptions.CertKey{CertFile: filepath.Join(link, "tls.crt"), KeyFile: filepath.Join(link, "tls.key")}
	served, err := newServingCertificate(files, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	var changes notifications
	served.AddListener(&changes)
	synctest.Test(t, func(t *testing.T) {
		runUntilEnd(t, func(ctx context.Context) { served.Run(ctx, 1) })
		for _, step := range []struct {
			generation, certificate, key string
			changes                      notifications
		}{
			{first, firstCertificate, firstKey, 0},
			{mismatched, firstCertificate, firstKey, 0},
			{missing, firstCertificate, firstKey, 0},
			{junk, firstCertificate, firstKey, 0},
			{first, firstCertificate, firstKey, 0},
			{second, secondCertificate, secondKey, 1},
			{second, secondCertificate, secondKey, 1},
			{first, firstCertificate, firstKey, 2},
		} {
			show(step.generation)
			time.Sleep(filesPeriod)
			synctest.Wait()
			certificate, key := served.CurrentCertKeyContent()
			if diff := cmp.Diff([]string{step.certificate, step.key}, []string{string(certificate), string(key)}); diff != "" {
				t.Errorf("generation %s (-want +got):\n%s", step.generation, diff)
			}
			if changes != step.changes {
				t.Errorf("generation %s: %d changes, want %d", step.generation, changes, step.changes)
			}
		}
	})
}

func TestServingCertificateAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tls.pem")
	write(t, file, "junk")
	for name, files := range map[string]genericoptions.CertKey{
		"one file":          {CertFile: file},
		"a file is missing": {CertFile: file, KeyFile: file + ".missing"},
		"junk":              {CertFile: file, KeyFile: file},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := newServingCertificate(files, clock.RealClock{}); err == nil {
				t.Error("no error")
			}
		})
	}
}
