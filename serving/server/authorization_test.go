// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestAuthorizer: reviews are in protobuf, and there is none of what is always allowed.
func TestAuthorizer(t *testing.T) {
	var reviews []authorizationv1.SubjectAccessReviewSpec
	apiserver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Content-Type") + " " + r.Header.Get("Accept"); got != "application/vnd.kubernetes.protobuf application/vnd.kubernetes.protobuf,application/json" {
			t.Errorf("Content-Type and Accept: %s", got)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		review := &authorizationv1.SubjectAccessReview{}
		if err := runtime.DecodeInto(clientscheme.Codecs.UniversalDeserializer(), body, review); err != nil {
			t.Error(err)
		}
		reviews = append(reviews, review.Spec)
		review.Status.Allowed = review.Spec.User == "jane"
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(apiserver.Close)
	o := NewOptions()
	o.Authorization.RemoteKubeConfigFile = filepath.Join(t.TempDir(), "kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: apiserver.URL}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, o.Authorization.RemoteKubeConfigFile); err != nil {
		t.Fatal(err)
	}
	a, err := o.authorizer()
	if err != nil {
		t.Fatal(err)
	}
	pods := authorizer.AttributesRecord{Verb: "list", APIGroup: "metrics.k8s.io", APIVersion: "v1", Resource: "pods", ResourceRequest: true}
	asked := authorizationv1.ResourceAttributes{Verb: "list", Group: "metrics.k8s.io", Version: "v1", Resource: "pods"}
	for name, test := range map[string]struct {
		user       user.DefaultInfo
		attributes authorizer.AttributesRecord
		want       authorizer.Decision
		asked      []authorizationv1.SubjectAccessReviewSpec
	}{
		"may":            {user.DefaultInfo{Name: "jane"}, pods, authorizer.DecisionAllow, []authorizationv1.SubjectAccessReviewSpec{{User: "jane", ResourceAttributes: &asked}}},
		"may not":        {user.DefaultInfo{Name: "joe"}, pods, authorizer.DecisionNoOpinion, []authorizationv1.SubjectAccessReviewSpec{{User: "joe", ResourceAttributes: &asked}}},
		"administrators": {user.DefaultInfo{Name: "root", Groups: []string{user.SystemPrivilegedGroup}}, pods, authorizer.DecisionAllow, nil},
		"another implementation gets what is sent to one": {user.DefaultInfo{Name: "system:serviceaccount:ns:metrics-serving-b-metricsapi"}, authorizer.AttributesRecord{Verb: "get", Path: "/apis/external.metrics.k8s.io/v1beta1"}, authorizer.DecisionDeny, nil},
		"an account with a name that is similar": {user.DefaultInfo{Name: "system:serviceaccount:ns:metrics-serving-b-metricsapis"}, pods, authorizer.DecisionNoOpinion,
			[]authorizationv1.SubjectAccessReviewSpec{{User: "system:serviceaccount:ns:metrics-serving-b-metricsapis", ResourceAttributes: &asked}}},
		"probes": {user.DefaultInfo{Name: user.Anonymous}, authorizer.AttributesRecord{Verb: "get", Path: "/readyz"}, authorizer.DecisionAllow, nil},
	} {
		t.Run(name, func(t *testing.T) {
			reviews = nil
			test.attributes.User = &test.user
			got, _, err := a.Authorize(t.Context(), test.attributes)
			if err != nil || got != test.want {
				t.Errorf("decision %v, %v", got, err)
			}
			if diff := cmp.Diff(test.asked, reviews); diff != "" {
				t.Errorf("reviews (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("once for all namespaces", func(t *testing.T) {
		reviews = nil
		for _, namespace := range []string{"a", "b"} {
			watch := pods
			watch.User, watch.Verb, watch.Namespace = &user.DefaultInfo{Name: "jane"}, "watch", namespace
			if got, _, err := a.Authorize(t.Context(), watch); err != nil || got != authorizer.DecisionAllow {
				t.Errorf("decision %v, %v", got, err)
			}
		}
		watched := asked
		watched.Verb = "watch"
		if diff := cmp.Diff([]authorizationv1.SubjectAccessReviewSpec{{User: "jane", ResourceAttributes: &watched}}, reviews); diff != "" {
			t.Errorf("reviews (-want +got):\n%s", diff)
		}
	})
}

// TestWidestFirst checks the requests to the authorizer, in order, and the decision.
func TestWidestFirst(t *testing.T) {
	byLabel, err := labels.ParseToRequirements("app=web")
	if err != nil {
		t.Fatal(err)
	}
	byField := fields.OneTermEqualSelector("metadata.name", "a").Requirements()
	broken := errors.New("kube-apiserver is away")
	const allow, deny, none = authorizer.DecisionAllow, authorizer.DecisionDeny, authorizer.DecisionNoOpinion
	for name, test := range map[string]struct {
		attributes authorizer.AttributesRecord
		// all is the decision for all metrics, objects that for all objects, broad that without selectors, narrow the one
		// with them.
		all, objects        authorizer.Decision
		broad, narrow       authorizer.Decision
		broadErr, narrowErr error
		// wideErr is the error for all metrics and all objects.
		wideErr error
		asked   []string
		want    authorizer.Decision
		wantErr error
	}{
		"without selectors, yes": {narrow: allow, asked: []string{"narrow"}, want: allow},
		"without selectors, no":  {narrow: none, asked: []string{"narrow"}, want: none},
		"all objects are allowed": {
			attributes: authorizer.AttributesRecord{LabelSelectorRequirements: byLabel},
			broad:      allow, narrow: none, asked: []string{"broad"}, want: allow,
		},
		"some objects are allowed": {
			attributes: authorizer.AttributesRecord{FieldSelectorRequirements: byField},
			broad:      none, narrow: allow, asked: []string{"broad", "narrow"}, want: allow,
		},
		"no object is allowed": {
			attributes: authorizer.AttributesRecord{FieldSelectorRequirements: byField, LabelSelectorRequirements: byLabel},
			broad:      deny, narrow: deny, asked: []string{"broad", "narrow"}, want: deny,
		},
		"a selector that nobody can parse narrows nothing": {
			attributes: authorizer.AttributesRecord{LabelSelectorParsingErr: errors.New("malformed")},
			broad:      none, narrow: none, asked: []string{"broad", "narrow"}, want: none,
		},
		"no answer to the broad question": {
			attributes: authorizer.AttributesRecord{LabelSelectorRequirements: byLabel},
			broad:      allow, broadErr: broken, narrow: allow, asked: []string{"broad"}, want: none, wantErr: broken,
		},
		"no answer to the narrow question": {
			attributes: authorizer.AttributesRecord{LabelSelectorRequirements: byLabel},
			broad:      none, narrow: none, narrowErr: broken, asked: []string{"broad", "narrow"}, want: none, wantErr: broken,
		},
		"all metrics are allowed": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "external.metrics.k8s.io", Resource: "depth", LabelSelectorRequirements: byLabel},
			all:        allow, broad: none, narrow: none, asked: []string{"all"}, want: allow,
		},
		"a metric is allowed": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "custom.metrics.k8s.io", Resource: "pods", Subresource: "hits"},
			all:        none, narrow: allow, asked: []string{"all", "narrow"}, want: allow,
		},
		"some values of a metric are allowed": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "external.metrics.k8s.io", Resource: "depth", LabelSelectorRequirements: byLabel},
			all:        deny, broad: none, narrow: allow, asked: []string{"all", "broad", "narrow"}, want: allow,
		},
		"no answer to the question about all metrics": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "external.metrics.k8s.io", Resource: "depth"},
			wideErr:    broken, narrow: allow, asked: []string{"all"}, want: none, wantErr: broken,
		},
		"no answer to the question about all pods": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "metrics.k8s.io", Resource: "pods", Namespace: "ns"},
			wideErr:    broken, narrow: allow, asked: []string{"objects"}, want: none, wantErr: broken,
		},
		"nodes by a selector": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "metrics.k8s.io", Resource: "nodes", LabelSelectorRequirements: byLabel},
			broad:      allow, narrow: none, asked: []string{"broad"}, want: allow,
		},
		"all pods are allowed": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "metrics.k8s.io", Resource: "pods", Namespace: "ns", Name: "a"},
			objects:    allow, narrow: none, asked: []string{"objects"}, want: allow,
		},
		"all pods are allowed, and those of a namespace are read": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "metrics.k8s.io", Resource: "pods", Namespace: "ns", LabelSelectorRequirements: byLabel},
			objects:    allow, broad: none, narrow: none, asked: []string{"objects"}, want: allow,
		},
		"the pods of a namespace are allowed": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "metrics.k8s.io", Resource: "pods", Namespace: "ns", LabelSelectorRequirements: byLabel},
			objects:    none, broad: allow, narrow: none, asked: []string{"objects", "broad"}, want: allow,
		},
		"some pods of a namespace are allowed": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "metrics.k8s.io", Resource: "pods", Namespace: "ns", LabelSelectorRequirements: byLabel},
			objects:    none, broad: deny, narrow: allow, asked: []string{"objects", "broad", "narrow"}, want: allow,
		},
		"a pod is allowed": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "metrics.k8s.io", Resource: "pods", Namespace: "ns", Name: "a"},
			objects:    none, narrow: allow, asked: []string{"objects", "narrow"}, want: allow,
		},
		"no pod is allowed": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "metrics.k8s.io", Resource: "pods", Namespace: "ns", Name: "a"},
			objects:    deny, narrow: deny, asked: []string{"objects", "narrow"}, want: deny,
		},
		"pods are no metrics": {
			attributes: authorizer.AttributesRecord{ResourceRequest: true, APIGroup: "metrics.k8s.io", Resource: "pods"},
			all:        allow, narrow: none, asked: []string{"narrow"}, want: none,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			b := &widestFirst{Authorizer: authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if _, all := a.(allMetrics); all {
					if got := fmt.Sprint(a.GetAPIGroup() == test.attributes.APIGroup, a.GetNamespace(), a.GetResource(), a.GetSubresource(), a.GetName(), selects(a)); got != "true*false" {
						t.Errorf("the question about all metrics is %s", got)
					}
					asked = append(asked, "all")
					return test.all, "", test.wideErr
				}
				if _, objects := a.(allObjects); objects {
					if got := fmt.Sprint(a.GetAPIGroup(), a.GetNamespace(), a.GetResource(), a.GetName(), selects(a)); got != "metrics.k8s.iopodsfalse" {
						t.Errorf("the question about all objects is %s", got)
					}
					asked = append(asked, "objects")
					return test.objects, "", test.wideErr
				}
				if _, broad := a.(unselective); broad {
					if selects(a) {
						t.Error("the broad question has selectors")
					}
					asked = append(asked, "broad")
					return test.broad, "", test.broadErr
				}
				asked = append(asked, "narrow")
				return test.narrow, "", test.narrowErr
			})}
			got, _, err := b.Authorize(t.Context(), test.attributes)
			if got != test.want || !errors.Is(err, test.wantErr) {
				t.Errorf("decision %v, %v, want %v, %v", got, err, test.want, test.wantErr)
			}
			if diff := cmp.Diff(test.asked, asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}

// TestWidestFirstSharesRequests: equal concurrent authorizations share one request and its error, also when
// the caller that started it has left; those of another user do not.
func TestWidestFirstSharesRequests(t *testing.T) {
	for name, test := range map[string]struct {
		decision authorizer.Decision
		err      error
	}{
		"allowed":   {authorizer.DecisionAllow, nil},
		"no answer": {authorizer.DecisionNoOpinion, errors.New("kube-apiserver is away")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testSharedRequest(t, test.decision, test.err) })
		})
	}
}

func testSharedRequest(t *testing.T, want authorizer.Decision, wantErr error) {
	answer := make(chan struct{})
	var asked atomic.Int64
	b := &widestFirst{Authorizer: authorizer.AuthorizerFunc(func(ctx context.Context, _ authorizer.Attributes) (authorizer.Decision, string, error) {
		asked.Add(1)
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("a request without a deadline")
		}
		select {
		case <-answer:
			return want, "", wantErr
		case <-ctx.Done():
			return authorizer.DecisionNoOpinion, "", ctx.Err()
		}
	})}
	ctx, leave := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	for i := range 100 {
		requirements, err := labels.ParseToRequirements(fmt.Sprintf("app=a-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		asking.Go(func() {
			decision, _, err := b.Authorize(ctx, authorizer.AttributesRecord{
				User: &user.DefaultInfo{Name: "user", Groups: []string{"group"}, Extra: map[string][]string{"n": {fmt.Sprint(i % 2)}}},
				Verb: "watch", Resource: "pods", ResourceRequest: true, LabelSelectorRequirements: requirements,
			})
			if decision != want || !errors.Is(err, wantErr) {
				t.Errorf("decision %v, %v", decision, err)
			}
		})
	}
	synctest.Wait()
	leave()
	synctest.Wait()
	close(answer)
	asking.Wait()
	if got := asked.Load(); got != 2 {
		t.Errorf("%d questions of two users", got)
	}
}
