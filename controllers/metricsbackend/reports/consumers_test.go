// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package reports

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

const (
	v1Name      = "v1.metrics.k8s.io"
	v1beta1Name = "v1beta1.metrics.k8s.io"
)

func consumer(version, userAgent, user, day string) v1alpha1.ConsumerStatus {
	return v1alpha1.ConsumerStatus{Version: version, UserAgent: userAgent, User: user, LastSeen: day}
}

func hpaOf(version, day string) v1alpha1.ConsumerStatus {
	return consumer(version, controllerManager, hpaUser, day)
}

func reportOf(consumers ...v1alpha1.ConsumerStatus) *v1alpha1.ConsumerReport {
	return &v1alpha1.ConsumerReport{Consumers: consumers}
}

func TestMergeConsumers(t *testing.T) {
	t.Parallel()
	const before, yesterday, today, tomorrow = "2026-10-30", "2026-10-31", "2026-11-01", "2026-11-02"
	noon := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	morning := noon.Truncate(24 * time.Hour).Add(dayStartGrace - time.Second)
	list := func(consumers ...v1alpha1.ConsumerStatus) []v1alpha1.ConsumerStatus { return consumers }
	cases := map[string]struct {
		now     time.Time
		known   []v1alpha1.ConsumerStatus
		reports []*v1alpha1.ConsumerReport
		want    []v1alpha1.ConsumerStatus
	}{
		"nobody":    {reports: []*v1alpha1.ConsumerReport{reportOf()}},
		"no report": {known: list(hpaOf(v1beta1Name, yesterday)), want: list(hpaOf(v1beta1Name, yesterday))},
		"two pods, the newer day counts": {
			reports: []*v1alpha1.ConsumerReport{
				reportOf(consumer(v1Name, "kubectl", "jane", yesterday)),
				reportOf(consumer(v1Name, "kubectl", "jane", today), consumer(v1Name, "kubectl", "joe", today)),
			},
			want: list(consumer(v1Name, "kubectl", "jane", today), consumer(v1Name, "kubectl", "joe", today)),
		},
		"pods that restarted have forgotten, the status has not": {
			known:   list(hpaOf(v1beta1Name, today), consumer(v1Name, "kubectl", "jane", yesterday)),
			reports: []*v1alpha1.ConsumerReport{reportOf(), reportOf()},
			want:    list(hpaOf(v1beta1Name, today), consumer(v1Name, "kubectl", "jane", yesterday)),
		},
		"who was not back yesterday is forgotten": {
			known: list(hpaOf(v1beta1Name, before)), reports: []*v1alpha1.ConsumerReport{reportOf(hpaOf(v1beta1Name, before))},
		},
		"early in the day, clients of yesterday stay those of yesterday": {
			now: morning, known: list(hpaOf(v1beta1Name, yesterday)),
			reports: []*v1alpha1.ConsumerReport{reportOf(hpaOf(v1beta1Name, today))},
			want:    list(hpaOf(v1beta1Name, yesterday)),
		},
		"early in the day, a new client is reported at once": {
			now: morning, known: list(hpaOf(v1beta1Name, yesterday)),
			reports: []*v1alpha1.ConsumerReport{reportOf(consumer(v1Name, "kubectl", "jane", today))},
			want:    list(consumer(v1Name, "kubectl", "jane", today), hpaOf(v1beta1Name, yesterday)),
		},
		"after that, all come in one write": {
			now: morning.Add(time.Second), known: list(hpaOf(v1beta1Name, yesterday)),
			reports: []*v1alpha1.ConsumerReport{reportOf(hpaOf(v1beta1Name, today))},
			want:    list(hpaOf(v1beta1Name, today)),
		},
		"a pod whose clock is a day ahead": {
			reports: []*v1alpha1.ConsumerReport{reportOf(hpaOf(v1beta1Name, tomorrow))}, want: list(hpaOf(v1beta1Name, today)),
		},
		"a pod whose clock is a day behind": {
			reports: []*v1alpha1.ConsumerReport{reportOf(hpaOf(v1beta1Name, yesterday))}, want: list(hpaOf(v1beta1Name, yesterday)),
		},
		"an operator whose clock was a day ahead": {known: list(hpaOf(v1beta1Name, tomorrow)), want: list(hpaOf(v1beta1Name, today))},
		"days that are none": {
			reports: []*v1alpha1.ConsumerReport{reportOf(
				consumer(v1Name, "a", "u", ""), consumer(v1Name, "b", "u", "tomorrow"), consumer(v1Name, "c", "u", "2026-11-31"),
				consumer(v1Name, "d", "u", "2026-11-01T12:00:00Z"), consumer(v1Name, "e", "u", "zzzz-zz-zz"))},
		},
		"versions that nobody serves": {
			reports: []*v1alpha1.ConsumerReport{reportOf(consumer("", "a", "u", today), consumer("v1", "a", "u", today), consumer("v1.apps", "a", "u", today))},
		},
		"names that steer a terminal": {
			reports: []*v1alpha1.ConsumerReport{reportOf(consumer(v1Name, "\x1b[31mred\n", "\u202eabc\x00\xff", today))},
			want:    list(consumer(v1Name, "?[31mred?", "?abc??", today)),
		},
		"names of 10 kB": {
			reports: []*v1alpha1.ConsumerReport{reportOf(consumer(v1Name, strings.Repeat("a", 10_000), strings.Repeat("€", 5_000), today))},
			want:    list(consumer(v1Name, strings.Repeat("a", maxConsumerName-3)+"…", strings.Repeat("€", (maxConsumerName-3)/3)+"…", today)),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := tc.now
			if now.IsZero() {
				now = noon
			}
			got := MergeConsumers(tc.known, tc.reports, now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
			// More than once, as the order of a map differs each time.
			for range 20 {
				if diff := cmp.Diff(got, MergeConsumers(got, tc.reports, now)); diff != "" {
					t.Fatalf("the same reports again make another status (-first +second):\n%s", diff)
				}
			}
		})
	}
}

// Many names neither fill the status nor change it at each pass, and displace no known
// client, least of all the HPA controller.
func TestConsumersAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 2, 0, 0, 30, 0, time.UTC)
	known := []v1alpha1.ConsumerStatus{consumer(v1beta1Name, "a-dashboard", "u", "2026-11-02"), hpaOf(v1beta1Name, "2026-11-01")}
	v1alpha1.SortConsumers(known)
	flood := func(pod int) *v1alpha1.ConsumerReport {
		report := &v1alpha1.ConsumerReport{}
		for i := range 10_000 {
			report.Consumers = append(report.Consumers, consumer(v1beta1Name, fmt.Sprintf("0-bot-%d-%d", pod, i), "mallory", "2026-11-02"))
		}
		return report
	}
	status := known
	changes := 0
	const looks = 10
	for look := range looks {
		next := MergeConsumers(status, []*v1alpha1.ConsumerReport{flood(look)}, now)
		if cmp.Diff(status, next) != "" {
			changes++
		}
		status = next
	}
	if len(status) != v1alpha1.MaxConsumers {
		t.Errorf("%d clients in the status, want %d", len(status), v1alpha1.MaxConsumers)
	}
	if changes > 1 {
		t.Errorf("the status changed %d times in %d looks", changes, looks)
	}
	for _, want := range known {
		if !slices.Contains(status, want) {
			t.Errorf("%s is hidden by newcomers", want.UserAgent)
		}
	}
}

func TestDescribeConsumers(t *testing.T) {
	t.Parallel()
	many := []v1alpha1.ConsumerStatus{hpaOf(v1beta1Name, "2026-11-01")}
	for i := range 7 {
		many = append(many, consumer(v1beta1Name, fmt.Sprintf("client-%d", i), "u", fmt.Sprintf("2026-11-0%d", 1+i%2)))
	}
	got := DescribeConsumers(many)
	want := "the HPA controller, kube-controller-manager (user system:serviceaccount:kube-system:horizontal-pod-autoscaler), which up to " +
		"Kubernetes 1.37 knows no other version: without it no HorizontalPodAutoscaler scales by CPU or memory, client-0 (user u), " +
		"client-1 (user u), client-2 (user u), client-3 (user u) (and 3 more clients)"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range many {
		many[i].LastSeen = "2026-11-02"
	}
	if later := DescribeConsumers(many); later != got {
		t.Errorf("the next day it reads otherwise: %q", later)
	}
	shared := consumer(v1Name, controllerManager, "system:kube-controller-manager", "2026-11-01")
	if got := DescribeConsumers([]v1alpha1.ConsumerStatus{shared}); !strings.HasPrefix(got, "the HPA controller, ") || strings.Contains(got, "1.37") {
		t.Errorf("the HPA controller on v1, without credentials of its own: %q", got)
	}
}

// Whatever a pod reports, the status contains bounded, printable names.
func FuzzMergeConsumers(f *testing.F) {
	f.Add(v1Name, "kubectl", "jane", "2026-11-01")
	f.Add(v1beta1Name, "\x1b[2J", strings.Repeat("\xff", 2000), "2026-11-02")
	f.Fuzz(func(t *testing.T, version, userAgent, user, day string) {
		now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
		for _, c := range MergeConsumers(nil, []*v1alpha1.ConsumerReport{reportOf(consumer(version, userAgent, user, day))}, now) {
			for _, name := range []string{c.UserAgent, c.User} {
				if len(name) > maxConsumerName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("%q is in the status", name)
				}
			}
			if c.Version != v1Name && c.Version != v1beta1Name || c.LastSeen != "2026-11-01" && c.LastSeen != "2026-10-31" {
				t.Errorf("%+v is in the status", c)
			}
		}
	})
}
