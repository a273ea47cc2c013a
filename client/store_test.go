// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type sampled struct {
	Name    string
	At      int64
	Version string
}

func TestStore(t *testing.T) {
	t0 := time.Unix(1000, 0)
	const maxAge = time.Minute
	type act func(*store[sampled])
	put := func(after time.Duration, name string, at int64, version string) act {
		return func(p *store[sampled]) { p.put(&sampled{name, at, version}, t0.Add(after)) }
	}
	expire := func(after time.Duration) act { return func(p *store[sampled]) { p.expire(t0.Add(after)) } }
	for name, c := range map[string]struct {
		acts []act
		at   time.Duration
		want []sampled
		told []string
	}{
		"a new point renews": {
			[]act{put(0, "a", 1, "x"), put(50*time.Second, "a", 2, "y"), expire(70 * time.Second)}, 70 * time.Second,
			[]sampled{{"a", 2, "y"}}, []string{"Updated a 1", "Updated a 2"},
		},
		"the same point renews nothing": {
			[]act{put(0, "a", 1, "x"), put(50*time.Second, "a", 1, "x"), expire(60 * time.Second)}, 60 * time.Second,
			nil, []string{"Updated a 1", "Dropped a 1"},
		},
		"a dropped point does not come back": {
			[]act{put(0, "a", 1, "x"), expire(60 * time.Second), put(61*time.Second, "a", 1, "x")}, 62 * time.Second,
			nil, []string{"Updated a 1", "Dropped a 1"},
		},
		"a dropped object does": {
			[]act{put(0, "a", 5, "x"), expire(60 * time.Second), put(61*time.Second, "a", 4, "y")}, 62 * time.Second,
			[]sampled{{"a", 4, "y"}}, []string{"Updated a 5", "Dropped a 5", "Updated a 4"},
		},
		"another replica's older point is not taken": {
			[]act{put(0, "a", 5, "x"), put(1, "a", 4, "y")}, 2,
			[]sampled{{"a", 5, "x"}}, []string{"Updated a 5"},
		},
		"equal times, as metrics-server's seconds, differ by resourceVersion": {
			[]act{put(0, "a", 5, "x"), put(1, "a", 5, "y")}, 2,
			[]sampled{{"a", 5, "y"}}, []string{"Updated a 5", "Updated a 5"},
		},
		"too old at the moment of reading, though nothing expired it": {
			[]act{put(0, "a", 5, "x"), put(1, "b", 5, "x")}, maxAge,
			[]sampled{{"b", 5, "x"}}, []string{"Updated a 5", "Updated b 5"},
		},
		"a list is complete": {
			[]act{put(0, "a", 5, "x"), put(0, "b", 5, "x"), func(p *store[sampled]) {
				p.replace([]*sampled{{"c", 6, "x"}, {"b", 5, "x"}}, t0)
			}}, 1,
			[]sampled{{"b", 5, "x"}, {"c", 6, "x"}}, []string{"Updated a 5", "Updated b 5", "Updated c 6", "Dropped a 5"},
		},
		"removed": {
			[]act{put(0, "a", 5, "x"), func(p *store[sampled]) { p.remove(&sampled{Name: "a"}); p.remove(&sampled{Name: "b"}) }}, 1,
			nil, []string{"Updated a 5", "Dropped a 5"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestStore(maxAge)
			var told []string
			for _, act := range c.acts {
				act(p)
				told = append(told, drain(p.changes)...)
			}
			var got []sampled
			for _, s := range p.snapshot("", t0.Add(c.at)) {
				got = append(got, *s)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.told, told); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A snapshot of one namespace has all its objects, and no others.
func TestStoreOfANamespace(t *testing.T) {
	p, t0 := newTestStore(time.Minute), time.Unix(0, 0)
	p.replace([]*sampled{{Name: "shop/b"}, {Name: "shop/a"}, {Name: "shop-2/a"}, {Name: "other/a"}}, t0)
	p.put(&sampled{Name: "shop/c"}, t0.Add(30*time.Second))
	p.remove(&sampled{Name: "other/a"})
	for _, c := range []struct {
		namespace string
		at        time.Duration
		want      string
	}{
		{"shop", 0, "shop/a shop/b shop/c"},
		{"shop-2", 0, "shop-2/a"},
		{"other", 0, ""},
		{"", 0, "shop-2/a shop/a shop/b shop/c"},
		{"shop", time.Minute, "shop/c"}, // nothing expired them yet
	} {
		var got []string
		for _, s := range p.snapshot(c.namespace, t0.Add(c.at)) {
			got = append(got, s.Name)
		}
		if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%q after %v: %s", c.namespace, c.at, diff)
		}
	}
}

func newTestStore(maxAge time.Duration) *store[sampled] {
	return newStore(api[sampled]{
		key:      func(s *sampled) string { return s.Name },
		sampleID: func(s *sampled) (time.Time, string) { return time.Unix(s.At, 0), s.Version },
	}, maxAge)
}

func drain(f *changeQueue[sampled]) []string {
	var out []string
	for c, ok := f.pop(); ok; c, ok = f.pop() {
		out = append(out, strings.Join([]string{string(c.Type), c.Object.Name, string(rune('0' + c.Object.At))}, " "))
	}
	return out
}

// If changes are not read, objects that are gone leave nothing behind.
func TestUnreadChangesCostNothing(t *testing.T) {
	p := newTestStore(time.Minute)
	now := time.Unix(0, 0)
	for i := range 10_000 {
		now = now.Add(time.Second)
		p.put(&sampled{Name: strings.Repeat("x", i%997), At: int64(i)}, now)
		p.expire(now)
	}
	p.expire(now.Add(2 * time.Minute))
	sizes := []int{p.changes.queue.Len(), len(p.changes.pending), len(p.changes.known), len(p.entries), len(p.byNamespace), p.live}
	if slices.Max(sizes) != 0 {
		t.Errorf("left over: %v", sizes)
	}
}

func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		err     string
	}{
		"zero":           {Options{}, ""},
		"short age":      {Options{MaxAge: 90}, "option MaxAge is 90ns: give at least 1s"},
		"negative poll":  {Options{PollInterval: -time.Second}, "option PollInterval"},
		"negative retry": {Options{RetryWatch: -time.Second}, "option RetryWatch"},
		"long poll":      {Options{PollInterval: time.Minute}, "option PollInterval is 1m0s: with MaxAge 1m30s"},
		"labels":         {Options{LabelSelector: "a in"}, "option LabelSelector"},
		"fields":         {Options{FieldSelector: "metadata.name"}, "option FieldSelector"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.options.complete()
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got.MaxAge != 90*time.Second || got.PollInterval != 15*time.Second || got.RetryWatch != 5*time.Minute {
				t.Errorf("defaults: %+v", got)
			}
			for range 100 {
				if d := got.jitter(time.Second); d < time.Second/2 || d >= 3*time.Second/2 {
					t.Errorf("jitter: %v", d)
				}
			}
		})
	}
}
