// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/utils/clock"
)

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
