// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/clock"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/serving/metricsapi"
	"github.com/metricsbackend/metrics-backend-operator/serving/query"
)

// addressTime is how long the address of a Service is used for new connections, so that many cost one request.
const addressTime = 10 * time.Second

// serviceAddresses returns the address of a Service, which is kept for addressTime.
func serviceAddresses(client corev1client.ServicesGetter, c clock.Clock) metricsapi.Address {
	read, kept, reading := serviceAddress(client), cache.NewLRUExpireCacheWithClock(v1alpha1.MaxSources, c), singleflight.Group{}
	return func(ctx context.Context, of v1alpha1.ExistingService) (string, error) {
		key := fmt.Sprintf("%s/%s:%d", of.Namespace, of.Name, *of.Port)
		if address, ok := kept.Get(key); ok {
			return address.(string), nil
		}
		address, err, _ := reading.Do(key, func() (any, error) {
			address, err := read(ctx, of)
			if err == nil {
				kept.Add(key, address, addressTime)
			}
			return address, err
		})
		return address.(string), err
	}
}

// serviceAddress returns the address of a Service as the aggregator finds it: the cluster IP, or the external name.
func serviceAddress(client corev1client.ServicesGetter) metricsapi.Address {
	return func(ctx context.Context, of v1alpha1.ExistingService) (string, error) {
		service, err := client.Services(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		missing := func(format string, args ...any) (string, error) {
			return "", query.Failf(query.ReasonServiceMissing, "the Service %s/%s "+format, append([]any{of.Namespace, of.Name}, args...)...)
		}
		switch {
		case apierrors.IsNotFound(err):
			return missing("does not exist: install the implementation, or correct service")
		case err != nil:
			return "", query.Failf(query.ReasonConnectionFailed, "the Service %s/%s cannot be read for its address: %v", of.Namespace, of.Name, err)
		case service.Spec.Type == corev1.ServiceTypeExternalName:
			return net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(*of.Port))), nil
		case service.Spec.ClusterIP == "" || service.Spec.ClusterIP == corev1.ClusterIPNone:
			return missing("has no cluster IP: name one that has, as kube-apiserver needs it for an APIService, too")
		case !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == *of.Port }):
			return missing("has no port %d: correct service.port", *of.Port)
		}
		return net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(*of.Port))), nil
	}
}
