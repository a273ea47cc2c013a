// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/metricsbackend/metrics-backend-operator/controllers/manifests"
)

// memoClient caches the results of a fake client, which encodes and decodes each object
// of a kind at each read. A read is cached until an object of the kind is written, a
// repeated apply until its object is. Everything that is written must go through it.
type memoClient struct {
	mu      sync.Mutex
	reads   map[string]map[readKey]*read
	applies map[objectKey]*apply
	// written counts the writes, without those known to change nothing.
	written int
	// previous are the answers before the last write of each kind. While stale is set, reads of that kind, or
	// of any, are answered by them; differs says, if compares is set, that the last read would be answered
	// differently, and lastKind is its kind.
	previous map[string]map[readKey]*read
	stale    string
	compares bool
	differs  bool
	lastKind string
}

const anyKind = "*"

type readKey struct {
	into reflect.Type
	what string
}

type read struct {
	answer runtime.Object
	err    error
}

type objectKey struct {
	kind string
	key  client.ObjectKey
}

type apply struct{ asked, answer []byte }

func newMemoClient() *memoClient {
	return &memoClient{reads: map[string]map[readKey]*read{}, previous: map[string]map[readKey]*read{}, applies: map[objectKey]*apply{}}
}

// clone returns a copy of what is remembered.
func (m *memoClient) clone() *memoClient {
	clone := newMemoClient()
	clone.copy(m)
	return clone
}

// copy remembers what the other remembers. Answers are never changed.
func (m *memoClient) copy(other *memoClient) {
	m.applies = maps.Clone(other.applies)
	for kind, reads := range other.reads {
		m.reads[kind] = maps.Clone(reads)
	}
	for kind, reads := range other.previous {
		m.previous[kind] = maps.Clone(reads)
	}
}

// wrap returns a client that caches the results of c, without managedFields, like the
// operator's cache.
func (m *memoClient) wrap(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return m.read(c, o, key.String(), func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			options := (&client.ListOptions{}).ApplyOptions(opts)
			return m.read(c, l, fmt.Sprint(options.Namespace, " ", options.LabelSelector, " ", options.FieldSelector),
				func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return m.write(c, o, func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return m.write(c, o, func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return m.write(c, o, func() error { return c.Patch(ctx, o, p, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return m.write(c, o, func() error { return c.Delete(ctx, o, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return m.write(c, o, func() error { return c.SubResource(name).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return m.write(c, o, func() error { return c.SubResource(name).Patch(ctx, o, p, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return m.apply(ctx, c, o, opts)
		},
		DeleteAllOf: func(context.Context, client.WithWatch, client.Object, ...client.DeleteAllOfOption) error {
			return errors.New("the memory does not know what this deletes")
		},
		SubResourceApply: func(context.Context, client.Client, string, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
			return errors.New("the memory does not know what this writes")
		},
	})
}

func (m *memoClient) read(c client.Client, into runtime.Object, what string, ask func() error) error {
	gvk, err := c.GroupVersionKindFor(into)
	if err != nil {
		return err
	}
	kind := gvk.Kind
	// By its kind: Unstructured has the methods of a list, too.
	if item, isList := strings.CutSuffix(kind, "List"); isList {
		kind = item
		what = "list " + what
	}
	key := readKey{reflect.TypeOf(into), what}
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.reads[kind][key]
	before := m.previous[kind][key]
	m.lastKind = kind
	if before != nil && (m.stale == kind || m.stale == anyKind) {
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(before.answer.DeepCopyObject()).Elem())
		return before.err
	}
	if before != nil && m.compares {
		defer func() { m.differs = !reflect.DeepEqual(before.answer, m.reads[kind][key].answer) }()
	}
	if !ok {
		known = &read{err: ask()}
		if err := withoutManagedFields(into); err != nil {
			return err
		}
		known.answer = into.DeepCopyObject()
		if m.reads[kind] == nil {
			m.reads[kind] = map[readKey]*read{}
		}
		m.reads[kind][key] = known
		return known.err
	}
	reflect.ValueOf(into).Elem().Set(reflect.ValueOf(known.answer.DeepCopyObject()).Elem())
	return known.err
}

func (m *memoClient) write(c client.Client, o client.Object, do func() error) error {
	gvk, err := c.GroupVersionKindFor(o)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(gvk.Kind)
	delete(m.applies, objectKey{gvk.Kind, client.ObjectKeyFromObject(o)})
	m.written++
	if err := do(); err != nil {
		return err
	}
	return withoutManagedFields(o)
}

// forget forgets the answers of a kind, of which an object is written.
func (m *memoClient) forget(kind string) {
	if m.previous[kind] == nil {
		m.previous[kind] = map[readKey]*read{}
	}
	maps.Copy(m.previous[kind], m.reads[kind])
	delete(m.reads, kind)
}

func withoutManagedFields(o runtime.Object) error {
	if meta.IsListType(o) {
		return meta.EachListItem(o, withoutManagedFields)
	}
	accessor, err := meta.Accessor(o)
	if err != nil {
		return err
	}
	accessor.SetManagedFields(nil)
	return nil
}

func (m *memoClient) apply(ctx context.Context, c client.Client, o runtime.ApplyConfiguration, opts []client.ApplyOption) error {
	id, ok := o.(manifests.Object)
	if !ok {
		return fmt.Errorf("apply of %T, which has no name", o)
	}
	asked, err := json.Marshal([]any{(&client.ApplyOptions{}).ApplyOptions(opts), o})
	if err != nil {
		return err
	}
	key := objectKey{kind: *id.GetKind(), key: client.ObjectKey{Name: *id.GetName()}}
	if namespace := id.GetNamespace(); namespace != nil {
		key.key.Namespace = *namespace
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.applies[key]; known != nil && string(known.asked) == string(asked) {
		reflect.ValueOf(o).Elem().SetZero()
		return json.Unmarshal(known.answer, o)
	}
	m.forget(key.kind)
	delete(m.applies, key)
	m.written++
	if err := c.Apply(ctx, o, opts...); err != nil {
		return err
	}
	answer, err := json.Marshal(o)
	if err != nil {
		return err
	}
	m.applies[key] = &apply{asked, answer}
	return nil
}
