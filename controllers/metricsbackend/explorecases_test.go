// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsbackend

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/controllers/metricsbackend/lifecycle"
)

// change is a change of the spec, of the operator or of the cluster, and the state in which it ends whatever goes wrong.
type change struct {
	// after is the operator's default image from the change on, if the operator itself is changed; or empty.
	after           string
	prepare, change func(*fakeCluster)
	// meanwhile is what others do after each pass, or nil.
	meanwhile func(*fakeCluster)
	// other is a write of an APIService by another manager, which may happen at any time; or nil.
	other func(*fakeCluster)
	done  func(*fakeCluster) bool
	// older: an older MetricsBackend is reconciled, too. second: another operator runs.
	older, second bool
	// stays are versions that never leave discovery; with a fault, all that never do without it must stay, too.
	stays []schema.GroupVersion
	// behind is how many steps the second kube-apiserver is behind the first one; 0 means one.
	behind int
	// takes is a row of the table that is taken without a fault, or empty.
	takes string
	// anyStatus: the status at the end depends on what went wrong.
	anyStatus bool
}

func (c change) backends() []string {
	if c.older {
		return []string{olderName, backendName}
	}
	return []string{backendName}
}

// cluster returns the cluster of the change of that name, right after it.
func (c change) cluster(t *testing.T, name string) *fakeCluster {
	t.Helper()
	fc := prepared(t, "explore "+name, func(fc *fakeCluster) {
		fc.terminationSteps = 1
		if c.prepare != nil {
			c.prepare(fc)
		}
		fc.withViews(max(c.behind, 1))
	})
	if c.change != nil {
		c.change(fc)
	}
	return fc
}

// specOf changes image and versions.
func specOf(image string, versions ...v1alpha1.ResourceMetricsVersion) func(*fakeCluster) {
	return func(fc *fakeCluster) {
		fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
			spec.Serving.Image, spec.ResourceMetrics.Versions = image, versions
		})
	}
}

// readyAfter is ready after a change.
func readyAfter(change func(*fakeCluster)) func(*fakeCluster) {
	return func(fc *fakeCluster) {
		change(fc)
		becomeReadyWith(fc, "")
	}
}

// all makes several changes.
func all(changes ...func(*fakeCluster)) func(*fakeCluster) {
	return func(fc *fakeCluster) {
		for _, change := range changes {
			change(fc)
		}
	}
}

// changed is a change of the spec.
func changed(change func(*v1alpha1.MetricsBackendSpec)) func(*fakeCluster) {
	return func(fc *fakeCluster) { fc.change(change) }
}

func policy(p v1alpha1.AdoptionPolicy) func(*fakeCluster) { return changed(adopting(p)) }

// becomesUnavailable: kube-apiserver reports that metrics-server is.
func becomesUnavailable(fc *fakeCluster) {
	fc.setAvailable(fc.apiService(v1beta1), apiregistrationv1.ConditionFalse, "FailedDiscoveryCheck")
}

// theirsFails: metrics-server does not answer.
func theirsFails(fc *fakeCluster) { fc.failMetricsServer(errors.New("connection refused")) }

func stalledBy(reason string) func(*fakeCluster) bool {
	return func(fc *fakeCluster) bool { return fc.isStalledBy(reason) }
}

func deleteBackend(fc *fakeCluster) { fc.delete(fc.backend()) }

func notRegistered(versions ...schema.GroupVersion) func(*fakeCluster) bool {
	return func(fc *fakeCluster) bool {
		for _, gv := range versions {
			if fc.pointsToNow(gv) != "" {
				return false
			}
		}
		return true
	}
}

// replace makes an APIService of another manager.
func replace(gv schema.GroupVersion, labels map[string]string, to *apiregistrationv1.ServiceReference) func(*fakeCluster) {
	return func(fc *fakeCluster) {
		service := stockAPIService()
		service.Name, service.Labels, service.UID = apiServiceName(gv), labels, "uid-of-another"
		service.Spec.Group, service.Spec.Version, service.Spec.Service = gv.Group, gv.Version, to
		if to == nil {
			service.Spec.CABundle = nil
		}
		fc.create(service)
	}
}

// changes are all changes that the explorer tries.
func changes() map[string]change {
	table := map[string]change{}
	for _, part := range []map[string]change{ownChanges(), takeovers(), refusals(), failures(), others()} {
		maps.Copy(table, part)
	}
	return table
}

// ownChanges are of our pods alone.
func ownChanges() map[string]change {
	const both, older = imageBoth, imageV1beta1
	ready, lacksV1 := (*fakeCluster).isReady, (*fakeCluster).reportsNotServed
	groups := func(image string) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Serving.Image = image; withAllGroups(spec) })
		}
	}
	// The operator was changed, and is changed again in the middle.
	halfway := func(from, to string) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			becomeReadyWith(fc, from)
			fc.reconcileRounds(fc.operator(to), 4)
		}
	}
	// Images without a readiness gate: only the order protects their clients.
	withoutGate := func(fc *fakeCluster) { fc.withoutGate = true }
	return map[string]change{
		"created": {done: ready},
		"a newer image and its version": {stays: []schema.GroupVersion{v1beta1},
			prepare: readyAfter(specOf(older, "v1beta1")), change: specOf(both, "v1", "v1beta1"), done: ready,
		},
		"an older image and its version": {stays: []schema.GroupVersion{v1beta1},
			prepare: readyAfter(specOf(both, "v1", "v1beta1")), change: all(withoutGate, specOf(older, "v1beta1")), done: ready,
		},
		"a version is added":             {prepare: readyAfter(specOf(both, "v1beta1")), change: specOf(both, "v1", "v1beta1"), done: ready},
		"a version is taken out":         {prepare: readyAfter(specOf(both, "v1", "v1beta1")), change: specOf(both, "v1beta1"), done: ready},
		"an older image that lacks v1":   {stays: []schema.GroupVersion{v1beta1}, prepare: readyAfter(specOf(both, "v1", "v1beta1")), change: specOf(older, "v1", "v1beta1"), done: lacksV1},
		"a newer image that has v1, too": {prepare: readyAfter(specOf(older, "v1", "v1beta1")), change: specOf(both, "v1", "v1beta1"), done: ready},
		"the operator is upgraded": {
			after: both, prepare: func(fc *fakeCluster) { becomeReadyWith(fc, older) }, done: ready,
		},
		"the operator is downgraded": {
			after: older, prepare: func(fc *fakeCluster) { becomeReadyWith(fc, both) }, done: lacksV1,
		},
		"the operator is upgraded in the middle of a downgrade": {
			after: both, prepare: halfway(both, older), done: ready,
		},
		"the operator is downgraded in the middle of an upgrade": {
			after: older, prepare: halfway(older, both), done: lacksV1,
		},
		"the operator is downgraded, and knows less": {
			after: both, prepare: registeredByALaterOperator,
			done: func(fc *fakeCluster) bool { return fc.isReady() && fc.deployedImage() == both && !fc.isRegistered(v2) },
		},
		"groups are added, with the image that serves them": {
			prepare: readyAfter(specOf(older, "v1beta1")), change: groups(both),
			done: func(fc *fakeCluster) bool { return fc.isReady() && len(fc.registeredVersions()) == 5 },
		},
		"groups are taken out, with the image that serves them": {
			prepare: readyAfter(groups(both)),
			change: all(withoutGate, func(fc *fakeCluster) {
				fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
					spec.CustomMetrics, spec.ExternalMetrics, spec.Sources = nil, nil, nil
					spec.ResourceMetrics.Versions, spec.Serving.Image = []v1alpha1.ResourceMetricsVersion{"v1beta1"}, older
				})
			}),
			done: func(fc *fakeCluster) bool { return fc.isReady() && fc.deployedImage() == older },
		},
		"a version is taken out that clients use": {stays: []schema.GroupVersion{v1, v1beta1},
			prepare: becomeReady, change: func(fc *fakeCluster) {
				fc.consumers = everyPod(hpaOf(v1beta1Name, fc.today()))
				fc.change(onlyV1)
			}, done: (*fakeCluster).isKept,
		},
		"the authority is rotated": {stays: []schema.GroupVersion{v1, v1beta1}, prepare: becomeReady, change: rotate("now"), done: ready},
		"a certificate from a Secret": {stays: []schema.GroupVersion{v1, v1beta1},
			prepare: becomeReady, change: func(fc *fakeCluster) { fc.provide("mine"); useSecret("mine")(fc) }, done: ready,
		},
		"no certificate from a Secret": {stays: []schema.GroupVersion{v1, v1beta1},
			prepare: func(fc *fakeCluster) { fc.provide("mine"); useSecret("mine")(fc); becomeReady(fc) }, change: managed, done: ready,
		},
		"deletion of all groups": {behind: 3, prepare: readyAfter(groups(both)), change: deleteBackend, done: (*fakeCluster).isGone},
		"deletion":               {behind: 3, prepare: becomeReady, change: deleteBackend, done: (*fakeCluster).isGone},
		"deletion before it is ready": {
			prepare: func(fc *fakeCluster) { fc.reconcileRounds(fc.reconciler(), 4) }, change: deleteBackend, done: (*fakeCluster).isGone,
		},
	}
}

// waitingCluster has metrics-server, and a backend whose pods are ready and that takes nothing over as long as it answers.
func waitingCluster(fc *fakeCluster) {
	stockCluster(fc)
	policy(v1alpha1.AdoptionIfUnavailable)(fc)
	fc.reconcileUntil(fc.reconciler(), func() bool {
		return fc.isStalledBy(v1alpha1.ReasonNotOwned) && fc.condition(v1alpha1.ConditionServingReady).Status == metav1.ConditionTrue
	})
}

// testedCluster is waitingCluster, whose backend has added its authority to the caBundle of theirs.
func testedCluster(fc *fakeCluster) {
	waitingCluster(fc)
	policy(v1alpha1.AdoptionAlways)(fc)
	fc.reconcileUntil(fc.reconciler(), func() bool { return !fc.isTheirs(v1beta1) })
}

// isTheirs reports whether the version is metrics-server's, as it was.
func (fc *fakeCluster) isTheirs(gv schema.GroupVersion) bool {
	return fc.pointsToNow(gv) == metricsServer && string(fc.apiService(gv).Spec.CABundle) == theirCA
}

func isAdopted(fc *fakeCluster) bool {
	return fc.pointsToNow(v1beta1) == ourService && lifecycle.AdoptedFrom(fc.apiService(v1beta1)) != ""
}

// takeovers are from metrics-server, and back to it.
func takeovers() map[string]change {
	ready := (*fakeCluster).isReady
	reapplied := fieldManagers()["server-side apply"]
	return map[string]change{
		"taken over":                  {stays: []schema.GroupVersion{v1beta1}, prepare: waitingCluster, change: policy(v1alpha1.AdoptionAlways), other: reapplied, done: ready},
		"v1 beside v1beta1 of theirs": {prepare: waitingCluster, change: all(policy(v1alpha1.AdoptionAlways), changed(onlyV1)), done: ready},
		"beside v2 of theirs": {
			change: all(policy(v1alpha1.AdoptionAlways), replace(v2, nil, &apiregistrationv1.ServiceReference{Namespace: "other-ns", Name: "other", Port: ptr.To[int32](443)})),
			done:   ready,
			takes:  "another version of the group is on trial",
		},
		"what was taken over is deleted": {
			prepare: adoptedCluster, change: func(fc *fakeCluster) { fc.delete(fc.apiService(v1beta1)) },
			done: func(fc *fakeCluster) bool { return fc.isReady() && isAdopted(fc) },
		},
		"what was taken over is deleted, and then the MetricsBackend": {
			prepare: adoptedCluster, change: func(fc *fakeCluster) { fc.delete(fc.apiService(v1beta1)) },
			meanwhile: func(fc *fakeCluster) {
				if fc.pointsToNow(v1beta1) == ourService {
					deleteBackend(fc)
				}
			},
			done: func(fc *fakeCluster) bool { return fc.isGone() && fc.pointsToNow(v1beta1) == metricsServer },
		},
		"Refuse while our authority is tested": {stays: []schema.GroupVersion{v1beta1},
			prepare: testedCluster, change: policy(v1alpha1.AdoptionRefuse),
			done: func(fc *fakeCluster) bool { return fc.isStalledBy(v1alpha1.ReasonNotOwned) && fc.isTheirs(v1beta1) },
		},
		"deletion while our authority is tested": {stays: []schema.GroupVersion{v1beta1},
			prepare: testedCluster, change: deleteBackend,
			done: func(fc *fakeCluster) bool { return fc.isGone() && fc.isTheirs(v1beta1) },
		},
		"a version is added beside one that another manager has taken back": {
			prepare: func(fc *fakeCluster) {
				stockCluster(fc)
				changed(onlyV1beta1)(fc)
				policy(v1alpha1.AdoptionAlways)(fc)
				becomeReady(fc)
				fc.other.checked = false
			},
			change: all(reapplied, specOf(imageBoth, "v1", "v1beta1")),
			meanwhile: func(fc *fakeCluster) {
				if fc.pointsToNow(v1beta1) == ourService {
					reapplied(fc)
				}
			},
			done: func(fc *fakeCluster) bool {
				return fc.isStalledBy(v1alpha1.ReasonContested) && fc.pointsToNow(v1) == ourService
			},
			takes: "another version of the group is someone else's: Register",
		},
		"taken over as it is unavailable": {stays: []schema.GroupVersion{v1beta1},
			prepare: waitingCluster,
			change:  all(becomesUnavailable, theirsFails), done: ready,
		},
		"given back": {stays: []schema.GroupVersion{v1beta1}, behind: 3,
			prepare: adoptedCluster, change: deleteBackend, other: reapplied,
			done: func(fc *fakeCluster) bool { return fc.isGone() && fc.pointsToNow(v1beta1) == metricsServer },
		},
		"v1beta1 alone is given back": {stays: []schema.GroupVersion{v1beta1}, behind: 3,
			prepare: func(fc *fakeCluster) {
				adoptedCluster(fc)
				fc.change(onlyV1beta1)
				fc.reconcileUntil(fc.reconciler(), fc.isReady)
			},
			change: deleteBackend,
			done:   func(fc *fakeCluster) bool { return fc.isGone() && fc.pointsToNow(v1beta1) == metricsServer },
		},
		"given back by the spec": {stays: []schema.GroupVersion{v1beta1}, behind: 3,
			prepare: adoptedCluster, change: changed(onlyV1),
			done: func(fc *fakeCluster) bool { return fc.isReady() && fc.pointsToNow(v1beta1) == metricsServer },
		},
		"given back to an owner that fails for a while": {
			prepare: adoptedCluster, change: all(deleteBackend, failsForAWhile, theirsFails),
			meanwhile: func(fc *fakeCluster) {
				if !fc.stillFails() {
					clear(fc.other.failing)
				}
			},
			done: func(fc *fakeCluster) bool { return fc.isGone() && fc.pointsToNow(v1beta1) == metricsServer },
		},
		"not given back to an owner that fails": {
			prepare: adoptedCluster, change: all(deleteBackend, theirsFails),
			done: func(fc *fakeCluster) bool { return fc.isGone() && fc.pointsToNow(v1beta1) == "" },
		},
		"not given back without a record": {
			prepare: adoptedCluster, change: all(func(fc *fakeCluster) {
				fc.editAPIService(v1beta1, func(s *apiregistrationv1.APIService) { s.Annotations[v1alpha1.AnnotationPreviousOwner] = "nonsense" })
			}, changed(onlyV1)),
			done: (*fakeCluster).isReady,
		},
		"left to the manager that took it back": {stays: []schema.GroupVersion{v1beta1},
			prepare: adoptedCluster, change: all(reapplied, deleteBackend),
			done: func(fc *fakeCluster) bool { return fc.isGone() && fc.pointsToNow(v1beta1) == metricsServer },
		},
		"from serving to existing": {stays: []schema.GroupVersion{v1beta1}, behind: 3,
			prepare: besideOther, change: moveToExisting,
			done: func(fc *fakeCluster) bool { return fc.isReady() && !fc.deployed() && len(fc.pods()) == 0 },
		},
		"from existing to serving": {stays: []schema.GroupVersion{v1beta1}, prepare: existingCluster, change: moveToServing, done: ready},
		"from existing to serving that serves less": {
			prepare: func(fc *fakeCluster) {
				existingCluster(fc)
				fc.scaleMetricsServer(2, v1, v1beta1)
				fc.reconcileUntil(fc.reconciler(), func() bool { return fc.isReady() && fc.isRegistered(v1) })
			},
			change: func(fc *fakeCluster) {
				fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing, spec.Serving.Image = nil, imageV1beta1 })
			},
			done: func(fc *fakeCluster) bool { return fc.reportsNotServed() && fc.pointsToNow(v1beta1) == ourService },
		},
		"the Service of spec.existing goes": {
			prepare: existingCluster, change: func(fc *fakeCluster) {
				fc.scaleMetricsServer(0)
				fc.delete(otherService(fc))
			}, done: notRegistered(v1beta1),
		},
		"another spec.existing, and the Service of the first one goes": {
			prepare: existingCluster, change: func(fc *fakeCluster) {
				fc.change(func(spec *v1alpha1.MetricsBackendSpec) { spec.Existing.Service.Name = "another" })
				fc.scaleMetricsServer(0)
				fc.delete(otherService(fc))
			}, done: notRegistered(v1beta1),
		},
		"a caBundle beside spec.existing": {
			prepare: existingCluster, change: func(fc *fakeCluster) {
				fc.editAPIService(v1beta1, func(s *apiregistrationv1.APIService) {
					s.Spec.CABundle, s.Spec.InsecureSkipTLSVerify = []byte(theirCA), false
				})
			},
			done: func(fc *fakeCluster) bool { return fc.apiService(v1beta1).Spec.InsecureSkipTLSVerify },
		},
	}
}

func failsForAWhile(fc *fakeCluster) { fc.failsUntil = fc.clock.Now().Add(15 * time.Second) }

func (fc *fakeCluster) stillFails() bool { return fc.clock.Now().Before(fc.failsUntil) }

// refusals are APIServices that stay as they are.
func refusals() map[string]change {
	notOwned := stalledBy(v1alpha1.ReasonNotOwned)
	theirs := &apiregistrationv1.ServiceReference{Namespace: "other-ns", Name: "metrics-serving-other", Port: ptr.To[int32](443)}
	labelled := map[string]string{v1alpha1.LabelBackend: "other"}
	return map[string]change{
		"Refuse":                                 {prepare: stockCluster, change: policy(v1alpha1.AdoptionRefuse), done: notOwned},
		"IfUnavailable, and it answers":          {prepare: stockCluster, change: policy(v1alpha1.AdoptionIfUnavailable), done: notOwned},
		"v1 is served by kube-apiserver":         {change: replace(v1, nil, nil), done: notOwned},
		"v1 is of a MetricsBackend that is gone": {change: replace(v1, labelled, theirs), done: notOwned},
		"v1 is of another MetricsBackend": {
			change: all(replace(v1, labelled, theirs), func(fc *fakeCluster) {
				other := newBackend(func(spec *v1alpha1.MetricsBackendSpec) { spec.ResourceMetrics = nil })
				other.Name, other.UID = "other", "uid-other"
				fc.create(other)
			}),
			done: notOwned,
		},
		"v1 is served by kube-apiserver, with our label": {change: replace(v1, map[string]string{v1alpha1.LabelBackend: backendName}, nil), done: notOwned},
		"all groups, of which one is someone else's": {
			stays: []schema.GroupVersion{externalV1beta1}, prepare: kedas, change: changed(withAllGroups),
			done: func(fc *fakeCluster) bool {
				return fc.isStalledBy(v1alpha1.ReasonNotOwned) && len(fc.registeredVersions()) == 4 && fc.pointsToNow(externalV1beta1) == keda
			},
		},
		"autoscalers would lose a metric": {
			stays: []schema.GroupVersion{externalV1beta1}, prepare: all(kedas, kedasMetric), change: changed(func(spec *v1alpha1.MetricsBackendSpec) {
				withAllGroups(spec)
				spec.ExternalMetrics.Adoption = v1alpha1.AdoptionAlways
			}),
			done: func(fc *fakeCluster) bool {
				return fc.isStalledBy(v1alpha1.ReasonNotOwned) && len(fc.registeredVersions()) == 4 && fc.pointsToNow(externalV1beta1) == keda
			},
			takes: "the APIService is someone else's, and autoscalers read metrics there that our pods do not answer, or that is not known",
		},
		"metrics-server is replaced, and another group is someone else's": {
			stays: []schema.GroupVersion{v1beta1, externalV1beta1}, prepare: all(stockCluster, kedas), change: all(changed(withAllGroups), policy(v1alpha1.AdoptionAlways)),
			done: func(fc *fakeCluster) bool {
				return fc.isStalledBy(v1alpha1.ReasonNotOwned) && len(fc.registeredVersions()) == 4 && fc.pointsToNow(externalV1beta1) == keda
			},
		},
		"the cluster's add-on manager keeps it": {stays: []schema.GroupVersion{v1beta1},
			prepare: all(stockCluster, func(fc *fakeCluster) {
				fc.editAPIService(v1beta1, func(s *apiregistrationv1.APIService) { s.Labels["addonmanager.kubernetes.io/mode"] = "Reconcile" })
			}),
			change: policy(v1alpha1.AdoptionAlways), done: func(fc *fakeCluster) bool { return notOwned(fc) && fc.isTheirs(v1beta1) },
		},
		"our label is lost": {prepare: becomeReady, change: func(fc *fakeCluster) { fc.loseLabel(v1Name) }, done: notOwned},
		"contested": {
			prepare: adoptedCluster, change: func(fc *fakeCluster) { fc.other.checked = false },
			meanwhile: func(fc *fakeCluster) {
				if fc.pointsToNow(v1beta1) == ourService {
					fieldManagers()["server-side apply"](fc)
				}
			},
			done: stalledBy(v1alpha1.ReasonContested),
		},
		"another manager keeps its caBundle before a takeover": {stays: []schema.GroupVersion{v1beta1},
			prepare: waitingCluster, change: policy(v1alpha1.AdoptionAlways), meanwhile: writesTheirCA,
			done: func(fc *fakeCluster) bool {
				return fc.isStalledBy(v1alpha1.ReasonContested) && fc.isTheirs(v1beta1) && strings.Contains(fc.condition(v1alpha1.ConditionStalled).Message, lifecycle.AuthorityRemoved)
			},
		},
		"another manager writes its caBundle after a takeover": {stays: []schema.GroupVersion{v1beta1},
			prepare: adoptedCluster, change: func(fc *fakeCluster) { fc.certs.untrusted, fc.other.checked = true, false }, meanwhile: writesTheirCA,
			done: func(fc *fakeCluster) bool {
				return fc.isStalledBy(v1alpha1.ReasonContested) && fc.pointsToNow(v1beta1) == metricsServer
			},
		},
		"another manager writes its caBundle into what nobody had before": {
			prepare: becomeReady, change: func(fc *fakeCluster) { fc.certs.untrusted = true }, meanwhile: writesTheirCA,
			done: func(fc *fakeCluster) bool {
				return fc.isStalledBy(v1alpha1.ReasonContested) && fc.pointsToNow(v1beta1) == ""
			},
		},
		"a missing Secret": {
			prepare: becomeReady, change: pullSecret, done: stalledBy(v1alpha1.ReasonSecretMissing),
		},
		"a missing Secret from the beginning": {change: pullSecret, done: stalledBy(v1alpha1.ReasonSecretMissing)},
		"a version is added while a Secret is missing": {
			prepare: readyAfter(specOf(imageBoth, "v1beta1")), change: all(pullSecret, specOf(imageBoth, "v1", "v1beta1")),
			done: stalledBy(v1alpha1.ReasonSecretMissing),
		},
	}
}

// theirCA is the caBundle of another implementation, which does not verify our pods.
const theirCA = "THEIR CA"

// writesTheirCA is what KEDA's operator does to an APIService by its name, whoever serves it.
func writesTheirCA(fc *fakeCluster) {
	if service := fc.allAPIServices()[v1beta1Name]; service != nil && string(service.Spec.CABundle) != theirCA {
		service.Spec.CABundle = []byte(theirCA)
		fc.update(service, client.FieldOwner("keda-operator"))
	}
}

const keda = "other-keda/keda-operator-metrics-apiserver"

// kedas registers external metrics for KEDA's adapter.
func kedas(fc *fakeCluster) {
	replace(externalV1beta1, nil, &apiregistrationv1.ServiceReference{Namespace: "other-keda", Name: "keda-operator-metrics-apiserver", Port: ptr.To[int32](443)})(fc)
}

// kedasMetric is read by an autoscaler, and answered by KEDA's adapter alone.
func kedasMetric(fc *fakeCluster) {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	hpa.Spec.Metrics = []autoscalingv2.MetricSpec{{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "s0-cron"},
	}}}
	fc.create(hpa)
	fc.theirs = map[string]string{"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/s0-cron": `{"items":[{"value":"1"}]}`}
}

func pullSecret(fc *fakeCluster) {
	fc.change(func(spec *v1alpha1.MetricsBackendSpec) {
		spec.Serving.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	})
}

// failures are of the pods, or of their network.
func failures() map[string]change {
	// A process that ends right after the takeover was reverted leaves no status of that: the next one finds, before it takes
	// anything over, that the pods are out of reach, or that the APIService is available again.
	reverted := func(fc *fakeCluster) bool {
		if fc.pointsToNow(v1beta1) != metricsServer {
			return false
		}
		return fc.isStalledBy(v1alpha1.ReasonAdoptionReverted) || fc.isStalledBy(v1alpha1.ReasonPodsUnreachable) || fc.isStalledBy(v1alpha1.ReasonNotOwned)
	}
	// Requests to our pods fail as soon as the version is registered for them.
	blockedAtTakeover := func(gv schema.GroupVersion) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			if fc.pointsToNow(gv) == ourService && lifecycle.IsUnverified(fc.apiService(gv)) {
				fc.blocked = true
			}
		}
	}
	return map[string]change{
		"taken over, and out of reach": {stays: []schema.GroupVersion{v1beta1},
			prepare: waitingCluster, change: policy(v1alpha1.AdoptionAlways), meanwhile: blockedAtTakeover(v1beta1), done: reverted, anyStatus: true,
		},
		"taken over as it was unavailable, and out of reach": {
			prepare: waitingCluster, change: becomesUnavailable,
			meanwhile: func(fc *fakeCluster) {
				blockedAtTakeover(v1beta1)(fc)
				if fc.blocked && fc.pointsToNow(v1beta1) == metricsServer {
					fc.setAvailable(fc.apiService(v1beta1), apiregistrationv1.ConditionTrue, "Passed")
				}
			},
			done: reverted, anyStatus: true,
		},
		"v1 beside v1beta1 of theirs, and out of reach": {
			prepare: waitingCluster, change: all(policy(v1alpha1.AdoptionAlways), changed(onlyV1)),
			meanwhile: blockedAtTakeover(v1), done: reverted, anyStatus: true,
		},
		"taken over at the fourth try": {stays: []schema.GroupVersion{v1beta1},
			prepare: waitingCluster, change: func(fc *fakeCluster) {
				policy(v1alpha1.AdoptionAlways)(fc)
				fc.failsUntil = fc.clock.Now().Add(110 * time.Minute)
			},
			meanwhile: func(fc *fakeCluster) {
				blockedAtTakeover(v1beta1)(fc)
				fc.blocked = fc.blocked && fc.stillFails() && fc.pointsToNow(v1beta1) == ourService
				if fc.isStalledBy(v1alpha1.ReasonAdoptionReverted) {
					fc.clock.Step(50 * time.Minute)
				}
			}, done: (*fakeCluster).isReady,
		},
		"requests for v1 fail": {
			prepare: becomeReady, change: func(fc *fakeCluster) { fc.fails([]schema.GroupVersion{v1}) }, done: notRegistered(v1),
		},
		"the namespace goes": {prepare: becomeReady, change: (*fakeCluster).deleteNamespace, done: notRegistered(v1, v1beta1)},
		"deletion, and a finalizer holds v1": {
			prepare: becomeReady, change: all(failsForAWhile, func(fc *fakeCluster) {
				fc.editAPIService(v1, func(s *apiregistrationv1.APIService) { s.Finalizers = []string{"example.com/held"} })
			}, deleteBackend),
			meanwhile: func(fc *fakeCluster) {
				if !fc.stillFails() && fc.pointsToNow(v1) != "" {
					fc.editAPIService(v1, func(s *apiregistrationv1.APIService) { s.Finalizers = nil })
				}
			},
			done: (*fakeCluster).isGone,
		},
	}
}

// others are of another MetricsBackend, or another operator.
func others() map[string]change {
	two := func(fc *fakeCluster) {
		fc.create(olderBackend())
		fc.reconcileBothUntil(fc.live(), func() bool { return fc.holds(olderName) && fc.isWaitingForOlder() })
	}
	// The older one has taken v1beta1 over, and the younger one waits.
	adopted := func(younger v1alpha1.AdoptionPolicy) func(*fakeCluster) {
		return func(fc *fakeCluster) {
			stockCluster(fc)
			fc.create(olderBackend(adopting(v1alpha1.AdoptionAlways)))
			fc.change(adopting(younger))
			fc.reconcileBothUntil(fc.live(), func() bool {
				return fc.holds(olderName) && fc.isWaitingForOlder() && !lifecycle.IsUnverified(fc.apiService(v1beta1))
			})
		}
	}
	deleteOlder := func(fc *fakeCluster) { fc.delete(olderBackend()) }
	return map[string]change{
		"the older MetricsBackend, which has taken over, is deleted": {stays: []schema.GroupVersion{v1, v1beta1},
			older: true, prepare: adopted(v1alpha1.AdoptionAlways), change: deleteOlder,
			done: func(fc *fakeCluster) bool {
				return fc.holds(backendName) && fc.isReady() && lifecycle.AdoptedFrom(fc.apiService(v1beta1)) != ""
			},
		},
		"the older MetricsBackend, which has taken over, is deleted, and the younger one may not": {stays: []schema.GroupVersion{v1beta1},
			older: true, prepare: adopted(v1alpha1.AdoptionRefuse), change: deleteOlder,
			done: func(fc *fakeCluster) bool {
				return fc.pointsToNow(v1beta1) == metricsServer && fc.isStalledBy(v1alpha1.ReasonNotOwned)
			},
		},
		"the older MetricsBackend is deleted, and v1beta1 was taken back": {stays: []schema.GroupVersion{v1beta1},
			older: true, prepare: two, change: all(func(fc *fakeCluster) { fc.runMetricsServer(2, v1beta1) }, fieldManagers()["server-side apply"], deleteOlder),
			done: func(fc *fakeCluster) bool {
				return fc.pointsToNow(v1beta1) == metricsServer && fc.apiService(v1beta1).Labels[v1alpha1.LabelBackend] == "" && fc.isStalledBy(v1alpha1.ReasonNotOwned)
			},
		},
		"the older MetricsBackend is deleted": {stays: []schema.GroupVersion{v1, v1beta1},
			older: true, prepare: two, change: deleteOlder,
			done: func(fc *fakeCluster) bool { return fc.holds(backendName) && fc.isReady() },
		},
		"the older MetricsBackend releases v1": {
			older: true, prepare: two, change: func(fc *fakeCluster) { fc.changeOlder(onlyV1beta1) },
			done: func(fc *fakeCluster) bool { return fc.pointsToNow(v1) == ourService },
		},
		"created beside another operator": {second: true, done: func(fc *fakeCluster) bool { return fc.holds(backendName) }},
		"a version is taken out beside another operator": {
			second: true, prepare: becomeReady, change: changed(onlyV1beta1), done: notRegistered(v1),
		},
	}
}

func withAllGroups(spec *v1alpha1.MetricsBackendSpec) {
	spec.ResourceMetrics = &v1alpha1.ResourceMetricsSpec{}
	spec.CustomMetrics, spec.ExternalMetrics = &v1alpha1.CustomMetricsSpec{}, &v1alpha1.ExternalMetricsSpec{}
	spec.Sources = []v1alpha1.SourceSpec{{Name: "main", Prometheus: &v1alpha1.PrometheusSource{URL: "http://prometheus.monitoring.svc:9090"}}}
}

// registeredByALaterOperator registers v2, as a newer operator did.
func registeredByALaterOperator(fc *fakeCluster) {
	becomeReadyWith(fc, imageFuture)
	var service apiregistrationv1.APIService
	fc.get(client.ObjectKey{Name: apiServiceName(v1)}, &service)
	later := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: apiServiceName(v2), Labels: service.Labels},
		Spec:       service.Spec,
	}
	later.Spec.Version = v2.Version
	fc.create(later)
	backend := fc.backend()
	backend.Status.APIServices = append(backend.Status.APIServices, v1alpha1.APIServiceStatus{Name: later.Name, State: v1alpha1.APIServiceAvailable})
	fc.updateStatus(backend)
	fc.step()
}
