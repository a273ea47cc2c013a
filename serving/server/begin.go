// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// beginning is what there is of settings before kube-apiserver was asked.
type beginning struct {
	settings settings
	// file is followed; nil without --backend-file.
	file *backendFile
	// declared is what the file declares beside the MetricsBackend.
	declared *declarations
}

// begin reads --backend-file, or takes the defaults.
func (o *Options) begin(c clock.WithTicker) (*beginning, error) {
	b := &beginning{declared: &declarations{}}
	var err error
	if o.BackendFile != "" {
		b.file = &backendFile{path: o.BackendFile, clock: c}
		b.settings, b.declared, err = b.file.load()
	} else {
		b.settings, err = settingsFrom(&v1alpha1.MetricsBackendSpec{})
	}
	return b, err
}

// following keeps settings and declarations up to date.
type following struct {
	run func(context.Context)
	// read returns nil once the settings have been read, and declared once it is known
	// what is declared beside them.
	read, declared func() error
}

// follow follows the file, or --backend in the cluster, or, with neither, nothing.
func (o *Options) follow(client *rest.Config, b *beginning, p *parts) (*following, error) {
	known := func() error { return nil }
	switch {
	case b.file != nil:
		return o.followFile(b, p), nil
	case o.Backend != "":
		backend, err := newBackendFollower(client, o.Backend, func(ctx context.Context, backend *v1alpha1.MetricsBackend) {
			p.inForce.apply(ctx, "cluster", backend)
		})
		if err != nil {
			return nil, err
		}
		declared, err := newDeclaredFollower(client, p.values)
		if err != nil {
			return nil, err
		}
		return &following{read: backend.read, declared: declared.read, run: func(ctx context.Context) {
			var running sync.WaitGroup
			running.Go(func() { declared.run(ctx) })
			backend.run(ctx)
			running.Wait()
		}}, nil
	}
	return &following{read: known, declared: known, run: func(ctx context.Context) {
		// Nothing is declared anywhere, and so there is no policy.
		(&declarations{}).give(ctx, p.values)
		klog.FromContext(ctx).Info("Neither --backend nor --backend-file is given; the default settings stay in force")
	}}, nil
}

// followFile puts into force what the file held at first, too.
func (o *Options) followFile(b *beginning, p *parts) *following {
	given := make(chan struct{})
	b.file.apply = func(ctx context.Context, backend *v1alpha1.MetricsBackend) { p.inForce.apply(ctx, "file", backend) }
	b.file.declare = func(ctx context.Context, declared *declarations) { declared.give(ctx, p.values) }
	return &following{
		read: func() error { return nil },
		declared: func() error {
			select {
			case <-given:
				return nil
			default:
				return errors.New("the file was not put into force yet")
			}
		},
		run: func(ctx context.Context) {
			p.values.apply(ctx, b.settings.spec, b.settings.invalid)
			b.declared.give(ctx, p.values)
			close(given)
			b.file.run(ctx)
		},
	}
}
