// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

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
	// dayStartGrace is how long into a day, in UTC, a client of yesterday still counts as
	// one of yesterday, so that all regular clients come into one write of the day.
	// Whether a client counts at all is the same for today and yesterday.
	dayStartGrace = 10 * time.Minute
	// maxConsumerName bounds names in the status, in bytes; serving cuts them shorter.
	maxConsumerName = 512
	// consumersShown bounds how many clients a message names.
	consumersShown = 5

	hpaUser           = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
	controllerManager = "kube-controller-manager"
	// hpaVersion is the only version that the HPA controller knows.
	hpaVersion = "v1beta1.metrics.k8s.io"
)

// consumerKey is a client of a version.
type consumerKey struct{ version, userAgent, user string }

// mergeConsumers adds what pods reported to what is known, and forgets who was
// last seen before yesterday. A pod that is gone takes nothing with it. The result
// differs from known only when a client is new, has gone, or came on another day.
func mergeConsumers(known []v1alpha1.ConsumerStatus, reports []*v1alpha1.ConsumerReport, now time.Time) []v1alpha1.ConsumerStatus {
	now = now.UTC()
	today, yesterday := day(now), day(now.AddDate(0, 0, -1))
	early := now.Sub(now.Truncate(24*time.Hour)) < dayStartGrace
	days, before := map[consumerKey]string{}, map[consumerKey]string{}
	for _, c := range known {
		if c.LastSeen >= yesterday {
			// A day in the future is from before a clock was set right.
			key, last := consumerKey{c.Version, c.UserAgent, c.User}, min(c.LastSeen, today)
			days[key], before[key] = last, last
		}
	}
	for _, report := range reports {
		for _, c := range report.Consumers {
			key, last := keyOfReported(c), min(c.LastSeen, today)
			gv, ok := versionOf(key.version)
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

// keyOfReported trusts no pod with the size of the status, nor with the terminal
// of who reads it.
func keyOfReported(c v1alpha1.ConsumerStatus) consumerKey {
	return consumerKey{c.Version, printable(c.UserAgent), printable(c.User)}
}

func printable(name string) string { return text.Printable(name, maxConsumerName) }

// boundConsumers keeps the most recent clients of each version. Among those of one
// day, who is known already stays, or each newcomer would be a write. The HPA
// controller always does: on the morning of a day, newcomers must not hide it.
func boundConsumers(days, before map[consumerKey]string) []v1alpha1.ConsumerStatus {
	byVersion := map[string][]consumerKey{}
	for key := range days {
		byVersion[key.version] = append(byVersion[key.version], key)
	}
	var all []v1alpha1.ConsumerStatus
	for _, keys := range byVersion {
		slices.SortFunc(keys, func(a, b consumerKey) int {
			return cmp.Or(
				cmp.Compare(weight(a.user, a.userAgent), weight(b.user, b.userAgent)),
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

// activeConsumers are the clients that used a version today or yesterday.
func activeConsumers(consumers []v1alpha1.ConsumerStatus, gv schema.GroupVersion, now time.Time) []v1alpha1.ConsumerStatus {
	yesterday := day(now.AddDate(0, 0, -1))
	return slices.DeleteFunc(slices.Clone(consumers), func(c v1alpha1.ConsumerStatus) bool {
		return c.Version != apiServiceName(gv) || c.LastSeen < yesterday
	})
}

// describeConsumers names clients of one version, who matters most first, and in
// the same order on each day.
func describeConsumers(consumers []v1alpha1.ConsumerStatus) string {
	sorted := slices.SortedFunc(slices.Values(consumers), func(a, b v1alpha1.ConsumerStatus) int {
		return cmp.Or(cmp.Compare(weight(a.User, a.UserAgent), weight(b.User, b.UserAgent)), cmp.Compare(a.UserAgent, b.UserAgent), cmp.Compare(a.User, b.User))
	})
	var names []string
	for _, c := range sorted[:min(len(sorted), consumersShown)] {
		names = append(names, describeConsumer(c))
	}
	return strings.Join(names, ", ") + others(len(sorted)-len(names), "client")
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

// weight orders clients by how much breaks without them.
func weight(user, userAgent string) int {
	if isHPAController(user, userAgent) {
		return 0
	}
	return 1
}

// isHPAController: with --use-service-account-credentials=false, all controllers
// share one user, but none of the others asks for metrics.
func isHPAController(user, userAgent string) bool {
	return user == hpaUser || user == "system:"+controllerManager && userAgent == controllerManager
}
