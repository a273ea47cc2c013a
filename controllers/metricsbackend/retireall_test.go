// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/controllers/podapi"
)

// An operator that ends with its namespace may still hold a token of the account
// that is gone. It waits for nobody: an endpoint that refuses the token is one of
// which no more can be known than that it is ready.
func TestRetireAllDoesNotWait(t *testing.T) {
	for name, tc := range map[string]struct {
		answer error
		want   string
	}{
		"nobody answers":         {errors.New("no answer within 5s"), ""},
		"the account is unknown": {fmt.Errorf("ask /apis: %w", podapi.ErrUnauthorized), metricsServer},
	} {
		t.Run(name, func(t *testing.T) {
			w := prepared(t, "adopted", adoptedWorld)
			r := w.live(interceptor.Funcs{})
			_, _, err := r.guestToken(t.Context(), r.newScope(w.backend()))
			w.must(err)
			for address := range w.theirs.serves {
				w.theirs.mute[address] = tc.answer
			}
			w.must(r.RetireAll(t.Context()))
			if got := w.leadsNow(v1beta1); got != tc.want {
				t.Errorf("leads to %q, want %q", got, tc.want)
			}
		})
	}
}

// kube-apiserver writes APIServices at this very moment, as pods behind them end:
// a conflict is tried again, and keeps no other version from going.
func TestRetireAllTriesAgain(t *testing.T) {
	w := prepared(t, "adopted", adoptedWorld)
	conflicts := map[string]int{}
	r := w.live(intercepted(func(c call, make func() error) error {
		if conflicts[c.name]++; strings.Contains(c.name, "APIService v1") && c.write && conflicts[c.name] == 1 {
			return apierrors.NewConflict(schema.GroupResource{Resource: "apiservices"}, c.name, errors.New("it was modified"))
		}
		return make()
	}))
	w.must(r.RetireAll(t.Context()))
	if got := []string{w.leadsNow(v1), w.leadsNow(v1beta1)}; got[0] != "" || got[1] != metricsServer {
		t.Errorf("v1 and v1beta1 lead to %q", got)
	}
	if conflicts["delete *v1.APIService v1.metrics.k8s.io"] != 2 || conflicts["update *v1.APIService v1beta1.metrics.k8s.io"] != 2 {
		t.Errorf("attempts: %v", conflicts)
	}
}

// What cannot be removed is named, after the others are.
func TestRetireAllGivesUp(t *testing.T) {
	w, _ := ready(t, interceptor.Funcs{})
	r := w.live(interceptor.Funcs{})
	held := w.apiService(v1)
	held.Finalizers = []string{"example.com/keeps"}
	w.must(w.raw.Update(context.Background(), held))
	ctx, cancel := context.WithTimeout(t.Context(), 3*retireAllPause)
	defer cancel()
	err := r.RetireAll(ctx)
	if err == nil || !strings.Contains(err.Error(), "APIService v1.metrics.k8s.io still exists: something holds it with a finalizer") {
		t.Errorf("error %v", err)
	}
	var left apiregistrationv1.APIServiceList
	w.must(w.raw.List(context.Background(), &left))
	if len(left.Items) != 1 {
		t.Errorf("left: %v", left.Items)
	}
}
