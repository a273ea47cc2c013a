// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a MetricsBackend. docs/reference/conditions.md explains each with its
// reasons; the reason constants below are the whole list.
const (
	// ConditionAvailable is True while every desired APIService is registered,
	// reported available by the aggregator, and answers a real request.
	ConditionAvailable = "Available"
	// ConditionReady is the summary by kstatus: all components match the spec.
	ConditionReady = "Ready"
	// ConditionReconciling is present and True only while the operator works towards
	// the spec (an abnormal-true condition of kstatus).
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present and True only while the operator cannot proceed
	// without a change by someone else (an abnormal-true condition of kstatus).
	ConditionStalled = "Stalled"
	// ConditionCertificatesValid is about serving's certificate and its CA.
	ConditionCertificatesValid = "CertificatesValid"
	// ConditionServingReady is about the serving Deployment and its pods.
	ConditionServingReady = "ServingReady"
	// ConditionAPIServicesRegistered is about the versions that should be registered.
	ConditionAPIServicesRegistered = "APIServicesRegistered"
	// ConditionStaleAPIServicesRemoved is about the versions that should not be.
	ConditionStaleAPIServicesRemoved = "StaleAPIServicesRemoved"
	// ConditionSourcesHealthy is about kubelets and spec.sources, as the serving pods
	// report them.
	ConditionSourcesHealthy = "SourcesHealthy"
	// ConditionRulesReady is about the rules in the spec, as the serving pods report
	// them. An invalid rule does not affect the others.
	ConditionRulesReady = "RulesReady"
	// ConditionConsumersCompatible is about clients that use a version which is no
	// longer in the spec.
	ConditionConsumersCompatible = "ConsumersCompatible"
)

// Reasons that several conditions share.
const (
	// ReasonSucceeded means that the subject of the condition matches the spec.
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
	// ReasonNamespaceMissing: spec.serving.namespace does not exist.
	ReasonNamespaceMissing = "NamespaceMissing"
	// ReasonNamespaceTerminating: spec.serving.namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonNamespaceNotManaged: the operator was not given spec.serving.namespace.
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
	// ReasonContested: someone else keeps reverting an APIService that was taken over;
	// the message names the field manager.
	ReasonContested = "Contested"
	// ReasonPodsUnreachable: kube-apiserver does not reach the serving pods, so someone
	// else's APIService is not taken over.
	ReasonPodsUnreachable = "PodsUnreachable"
	// ReasonAdoptionReverted: an APIService was taken over, requests through
	// kube-apiserver failed, and it was handed back.
	ReasonAdoptionReverted = "AdoptionReverted"
	// ReasonOtherInstallation: the operator of another namespace would manage the backend,
	// too; the message names both.
	ReasonOtherInstallation = "OtherInstallation"
	// ReasonForbidden: the operator lacks a permission, or a ClusterRole that is installed
	// with it is missing.
	ReasonForbidden = "Forbidden"
	// ReasonInvalid: serving rejects the spec, or kube-apiserver rejects an object
	// created from it.
	ReasonInvalid = "Invalid"
)

// Reasons of ServingReady.
const (
	// ReasonRollingOut: pods of the current revision are being started.
	ReasonRollingOut = "RollingOut"
	// ReasonRolloutFailed: the rollout makes no progress; the message says which pod
	// and why.
	ReasonRolloutFailed = "RolloutFailed"
	// ReasonVersionNotServed: a ready pod does not serve a desired version.
	ReasonVersionNotServed = "VersionNotServed"
	// ReasonProbeFailed: the operator could not query a pod for what it serves.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonNoReadyEndpoint: the Service of spec.existing has no ready endpoint.
	ReasonNoReadyEndpoint = "NoReadyEndpoint"
)

// Reasons of the APIService conditions and of Available.
const (
	// ReasonAggregatorUnavailable: kube-apiserver reports the APIService unavailable.
	ReasonAggregatorUnavailable = "AggregatorUnavailable"
	// ReasonRequestFailed: a real request failed: through kube-apiserver, or, as a
	// reason of ServingReady, to a pod.
	ReasonRequestFailed = "RequestFailed"
	// ReasonNoFreshSample: the API answers, but every node's sample is older than maxSampleAge.
	ReasonNoFreshSample = "NoFreshSample"
	// ReasonNotInDiscovery: the discovery of a kube-apiserver, named in the message,
	// still lacks a registered version.
	ReasonNotInDiscovery = "NotInDiscovery"
	// ReasonRetiring: a version is being removed from discovery.
	ReasonRetiring = "Retiring"
)

// Reasons of CertificatesValid.
const (
	// ReasonCertificateInvalid: the Secret's certificate cannot be used.
	ReasonCertificateInvalid = "CertificateInvalid"
	// ReasonCertificateExpiring: the certificate expires soon and was not renewed in time.
	ReasonCertificateExpiring = "CertificateExpiring"
	// ReasonCertificateExpired: the certificate has expired; with mode Managed it is
	// being replaced.
	ReasonCertificateExpired = "CertificateExpired"
	// ReasonCertManagerMissing: cert-manager is not installed.
	ReasonCertManagerMissing = "CertManagerMissing"
	// ReasonCertificateMismatch: a pod does not serve the certificate in the Secret, or
	// the CA certificates do not verify it.
	ReasonCertificateMismatch = "CertificateMismatch"
	// ReasonRotating: CA and certificate are being replaced, step by step.
	ReasonRotating = "Rotating"
)

// Reasons of ConsumersCompatible.
const (
	// ReasonConsumersActive: clients used a version today or yesterday that is no
	// longer in the spec; its removal waits.
	ReasonConsumersActive = "ConsumersActive"
	// ReasonRemovalForced: such a version is removed because of removeDespiteConsumers.
	ReasonRemovalForced = "RemovalForced"
	// ReasonConsumersUnknown: the implementation does not report its clients, so
	// versions are removed without waiting.
	ReasonConsumersUnknown = "ConsumersUnknown"
)

// Reasons of SourcesHealthy. The first that applies is used; the message has counts,
// the first nodes and sources, and what to do.
const (
	// ReasonKubeletCertificatesUntrusted: certificates of kubelets are not signed by
	// the CA, or not valid for their address.
	ReasonKubeletCertificatesUntrusted = "KubeletCertificatesUntrusted"
	// ReasonKubeletsFailing: kubelets cannot be reached or reject the request.
	ReasonKubeletsFailing = "KubeletsFailing"
	// ReasonNoNodes: no node matches the scrape's selector.
	ReasonNoNodes = "NoNodes"
	// ReasonSourcesFailing: sources of spec.sources that are not optional fail.
	ReasonSourcesFailing = "SourcesFailing"
	// ReasonNotApplicable: with spec.existing the operator knows nothing about kubelets,
	// sources and rules.
	ReasonNotApplicable = "NotApplicable"
)

// Reasons of RulesReady. The first that applies is used.
const (
	// ReasonRulesInvalid: rules cannot be compiled and are ignored. Stalled and Ready
	// repeat it, since only a change of the spec helps.
	ReasonRulesInvalid = "RulesInvalid"
	// ReasonRulesFailing: rules are valid, but produce no metrics for now.
	ReasonRulesFailing = "RulesFailing"
)

// Conditions of CustomMetrics and ExternalMetrics in addition to Ready, Reconciling
// and Stalled. They are present only while True.
const (
	// ConditionFallback: the values come from spec.fallback.
	ConditionFallback = "Fallback"
	// ConditionCollision: another rule or object defines the same metric.
	ConditionCollision = "Collision"
)

// Reasons of conditions of CustomMetrics and ExternalMetrics. The serving pods report
// further ones, for failures of the source and for metrics that cannot be compiled.
const (
	// ReasonCollision: another rule or object defines the same metric.
	ReasonCollision = "Collision"
	// ReasonNoBackend: no MetricsBackend serves the metric's API.
	ReasonNoBackend = "NoBackend"
	// ReasonTooManyMetrics: its namespace, or the cluster, has more metrics than are used.
	ReasonTooManyMetrics = "TooManyMetrics"
	// ReasonInUse: the fallback is in use.
	ReasonInUse = "InUse"
	// ReasonFailing: the serving pods report no reason.
	ReasonFailing = "Failing"
)
