// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"net"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// stableMessage is an error's message without what differs between two equal
// failures, such as local ports: it ends in a condition, and a condition that
// changes with each attempt is written, and read by GitOps tools, each time.
func stableMessage(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return string(status.Status().Reason) + ": " + status.Status().Message
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Op + ": " + op.Err.Error()
	}
	var address *url.Error
	if errors.As(err, &address) {
		return address.Err.Error()
	}
	return err.Error()
}

const (
	// maxMessage bounds messages of conditions, in bytes: they may hold foreign text.
	maxMessage = 4096
	// maxNote bounds notes of events, in bytes; kube-apiserver refuses more than 1024.
	maxNote = 1000
)
