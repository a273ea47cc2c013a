// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, want, wantErr string
	}{
		"the default":           {path: DefaultDir, want: DefaultDir},
		"cleaned":               {path: "/var/lib//x/../y/", want: "/var/lib/y"},
		"relative":              {path: "cluster", wantErr: "absolute"},
		"the root":              {path: "/", wantErr: "directly below /"},
		"a top-level directory": {path: "/home", wantErr: "directly below /"},
		"too long for a socket": {path: "/var/lib/" + strings.Repeat("x", 80), wantErr: "too long by"},
		"a space":               {path: "/var/lib/my cluster", wantErr: "may hold only"},
		"a quote":               {path: "/var/lib/\"", wantErr: "may hold only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := At(test.path)
			if test.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), test.wantErr) {
					t.Fatalf("got error %v, want one with %q", err, test.wantErr)
				}
				return
			}
			if err != nil || string(got) != test.want {
				t.Fatalf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

func TestSettingsSurviveAndAreMissedWhereThereAreNone(t *testing.T) {
	t.Parallel()
	dir := Dir(t.TempDir())
	if _, err := dir.Settings(); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a marker: got %v, want fs.ErrNotExist", err)
	}
	want := Settings{
		Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), KubeletCertificate: SelfSigned,
		Sysctls: map[string]string{"net/ipv4/ip_forward": "0"}, Tables: []string{"ip filter"},
	}
	if err := dir.Save(want); err != nil {
		t.Fatal(err)
	}
	got, err := dir.Settings()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("settings (-want +got):\n%s", diff)
	}
	write(t, dir.Path(markerFile), "{")
	if _, err := dir.Settings(); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "run down") {
		t.Fatalf("with half a marker: got %v, want advice", err)
	}
}

func TestOnlyADirectoryOfOursIsTakenOrRemoved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		files       []string
		taken, gone bool
	}{
		"none":                            {taken: true, gone: true},
		"ours":                            {files: []string{markerFile, "etcd/member"}, taken: true, gone: true},
		"killed before the marker":        {files: []string{lockFile}, taken: true, gone: true},
		"another's":                       {files: []string{"photos"}},
		"another's, with a file 'lock'":   {files: []string{"photos", lockFile}},
		"ours, with a file by the reader": {files: []string{markerFile, "notes"}, taken: true, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := Dir(filepath.Join(t.TempDir(), "cluster"))
			for _, file := range test.files {
				write(t, dir.Path(file), "x")
			}
			if err := dir.Create(); (err == nil) != test.taken {
				t.Fatalf("Create: %v, want taken %t", err, test.taken)
			}
			if err := dir.Remove(); err != nil {
				t.Fatalf("Remove: %v", err)
			}
			_, err := os.Stat(string(dir))
			// An empty directory that was made only now holds nothing to protect, and nothing to lose.
			if gone := errors.Is(err, fs.ErrNotExist) || len(test.files) == 0; gone != test.gone {
				t.Fatalf("after Remove: gone %t, want %t", gone, test.gone)
			}
			for _, file := range test.files {
				if _, err := os.Stat(dir.Path(file)); !test.gone && err != nil {
					t.Fatalf("a file of another: %v", err)
				}
			}
		})
	}
}

func TestWriteFileLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	// A directory in the file's place makes the rename fail.
	path := filepath.Join(folder, "taken")
	if err := os.MkdirAll(filepath.Join(path, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("content"), 0o600); err == nil {
		t.Fatal("writing over a directory succeeded")
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Fatalf("left %v, %v, want only the directory", entries, err)
	}
	path = filepath.Join(folder, "deep", "file")
	if err := WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("got %v, %v, want mode 0600", info, err)
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	dir := Dir(filepath.Join(t.TempDir(), "cluster"))
	unlock, err := dir.Lock(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	second := make(chan error, 1)
	go func() {
		unlock, err := dir.Lock(t.Context(), func() { close(waited) })
		if err == nil {
			// The directory was removed under the first lock: this one must be on a file that others find.
			_, err = os.Stat(dir.Path(lockFile))
			unlock()
		}
		second <- err
	}()
	<-waited
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := dir.Lock(cancelled, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled wait: got %v, want context.Canceled", err)
	}
	if err := os.RemoveAll(string(dir)); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := <-second; err != nil {
		t.Fatalf("the second lock: %v", err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
