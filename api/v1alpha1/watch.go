// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WatchMode says whether the metrics APIs can be watched.
// +kubebuilder:validation:Enum=Enabled;Disabled
type WatchMode string

const (
	// WatchEnabled serves the verb watch beside get and list.
	WatchEnabled WatchMode = "Enabled"
	// WatchDisabled serves get and list alone.
	WatchDisabled WatchMode = "Disabled"
)

// WatchSpec says how the metrics APIs are watched (KEP-1013). Limits hold for
// each serving pod; running pods take up changes at once.
type WatchSpec struct {
	// Whether the metrics APIs can be watched. Disabled takes the verb `watch`
	// out of discovery, ends open watches within about 30s and answers new ones
	// with 405, upon which clients poll; get and list stay as they are.
	// Default: Enabled.
	// +optional
	// +kubebuilder:default=Enabled
	Mode WatchMode `json:"mode,omitempty"`

	// Most watches that are open at once, for each serving pod. Beyond it a new
	// watch is answered with 429 and Retry-After. Lowering it ends no open watch.
	// A watch takes up to 70 KiB of memory: with a memory limit in
	// serving.resources, mind it there. From 1 to 100000. Default: 10000.
	// +optional
	// +kubebuilder:default=10000
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100000",message="watch.maxConnections must be between 1 and 100000; to serve no watch at all, set watch.mode: Disabled"
	MaxConnections *int32 `json:"maxConnections,omitempty"`

	// Most watches that one user has open at once, for each serving pod. Beyond
	// it that user's new watches are answered with 429 and Retry-After. Users are
	// told apart by their name: all pods of a service account are one. More than
	// maxConnections has no effect. From 1 to 100000. Default: 1000.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100000",message="watch.maxConnectionsPerUser must be between 1 and 100000; to serve no watch at all, set watch.mode: Disabled"
	MaxConnectionsPerUser *int32 `json:"maxConnectionsPerUser,omitempty"`

	// Most watches that one user opens in a second, for each serving pod, after a
	// first burst of maxConnectionsPerUser, so that a user can open all of them at
	// once after a restart. Beyond it that user's new watches are answered with
	// 429 and Retry-After. From 1 to 10000. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 10000",message="watch.maxOpensPerSecondPerUser must be between 1 and 10000 watches a second"
	MaxOpensPerSecondPerUser *int32 `json:"maxOpensPerSecondPerUser,omitempty"`

	// Time between two BOOKMARK events of a watch whose client allows them,
	// whatever else it is sent. They are a heartbeat: shorter than the idle
	// timeout of every proxy on the way is short enough. Open watches take up a
	// change with their next bookmark. A duration from 5s to 10m. Default: 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('10m')",message="watch.bookmarkInterval must be between 5s and 10m"
	BookmarkInterval *metav1.Duration `json:"bookmarkInterval,omitempty"`

	// Longest that a watch lasts, whatever timeoutSeconds its client asks for,
	// less up to a quarter by chance, so that watches which began together do not
	// end together. Watches spread over new serving pods only when they end. One
	// with sendInitialEvents ends with an ERROR event of code 504, upon which
	// informers list again and drop objects that are gone. Watches that are open
	// keep the end they have. A duration from 1m to 24h. Default: 1h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="watch.maxAge must be between 1m and 24h"
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
}
