// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a MetricsBackend. docs/conditions.md explains each with its
// reasons; the reason constants below are the whole list.
const (
	// ConditionAvailable is True while every desired APIService is registered,
	// reported available by the aggregator, and answers a real request.
	ConditionAvailable = "Available"
	// ConditionReady is kstatus' summary: the backend is as its spec says.
	ConditionReady = "Ready"
	// ConditionReconciling is present, and True, while the operator is working
	// towards the spec (kstatus' abnormal-true condition).
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present, and True, while the operator cannot go on
	// without a change from outside (kstatus' abnormal-true condition).
	ConditionStalled = "Stalled"
	// ConditionCertificatesValid speaks of serving's certificate and its CA.
	ConditionCertificatesValid = "CertificatesValid"
	// ConditionServingReady speaks of the serving Deployment and its pods.
	ConditionServingReady = "ServingReady"
	// ConditionAPIServicesRegistered speaks of the versions that should be registered.
	ConditionAPIServicesRegistered = "APIServicesRegistered"
	// ConditionStaleAPIServicesRemoved speaks of the versions that should not be.
	ConditionStaleAPIServicesRemoved = "StaleAPIServicesRemoved"
	// ConditionSourcesHealthy speaks of kubelets and of spec.sources, as the serving
	// pods see them.
	ConditionSourcesHealthy = "SourcesHealthy"
	// ConditionRulesReady speaks of the rules in the spec, as the serving pods see
	// them. A rule that is bad stops no other.
	ConditionRulesReady = "RulesReady"
	// ConditionConsumersCompatible speaks of clients that use a version which the
	// spec no longer names.
	ConditionConsumersCompatible = "ConsumersCompatible"
)

// Reasons that several conditions share.
const (
	// ReasonSucceeded means that the condition's subject is as it should be.
	ReasonSucceeded = "Succeeded"
	// ReasonProgressing means that the operator is working on it.
	ReasonProgressing = "Progressing"
	// ReasonNotYetReported means that nothing is known yet.
	ReasonNotYetReported = "NotYetReported"
	// ReasonDeleting means that the MetricsBackend is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonAPICallFailed means that a call to kube-apiserver failed; it is retried.
	ReasonAPICallFailed = "APICallFailed"
	// ReasonDependencyNotReady means that another condition, named in the
	// message, must become True first.
	ReasonDependencyNotReady = "DependencyNotReady"
)

// Reasons of Stalled, which Ready repeats.
const (
	// ReasonNamespaceMissing: spec.namespace does not exist.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonNamespaceTerminating: spec.namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonNamespaceNotManaged: the operator was not given spec.namespace.
	ReasonNamespaceNotManaged = "NamespaceNotManaged"
	// ReasonSecretMissing: a Secret that the spec names does not exist.
	ReasonSecretMissing = "SecretMissing"
	// ReasonServiceMissing: the Service of spec.existing does not exist, or has no
	// such port.
	ReasonServiceMissing = "ServiceMissing"
	// ReasonConflict: an older MetricsBackend claims the same group and version.
	ReasonConflict = "Conflict"
	// ReasonNotOwned: an object of the same name belongs to someone else.
	ReasonNotOwned = "NotOwned"
	// ReasonContested: someone else keeps changing an APIService back that was
	// taken over; the message names the field manager.
	ReasonContested = "Contested"
	// ReasonForbidden: the operator lacks a permission.
	ReasonForbidden = "Forbidden"
	// ReasonInvalid: serving refuses the spec, or kube-apiserver an object made
	// from it.
	ReasonInvalid = "Invalid"
)

// Reasons of ServingReady.
const (
	// ReasonRollingOut: pods of the current revision are being started.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutFailed: the rollout does not get on; the message says which
	// pod and why.
	ReasonRolloutFailed = "RolloutFailed"
	// ReasonVersionNotServed: a ready pod does not serve a desired version.
	ReasonVersionNotServed = "VersionNotServed"
	// ReasonProbeFailed: the operator could not ask a pod what it serves.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonNoReadyEndpoint: the Service of spec.existing has no ready endpoint.
	ReasonNoReadyEndpoint = "NoReadyEndpoint"
)

// Reasons of the APIService conditions and of Available.
const (
	// ReasonAggregatorUnavailable: kube-apiserver reports the APIService unavailable.
	ReasonAggregatorUnavailable = "AggregatorUnavailable"
	// ReasonRequestFailed: a real request through kube-apiserver failed; of
	// ServingReady, one to a pod.
	ReasonRequestFailed = "RequestFailed"
	// ReasonNoFreshSample: the API answers, but no node's sample is younger than maxAge.
	ReasonNoFreshSample = "NoFreshSample"
	// ReasonNotInDiscovery: a kube-apiserver, named in the message, goes on not
	// listing a registered version in its discovery.
	ReasonNotInDiscovery = "NotInDiscovery"
	// ReasonRetiring: a version is being taken out of discovery.
	ReasonRetiring = "Retiring"
)

// Reasons of CertificatesValid.
const (
	// ReasonCertificateInvalid: the Secret's certificate cannot be used.
	ReasonCertificateInvalid = "CertificateInvalid"
	// ReasonCertificateExpiring: the certificate ends soon and was not renewed in time.
	ReasonCertificateExpiring = "CertificateExpiring"
	// ReasonCertificateExpired: the certificate is no longer valid; with mode
	// Managed it is being replaced.
	ReasonCertificateExpired = "CertificateExpired"
	// ReasonCertManagerMissing: cert-manager is not installed.
	ReasonCertManagerMissing = "CertManagerMissing"
	// ReasonCertificateMismatch: a pod does not serve the certificate of the
	// Secret, or the authorities do not verify it.
	ReasonCertificateMismatch = "CertificateMismatch"
	// ReasonRotating: authority and certificate are being replaced, step by step.
	ReasonRotating = "Rotating"
)

// Reasons of ConsumersCompatible.
const (
	// ReasonConsumersActive: clients used a version today or yesterday that the
	// spec no longer names; its removal waits.
	ReasonConsumersActive = "ConsumersActive"
	// ReasonRemovalForced: such a version is removed as removeDespiteConsumers says.
	ReasonRemovalForced = "RemovalForced"
	// ReasonConsumersUnknown: what serves cannot tell who uses which version; a
	// version is removed without waiting.
	ReasonConsumersUnknown = "ConsumersUnknown"
)

// Reasons of SourcesHealthy. The first that applies is used; the message gives
// counts, names the first nodes and sources, and what to do.
const (
	// ReasonKubeletCertificatesUntrusted: kubelets' certificates are not signed
	// by the CA, or not for their address.
	ReasonKubeletCertificatesUntrusted = "KubeletCertificatesUntrusted"
	// ReasonKubeletsFailing: kubelets cannot be reached or refuse to answer.
	ReasonKubeletsFailing = "KubeletsFailing"
	// ReasonNoNodes: no node matches the scrape's selector.
	ReasonNoNodes = "NoNodes"
	// ReasonSourcesFailing: sources of spec.sources that are not optional do not
	// answer, or badly.
	ReasonSourcesFailing = "SourcesFailing"
	// ReasonNotApplicable: with spec.existing the operator sees no kubelets, sources
	// or rules.
	ReasonNotApplicable = "NotApplicable"
	// ReasonNotReported: the image of the serving pods is too old to tell.
	ReasonNotReported = "NotReported"
)

// Reasons of RulesReady. The first that applies is used.
const (
	// ReasonRulesInvalid: rules cannot be compiled and are left out; Stalled and
	// Ready repeat it, since nobody but the user can mend them.
	ReasonRulesInvalid = "RulesInvalid"
	// ReasonRulesFailing: rules are in force, and make no metrics for now.
	ReasonRulesFailing = "RulesFailing"
)
