// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

const (
	// dayStartGrace is how long after midnight UTC a client stays recorded for the day
	// before, so that all regular clients are updated in one write. Clients of today and
	// of yesterday count as active alike.
	dayStartGrace = 10 * time.Minute
	// maxConsumerName bounds names in the status, in bytes. Serving bounds them further.
	maxConsumerName = 512
	// consumersShown bounds the clients that a message names.
	consumersShown = 5

	hpaUser           = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
	controllerManager = "kube-controller-manager"
	// hpaVersion is the only version that the HPA controller uses.
	hpaVersion = "v1beta1.metrics.k8s.io"
)

type consumerKey struct{ version, userAgent, user string }

// MergeConsumers merges the pods' reports into the known clients and drops clients last
// seen before yesterday. Clients of pods that are gone stay. The result differs from
// known only if a client is new, expired, or seen on another day.
func MergeConsumers(known []v1alpha1.ConsumerStatus, reports []*v1alpha1.ConsumerReport, now time.Time) []v1alpha1.ConsumerStatus {
	now = now.UTC()
	today, yesterday := day(now), day(now.AddDate(0, 0, -1))
	early := now.Sub(now.Truncate(24*time.Hour)) < dayStartGrace
	days, before := map[consumerKey]string{}, map[consumerKey]string{}
	for _, c := range known {
		if c.LastSeen >= yesterday {
			// A future day is from a clock that was wrong.
			key, last := consumerKey{c.Version, c.UserAgent, c.User}, min(c.LastSeen, today)
			days[key], before[key] = last, last
		}
	}
	for _, report := range reports {
		for _, c := range report.Consumers {
			// A pod must not control the size of the status, or the terminal that prints it.
			key, last := consumerKey{c.Version, printable(c.UserAgent), printable(c.User)}, min(c.LastSeen, today)
			gv, ok := manifests.VersionOf(key.version)
			if _, err := time.Parse(time.DateOnly, c.LastSeen); err != nil || last < yesterday || !ok || !slices.Contains(manifests.KnownVersions(), gv) {
				continue
			}
			if early && before[key] == yesterday {
				continue
			}
			days[key] = max(days[key], last)
		}
	}
	return boundConsumers(days, before)
}

func printable(name string) string { return text.Printable(name, maxConsumerName) }

// boundConsumers keeps the most recent clients of each version. Among clients of one day
// the known ones stay, since each new one causes a write. The HPA controller always
// stays.
func boundConsumers(days, before map[consumerKey]string) []v1alpha1.ConsumerStatus {
	byVersion := map[string][]consumerKey{}
	for key := range days {
		byVersion[key.version] = append(byVersion[key.version], key)
	}
	var all []v1alpha1.ConsumerStatus
	for _, keys := range byVersion {
		slices.SortFunc(keys, func(a, b consumerKey) int {
			return cmp.Or(
				cmp.Compare(consumerPriority(a.user, a.userAgent), consumerPriority(b.user, b.userAgent)),
				cmp.Compare(days[b], days[a]), cmp.Compare(before[b], before[a]),
				cmp.Compare(a.userAgent, b.userAgent), cmp.Compare(a.user, b.user))
		})
		for _, key := range keys[:min(len(keys), v1alpha1.MaxConsumers)] {
			all = append(all, v1alpha1.ConsumerStatus{Version: key.version, UserAgent: key.userAgent, User: key.user, LastSeen: days[key]})
		}
	}
	v1alpha1.SortConsumers(all)
	return all
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// ActiveConsumers returns the clients that used a version today or yesterday.
func ActiveConsumers(consumers []v1alpha1.ConsumerStatus, gv schema.GroupVersion, now time.Time) []v1alpha1.ConsumerStatus {
	yesterday := day(now.AddDate(0, 0, -1))
	return slices.DeleteFunc(slices.Clone(consumers), func(c v1alpha1.ConsumerStatus) bool {
		return c.Version != manifests.APIServiceName(gv) || c.LastSeen < yesterday
	})
}

// DescribeConsumers names clients of one version in a stable order, the HPA controller
// first.
func DescribeConsumers(consumers []v1alpha1.ConsumerStatus) string {
	sorted := slices.SortedFunc(slices.Values(consumers), func(a, b v1alpha1.ConsumerStatus) int {
		return cmp.Or(cmp.Compare(consumerPriority(a.User, a.UserAgent), consumerPriority(b.User, b.UserAgent)), cmp.Compare(a.UserAgent, b.UserAgent), cmp.Compare(a.User, b.User))
	})
	var names []string
	for _, c := range sorted[:min(len(sorted), consumersShown)] {
		names = append(names, describeConsumer(c))
	}
	return strings.Join(names, ", ") + text.AndMore(len(sorted)-len(names), "client")
}

func describeConsumer(c v1alpha1.ConsumerStatus) string {
	who := fmt.Sprintf("%s (user %s)", c.UserAgent, c.User)
	if !isHPAController(c.User, c.UserAgent) {
		return who
	}
	who = "the HPA controller, " + who
	if c.Version == hpaVersion {
		who += ", which up to Kubernetes 1.37 knows no other version: without it no HorizontalPodAutoscaler scales by CPU or memory"
	}
	return who
}

// consumerPriority orders clients by how much depends on them.
func consumerPriority(user, userAgent string) int {
	if isHPAController(user, userAgent) {
		return 0
	}
	return 1
}

// isHPAController reports whether the client is the HPA controller. With
// --use-service-account-credentials=false all controllers share one user, but no other
// one requests metrics.
func isHPAController(user, userAgent string) bool {
	return user == hpaUser || user == "system:"+controllerManager && userAgent == controllerManager
}
