// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscaler runs the HorizontalPodAutoscaler controller of Kubernetes, unchanged, on resource metrics that
// come by watch in place of polling, and compares the two.
//
// The stock controller asks for the metrics of an HPA's pods each sync period (15 s), so a decision waits for the next
// sync after the data point that calls for it. Here nothing of the controller is copied or changed; it is given other
// parts at three of its seams:
//
//	metrics client   the stock one, whose lists are answered from what a client.Watcher holds (metrics.go, index.go)
//	scale client     the stock one, overheard: it tells which pods an HPA looks at (targets.go)
//	HPA informer     the stock one, which can be told to deliver an HPA once more (requeue.go)
//
// and each new data point makes the HPAs that look at its pod due at once (trigger.go). The sync period stays, as the
// net below. Custom and external metrics are polled as before.
//
// It is a module of its own: it imports k8s.io/kubernetes, which is no library, and test/cluster builds the components
// of that version from a go.mod that nothing of ours should change.
package autoscaler
