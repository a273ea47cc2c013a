// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bytes"
	"mime"
	"net/http"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// codecs encode and decode all kinds that are served.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme)
}()

// mediaType returns the serializers of a media type.
func mediaType(name string) (runtime.SerializerInfo, bool) {
	return runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), name)
}

// representation is how a response is encoded.
type representation struct {
	info runtime.SerializerInfo
	// partial objects are PartialObjectMetadata.
	partial bool
}

var asJSON = func() representation {
	info, _ := mediaType(runtime.ContentTypeJSON)
	return representation{info: info}
}()

// negotiate returns the first representation in an Accept header that is served. Quality
// values are ignored.
func negotiate(accept string) (representation, error) {
	if accept == "" {
		return asJSON, nil
	}
	for clause := range strings.SplitSeq(accept, ",") {
		name, parameters, err := mime.ParseMediaType(strings.TrimSpace(clause))
		if err != nil {
			continue
		}
		if name == "*/*" || name == "application/*" {
			return asJSON, nil
		}
		info, ok := mediaType(name)
		if !ok || (name != runtime.ContentTypeJSON && name != runtime.ContentTypeProtobuf) {
			continue
		}
		switch kind := parameters["as"]; kind {
		case "":
			return representation{info: info}, nil
		case "PartialObjectMetadata", "PartialObjectMetadataList":
			if parameters["g"] == metav1.GroupName && parameters["v"] == "v1" {
				return representation{info: info, partial: true}, nil
			}
		}
	}
	return representation{}, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only " + runtime.ContentTypeJSON + " and " + runtime.ContentTypeProtobuf + " are served, as whole objects or PartialObjectMetadata",
	}}
}

// object returns an object as it is encoded alone, with its kind.
func (a representation) object(r *Resource, o *Object) runtime.Object {
	if a.partial {
		p := &metav1.PartialObjectMetadata{ObjectMeta: o.Meta}
		p.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		return p
	}
	whole := o.whole()
	whole.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(r.Kind))
	return whole
}

// whole returns the whole object with its metadata.
func (o *Object) whole() Whole {
	whole := o.Whole()
	copyMeta(&o.Meta, whole)
	return whole
}

func copyMeta(m *metav1.ObjectMeta, to metav1.Object) {
	to.SetName(m.Name)
	to.SetNamespace(m.Namespace)
	to.SetUID(m.UID)
	to.SetResourceVersion(m.ResourceVersion)
	to.SetCreationTimestamp(m.CreationTimestamp)
	to.SetLabels(m.Labels)
	to.SetAnnotations(m.Annotations)
	to.SetManagedFields(m.ManagedFields)
}

// bookmark returns an object that only has a resourceVersion. The last of the initial events
// has an annotation.
func (a representation) bookmark(r *Resource, endOfInitialEvents bool) runtime.Object {
	m := metav1.ObjectMeta{ResourceVersion: resourceVersion}
	if endOfInitialEvents {
		m.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return a.object(r, &Object{Meta: m, Whole: r.Empty})
}

// list returns the list of some objects.
func (a representation) list(r *Resource, selected []*Object) runtime.Object {
	if a.partial {
		list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: resourceVersion}, Items: make([]metav1.PartialObjectMetadata, len(selected))}
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		for i, o := range selected {
			list.Items[i].ObjectMeta = o.Meta
			list.Items[i].SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
		}
		return list
	}
	items := make([]runtime.Object, len(selected))
	for i, o := range selected {
		items[i] = o.whole()
	}
	list := r.List()
	utilruntime.Must(meta.SetList(list, items))
	list.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(r.Kind + "List"))
	if accessor, err := meta.ListAccessor(list); err == nil {
		accessor.SetResourceVersion(resourceVersion)
	}
	return list
}

// write responds with an object.
func (a representation) write(w http.ResponseWriter, status int, o runtime.Object) {
	var body bytes.Buffer
	if err := a.info.Serializer.Encode(o, &body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", a.info.MediaType)
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes())
}
