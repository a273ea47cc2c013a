// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/internal/wake"
)

// filesPeriod is the interval in which files are read. dynamiccertificates has a queue for each
// pair of files, whose metrics wake an idle process twice a second.
const filesPeriod = 10 * time.Second

// readFiles returns the contents of all files. A kubelet replaces all files of a volume at once, so if the first one has
// changed meanwhile, all are read again.
func readFiles(paths ...string) ([][]byte, error) {
	read := func(paths []string) ([][]byte, error) {
		contents := make([][]byte, len(paths))
		for i, path := range paths {
			var err error
			if contents[i], err = os.ReadFile(path); err != nil {
				return nil, err
			}
		}
		return contents, nil
	}
	contents, err := read(paths)
	if err != nil || len(paths) == 1 {
		return contents, err
	}
	if again, err := read(paths[:1]); err != nil || bytes.Equal(again[0], contents[0]) {
		return contents, err
	}
	return read(paths)
}

// followFiles calls apply for each change of the files' contents, in the order of paths, which applied has at the
// beginning, until the context ends. An error is logged once, and what was applied last stays.
func followFiles(ctx context.Context, c clock.Clock, what string, applied [][]byte, apply func([][]byte) error, paths ...string) {
	logger := klog.FromContext(ctx).WithValues("files", paths)
	equal := func(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
	tried, failure := applied, ""
	wake.Every(ctx, c, filesPeriod, func() {
		contents, err := readFiles(paths...)
		changed := err == nil && !equal(contents, tried)
		if err == nil && (changed || failure != "") {
			tried = contents
			if !equal(contents, applied) {
				err = apply(contents)
			}
			if err == nil {
				applied = contents
			}
		}
		switch {
		case err != nil && (changed || err.Error() != failure):
			logger.Error(err, "Cannot use "+what+"; the previous content stays")
		case err == nil && (changed || failure != ""):
			logger.Info("The files of " + what + " are in force")
		}
		failure = ""
		if err != nil {
			failure = err.Error()
		}
	})
}

// servingCertificate is the pair in --tls-cert-file and --tls-private-key-file, which are followed. It implements
// dynamiccertificates.CertKeyContentProvider.
type servingCertificate struct {
	files     genericoptions.CertKey
	clock     clock.Clock
	current   atomic.Pointer[dynamiccertificates.CertKeyContentProvider]
	listeners []dynamiccertificates.Listener
}

var _ dynamiccertificates.ControllerRunner = &servingCertificate{}

func newServingCertificate(files genericoptions.CertKey, c clock.Clock) (*servingCertificate, error) {
	if files.CertFile == "" || files.KeyFile == "" {
		return nil, errors.New("--tls-cert-file and --tls-private-key-file must be given together")
	}
	s := &servingCertificate{files: files, clock: c}
	pair, err := readFiles(files.CertFile, files.KeyFile)
	if err == nil {
		err = s.set(pair)
	}
	if err != nil {
		return nil, fmt.Errorf("read --tls-cert-file and --tls-private-key-file: %w", err)
	}
	return s, nil
}

// Name implements dynamiccertificates.CertKeyContentProvider.
func (s *servingCertificate) Name() string { return s.files.CertFile }

// AddListener implements dynamiccertificates.CertKeyContentProvider. It must be called before Run.
func (s *servingCertificate) AddListener(listener dynamiccertificates.Listener) {
	s.listeners = append(s.listeners, listener)
}

// CurrentCertKeyContent implements dynamiccertificates.CertKeyContentProvider.
func (s *servingCertificate) CurrentCertKeyContent() (certificate, key []byte) {
	return (*s.current.Load()).CurrentCertKeyContent()
}

// RunOnce implements dynamiccertificates.ControllerRunner. The files were read at the start.
func (s *servingCertificate) RunOnce(context.Context) error { return nil }

// Run implements dynamiccertificates.ControllerRunner. It follows the files until the context ends. While they are
// invalid, or one of them has not come yet, the previous pair is served.
func (s *servingCertificate) Run(ctx context.Context, _ int) {
	certificate, key := s.CurrentCertKeyContent()
	followFiles(ctx, s.clock, "the serving certificate", [][]byte{certificate, key}, s.set, s.files.CertFile, s.files.KeyFile)
}

// set replaces the pair.
func (s *servingCertificate) set(pair [][]byte) error {
	next, err := dynamiccertificates.NewStaticCertKeyContent(s.Name(), pair[0], pair[1])
	if err != nil {
		return err
	}
	s.current.Store(&next)
	for _, listener := range s.listeners {
		listener.Enqueue()
	}
	return nil
}
