// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// labelSelector: a watch with a selector tells of what it selects, and of no more.
func labelSelector(ctx context.Context, t *target) (string, error) {
	all, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	selector := discriminating(foreign(t.settled(all)))
	if selector == nil {
		return "", unseen("no label tells some of the %d %s from the others", len(all.objects), t.resource.Name)
	}
	text := labels.Set(selector).String()
	got, err := t.initial(ctx, "", nil, params("labelSelector", text))
	if err != nil {
		return "", fmt.Errorf("labelSelector %s: %w", text, err)
	}
	for _, o := range got {
		if !labels.SelectorFromSet(selector).Matches(labels.Set(o.Labels)) {
			return "", fmt.Errorf("labelSelector %s: sends %s, whose labels are %s", text, o.key(), labels.Set(o.Labels))
		}
	}
	return fmt.Sprintf("%s: %d of %d", text, len(got), len(all.objects)), nil
}

// foreign are the objects that no check has made, and so is about to remove.
func foreign(objects []Object) []Object {
	return slices.DeleteFunc(slices.Clone(objects), func(o Object) bool { return o.Labels[labelOfChecks] != "" })
}

// discriminating is a label that some objects have and some do not, by which
// most are left out.
func discriminating(objects []Object) map[string]string {
	counts := map[string]int{}
	set := map[string]map[string]string{}
	for _, o := range objects {
		for key, value := range o.Labels {
			one := map[string]string{key: value}
			text := labels.Set(one).String()
			counts[text]++
			set[text] = one
		}
	}
	best := ""
	for text, n := range counts {
		if n < len(objects) && (best == "" || n < counts[best] || n == counts[best] && text < best) {
			best = text
		}
	}
	return set[best]
}

// fieldSelector: `kubectl get NAME --watch` asks so.
func fieldSelector(ctx context.Context, t *target) (string, error) {
	all, err := t.list(ctx, nil)
	if err != nil {
		return "", err
	}
	objects := foreign(t.settled(all))
	if len(objects) == 0 {
		return "", unseen("there are no %s", t.resource.Name)
	}
	one := objects[0]
	by := []string{"metadata.name=" + one.Name}
	if t.resource.Namespaced {
		by = append(by, "metadata.namespace="+one.Namespace, by[0]+",metadata.namespace="+one.Namespace)
	}
	for i, selector := range by {
		got, err := t.initial(ctx, "", nil, params("fieldSelector", selector))
		if err != nil {
			return "", fmt.Errorf("fieldSelector %s: %w", selector, err)
		}
		for _, o := range got {
			if i != 1 && o.Name != one.Name || i > 0 && o.Namespace != one.Namespace {
				return "", fmt.Errorf("fieldSelector %s: sends %s", selector, o.key())
			}
		}
	}
	return fmt.Sprintf("by %q", by), nil
}

// Pods makes pods that a check may change.
type Pods interface {
	// Create returns when the pod runs.
	Create(ctx context.Context, labels map[string]string) (namespace, name string, err error)
	Relabel(ctx context.Context, namespace, name string, labels map[string]string) error
	Delete(ctx context.Context, namespace, name string) error
}

func writing(o *Options) (string, bool) { return "-write-namespace", o.Pods != nil }

const (
	labelOfChecks = "watchconformance"
	matching      = labelOfChecks + "=matching"
)

// before says that an event is of an older data point of the same object, which another
// stream may have been late to send. It knows only of resourceVersions that are numbers.
func before(a, b event) bool {
	older, err := strconv.ParseInt(a.Object.ResourceVersion, 10, 64)
	newer, otherErr := strconv.ParseInt(b.Object.ResourceVersion, 10, 64)
	return err == nil && otherErr == nil && older < newer
}

// labelsThatStopMatching: such a pod's updates just end. Nothing says so, as there
// is no DELETED.
func labelsThatStopMatching(ctx context.Context, t *target) (_ string, err error) {
	own := map[string]string{labelOfChecks: "matching", labelOfChecks + "-version": t.version}
	namespace, name, err := t.options.Pods.Create(ctx, own)
	if err != nil {
		return "", err
	}
	defer func() {
		// Whatever became of the check: the pod is ours to remove.
		err = errors.Join(err, t.options.Pods.Delete(context.WithoutCancel(ctx), namespace, name))
	}()
	// A new pod has metrics when it was sampled twice.
	ctx, cancel := context.WithTimeout(ctx, 8*t.options.PointInterval+2*t.options.Patience)
	defer cancel()
	selector := matching + "," + labelOfChecks + "-version=" + t.version
	selected, err := t.watchIn(ctx, namespace, params("labelSelector", selector))
	if err != nil {
		return "", err
	}
	defer selected.close()
	if err := selected.each(ctx, func(e event) bool { return e.Type == "ADDED" && e.Object.Name == name }); err != nil {
		return "", fmt.Errorf("the new pod %s/%s is not sent: %w", namespace, name, err)
	}
	named, err := t.watchIn(ctx, namespace, params("fieldSelector", "metadata.name="+name))
	if err != nil {
		return "", err
	}
	defer named.close()
	if err := t.options.Pods.Relabel(ctx, namespace, name, map[string]string{labelOfChecks: "other", labelOfChecks + "-version": t.version}); err != nil {
		return "", err
	}
	// Both streams tell of what the server knew at the moment: read them together.
	var changed event // the first data point with the new labels
	points := 0
	for {
		select {
		case e, open := <-named.events:
			if !open {
				return "", ended(named, named.err)
			}
			if e.Type != "ADDED" || e.Object.Labels[labelOfChecks] != "other" {
				continue
			}
			if points++; points == 1 {
				changed = e
			}
			if points == 3 {
				return "its updates ended, and nothing else came", nil
			}
		case e, open := <-selected.events:
			switch {
			case !open:
				return "", ended(selected, selected.err)
			case e.Type != "ADDED":
				return "", fmt.Errorf("an event of type %s for the pod that stopped to match: %.300s", e.Type, e.Raw)
			case e.Object.Labels[labelOfChecks] != "matching":
				return "", fmt.Errorf("labelSelector %s: sends %s, whose labels are %s", selector, e.Object.key(), labels.Set(e.Object.Labels))
			case points > 1 && !before(e, changed):
				return "", fmt.Errorf("labelSelector %s: still sends %s, %s after its labels were known to have changed", selector, e.Object.key(), e.At.Sub(changed.At).Round(time.Millisecond))
			}
		case <-ctx.Done():
			return "", unseen("the pod %s/%s had %d data points with its new labels in time", namespace, name, points)
		}
	}
}
