// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/accounttoken"
)

// scrapeAccount returns the ServiceAccount whose tokens are for kubelets, empty for none.
func (o *Options) scrapeAccount() (types.NamespacedName, error) {
	namespace, name, err := cache.SplitMetaNamespaceKey(o.ScrapeAccount)
	if err != nil || (namespace == "") != (name == "") {
		return types.NamespacedName{}, fmt.Errorf("the environment variable %s must be NAMESPACE/NAME of a ServiceAccount, but is %q", v1alpha1.ScrapeAccountVariable, o.ScrapeAccount)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// newScrapeTokens returns the tokens for kubelets, or nil for the credentials of client.
// Those can read Secrets of sources and review tokens, so a compromised kubelet must not get
// them: the operator always sets an account.
func (o *Options) newScrapeTokens(client corev1client.ServiceAccountsGetter, c clock.Clock) (*accounttoken.Source, error) {
	account, err := o.scrapeAccount()
	if err != nil {
		return nil, err
	}
	if account.Name == "" {
		klog.Background().Info("Kubelets are sent the credentials of --kubeconfig, or of this pod: "+
			"no other account is named", "variable", v1alpha1.ScrapeAccountVariable)
		return nil, nil
	}
	return accounttoken.New(client, account, "", c, rand.Float64), nil
}

// scrape scrapes kubelets until the context ends. It begins once a token was requested: the
// first scrapes would fail before. If the request failed, scrapes report why.
func (p *components) scrape(ctx context.Context) {
	if p.tokens != nil {
		select {
		case <-p.tokens.Tried():
		case <-ctx.Done():
			return
		}
	}
	p.kubelets.Run(ctx)
}

// hasScrapeToken returns nil if there is a token for kubelets or none is needed, else why
// there is none.
func (p *components) hasScrapeToken() error {
	if p.tokens == nil || !p.resourceMetrics.collected() || p.pipeline.resourceRules.isActive() {
		return nil
	}
	_, err := p.tokens.Token()
	return err
}
