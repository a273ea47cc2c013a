// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcemetrics

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/metricsbackend/metrics-backend-operator/serving/samplestore"
)

// emptyListVersion is the resourceVersion of a list without items. It is stable,
// older than any sample, and well-formed: neither "" nor "0", which clients take
// for "the newest" and "any".
const emptyListVersion = 1

// page collects the items of one list answer. Where the request has a limit, the
// items after the page are looked at, too: the first page counts them and takes
// the list's resourceVersion from all of them, later pages carry that version on.
type page struct {
	kind *kind
	// limit of items; 0 for none.
	limit int
	// after is the last key of the page before; the zero Key on the first.
	after samplestore.Key
	// version is that of the first page, or 0 on the first page itself.
	version int64
	// counted says that the answer tells the number of items that remain. As
	// everywhere, it does not where a selector applies.
	counted bool

	items     []object
	remaining int64
	// newest sample among all items, in milliseconds.
	newest int64
}

// newPage reads limit and continue. An invalid token, or one with a resourceVersion, is a 400.
func newPage(k *kind, namespace string, options *metainternalversion.ListOptions) (*page, error) {
	p := &page{kind: k, newest: emptyListVersion}
	if options == nil {
		return p, nil
	}
	p.limit = int(max(options.Limit, 0))
	p.counted = (options.LabelSelector == nil || options.LabelSelector.Empty()) &&
		(options.FieldSelector == nil || options.FieldSelector.Empty())
	if options.Continue == "" {
		return p, nil
	}
	var err error
	if p.after, p.version, err = decodeContinue(options.Continue, k.namespaced, namespace); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: %v", err))
	}
	if options.ResourceVersion != "" && options.ResourceVersion != "0" { // as storage.ValidateListOptions
		return nil, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	return p, nil
}

// reserve makes room for at most n items.
func (p *page) reserve(n int) {
	if p.limit > 0 {
		n = min(n, p.limit)
	}
	p.items = make([]object, 0, n)
}

// add takes an item in and returns whether the page wants to see more.
func (p *page) add(o *samplestore.Object) bool {
	p.newest = max(p.newest, int64(o.Point.Newest))
	if p.limit == 0 || len(p.items) < p.limit {
		p.items = append(p.items, object{kind: p.kind, point: o})
		return true
	}
	p.remaining++
	return p.counted || p.version == 0
}

// list returns the page as a list object.
func (p *page) list() *list {
	version := cmp.Or(p.version, p.newest)
	meta := &metav1.ListMeta{ResourceVersion: strconv.FormatInt(version, 10)}
	if p.remaining > 0 {
		meta.Continue = encodeContinue(p.items[len(p.items)-1].point.Key, version)
		if p.counted {
			meta.RemainingItemCount = &p.remaining
		}
	}
	return &list{ListInterface: meta, Items: p.items, kind: p.kind}
}

// encodeContinue makes the token that goes on after a key, in the format of
// kube-apiserver's own. It holds all there is to know: any replica can go on
// from it, at any time, whatever came or went in between.
func encodeContinue(last samplestore.Key, version int64) string {
	path := "/" + last.Name
	if last.Namespace != "" {
		path = "/" + last.Namespace + path
	}
	token, _ := apistorage.EncodeContinue(path, "/", version) // only a path without the prefix is an error
	return token
}

// decodeContinue is the reverse of encodeContinue for a list of pods, of one
// namespace or of all, or of nodes.
func decodeContinue(token string, namespaced bool, namespace string) (samplestore.Key, int64, error) {
	path, version, err := apistorage.DecodeContinue(token, "/")
	if err != nil {
		return samplestore.Key{}, 0, err
	}
	if version < 0 {
		return samplestore.Key{}, 0, apistorage.ErrInvalidStartRV
	}
	parts := strings.Split(path[1:], "/")
	var key samplestore.Key
	switch {
	case namespaced && len(parts) == 2:
		key = samplestore.Key{Namespace: parts[0], Name: parts[1]}
	case !namespaced && len(parts) == 1:
		key = samplestore.Key{Name: parts[0]}
	}
	if key.Name == "" || namespace != "" && key.Namespace != namespace {
		return samplestore.Key{}, 0, fmt.Errorf("%w: it belongs to another list", apistorage.ErrGenericInvalidKey)
	}
	return key, version, nil
}
