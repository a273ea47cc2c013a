// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WatchMode is whether the metrics APIs can be watched.
// +kubebuilder:validation:Enum=Enabled;Disabled
type WatchMode string

const (
	// WatchEnabled serves the verb watch in addition to get and list.
	WatchEnabled WatchMode = "Enabled"
	// WatchDisabled serves only get and list.
	WatchDisabled WatchMode = "Disabled"
)

// WatchSpec configures watches of the metrics APIs (KEP-1013). The limits are per serving
// pod. Running pods apply changes without a restart.
type WatchSpec struct {
	// Whether the metrics APIs can be watched. Disabled removes the verb `watch` from
	// discovery, ends open watches within about 20s and rejects new ones with 405, so that
	// clients poll; get and list still work. Default: Enabled.
	// +optional
	// +kubebuilder:default=Enabled
	Mode WatchMode `json:"mode,omitempty"`

	// Maximum number of open watches per serving pod. Further watches are rejected with 429
	// and Retry-After. A tenth is reserved for system users: ServiceAccounts of kube-system,
	// users system:<name>, and the group system:masters. Tenants share the others, and a
	// single tenant may use half of them. The ServiceAccounts of a namespace are one tenant,
	// and so is every other user. A lower limit does not end open watches. A watch takes up to
	// 70 KiB of memory: consider it if serving.resources has a memory limit. From 1 to 100000.
	// Default: 10000.
	// +optional
	// +kubebuilder:default=10000
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100000",message="watch.maxWatches must be between 1 and 100000; to serve no watch at all, set watch.mode: Disabled"
	MaxWatches *int32 `json:"maxWatches,omitempty"`

	// Maximum number of open watches per user and serving pod. Further watches of the user
	// are rejected with 429 and Retry-After. Users are distinguished by name: all pods of a
	// ServiceAccount are one user. A value above maxWatches has no effect. From 1 to
	// 100000. Default: 1000.
	// +optional
	// +kubebuilder:default=1000
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 100000",message="watch.maxWatchesPerUser must be between 1 and 100000; to serve no watch at all, set watch.mode: Disabled"
	MaxWatchesPerUser *int32 `json:"maxWatchesPerUser,omitempty"`

	// Maximum rate at which a user opens watches, in watches per second and serving pod,
	// with a burst of maxWatchesPerUser or, if that is more, of one second, so that after a restart a user can reopen all
	// watches at once. Further watches of the user are rejected with 429 and Retry-After.
	// From 1 to 10000. Default: 100.
	// +optional
	// +kubebuilder:default=100
	// +kubebuilder:validation:XValidation:rule="self >= 1 && self <= 10000",message="watch.maxOpensPerSecondPerUser must be between 1 and 10000 watches a second"
	MaxOpensPerSecondPerUser *int32 `json:"maxOpensPerSecondPerUser,omitempty"`

	// Time between two BOOKMARK events of a watch with allowWatchBookmarks. They are a
	// heartbeat, and are sent even if there are other events: choose less than the idle
	// timeout of each proxy between client and serving. Open watches use a new value after
	// their next bookmark. A duration from 5s to 10m. Default: 1m.
	// +optional
	// +kubebuilder:default="1m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('5s') && duration(self) <= duration('10m')",message="watch.bookmarkInterval must be between 5s and 10m"
	BookmarkInterval *metav1.Duration `json:"bookmarkInterval,omitempty"`

	// Maximum duration of a watch, also if its client requests a longer timeoutSeconds. Each
	// watch ends up to a quarter earlier at random, so that watches that started together do
	// not end together. Watches move to new serving pods only when they end. A watch with
	// sendInitialEvents ends with an ERROR event of code 504, so that informers list again
	// and drop objects that are gone. Open watches keep their end. A duration from 1m to
	// 24h. Default: 1h.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('24h')",message="watch.maxDuration must be between 1m and 24h"
	MaxDuration *metav1.Duration `json:"maxDuration,omitempty"`
}
