// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// APIServices are removed only if the operator's own namespace is being deleted, and with
// a context that outlives the signal.
func TestNamespaceCleanup(t *testing.T) {
	ending := metav1.Now()
	cases := map[string]struct {
		namespace *corev1.Namespace
		getErr    error
		retireErr error
		want      bool
	}{
		"an ordinary end":        {namespace: &corev1.Namespace{}},
		"its namespace ends":     {namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &ending, Finalizers: []string{"kubernetes"}}}, want: true},
		"retiring fails":         {namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &ending, Finalizers: []string{"kubernetes"}}}, retireErr: errors.New("no"), want: true},
		"kube-apiserver is away": {namespace: &corev1.Namespace{}, getErr: errors.New("connection refused")},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.namespace.Name = "own"
			live := interceptor.NewClient(fake.NewClientBuilder().WithObjects(tc.namespace).Build(), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if tc.getErr != nil {
						return tc.getErr
					}
					return c.Get(ctx, key, o, opts...)
				},
			})
			retired := false
			f := &namespaceCleanup{apiReader: live, namespace: "own", retireAll: func(ctx context.Context) error {
				retired = true
				if ctx.Err() != nil {
					t.Errorf("the context has ended before the work: %v", ctx.Err())
				}
				if _, bounded := ctx.Deadline(); !bounded {
					t.Error("the work has no deadline")
				}
				return tc.retireErr
			}}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			// A failure here must not change the exit code, or hide why the process ends.
			if err := f.Start(ctx); err != nil {
				t.Errorf("got %v", err)
			}
			if retired != tc.want {
				t.Errorf("retired %t, want %t", retired, tc.want)
			}
		})
	}
	if !(&namespaceCleanup{}).NeedLeaderElection() {
		t.Error("an operator that is not the leader removes what the leader registered")
	}
}
