// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/metricsbackend/metrics-backend-operator/internal/text"
)

// Server is a pod that we deploy, or an endpoint of the Service of spec.existing, and what it
// answered.
type Server struct {
	// Name is as messages name it: "pod NAME (image IMAGE)" or "endpoint ADDRESS".
	Name string
	// Ready servers receive requests; endpoints always are. Ending ones do over old connections, up
	// to Deadline. Current ones are of the newest revision.
	Ready, Ending, Current bool
	Deadline               time.Time
	// Template is the same for servers that serve the same.
	Template string
	// Serves has the versions that it said it serves, and those that it does not; nil if it did not
	// answer. Failing has the errors of requests for those that it serves.
	Serves  map[schema.GroupVersion]bool
	Failing map[schema.GroupVersion]string
	// Err is why it did not answer completely, or nil.
	Err error
}

// Lacks reports whether the server said that it does not serve the version.
func (s Server) Lacks(gv schema.GroupVersion) bool { return s.Serves != nil && !s.Serves[gv] }

// Servers are in the order of their names.
type Servers []Server

// Ready returns those that receive requests.
func (all Servers) Ready() Servers {
	return slices.DeleteFunc(slices.Clone(all), func(s Server) bool { return !s.Ready })
}

// Lacking returns the names of the ready ones that said that they do not serve the version.
func (all Servers) Lacking(gv schema.GroupVersion) []string {
	var names []string
	for _, s := range all.Ready() {
		if s.Lacks(gv) {
			names = append(names, s.Name)
		}
	}
	return names
}

// AllServe reports whether there is a ready one, and every one serves the version and answered a
// request for it.
func (all Servers) AllServe(gv schema.GroupVersion) bool {
	ready := all.Ready()
	return len(ready) > 0 && !slices.ContainsFunc(ready, func(s Server) bool { return !s.Serves[gv] || s.Failing[gv] != "" })
}

// ByRequests returns the ready ones that serve the version, split by whether they answered a
// request for it.
func (all Servers) ByRequests(gv schema.GroupVersion) (failing, answering Servers) {
	for _, s := range all.Ready() {
		switch {
		case !s.Serves[gv]:
		case s.Failing[gv] != "":
			failing = append(failing, s)
		default:
			answering = append(answering, s)
		}
	}
	return failing, answering
}

// AllAnswered reports whether there is a ready one, and every one answered, completely or not.
func (all Servers) AllAnswered() bool {
	ready := all.Ready()
	return len(ready) > 0 && !slices.ContainsFunc(ready, func(s Server) bool { return s.Serves == nil })
}

// FirstFailed returns the first ready one that did not answer completely, or nil.
func (all Servers) FirstFailed() *Server {
	for _, s := range all {
		if s.Ready && s.Err != nil {
			return &s
		}
	}
	return nil
}

// DescribeFailing names the first server and its error.
func (all Servers) DescribeFailing(gv schema.GroupVersion) string {
	return fmt.Sprintf("%s: %s%s", all[0].Name, all[0].Failing[gv], text.AndMore(len(all)-1, "pod"))
}

// endingWithout describes an ending server that does not serve the version but may still answer
// requests over old connections, or returns "". One that does not answer counts until its deadline:
// on a lost node, pods stay Running for ever.
func (v *Version) endingWithout() string {
	for _, s := range v.Servers {
		switch {
		case !s.Ending:
		case s.Lacks(v.GV):
			return s.Name + ", which is ending and does not serve it"
		case s.Serves == nil && v.Now.Before(s.Deadline):
			return s.Name + ", which is ending and does not answer"
		}
	}
	return ""
}

// WaitReason returns what the version waits for until its servers serve it, or "".
func (v *Version) WaitReason() string {
	failing, _ := v.Servers.ByRequests(v.GV)
	creates := v.mayCreate()
	// While clients have no other version, some successful requests are better than none.
	serve := v.Servers.AllServe(v.GV) || creates && (len(failing) == 0 || !v.Alternative)
	lacking := v.Servers.Lacking(v.GV)
	switch {
	case !v.Identity.Deploys:
		return v.waitReasonExisting()
	case !v.Rollout.Finished && !creates:
		return "waits until the rollout is finished"
	case len(v.Identity.Target.CABundle) == 0:
		return "waits for the certificates"
	case serve && v.endingWithout() != "":
		return "waits for the end of " + v.endingWithout()
	case v.Recovering != "":
		return v.Recovering
	case serve:
		return ""
	case len(lacking) > 0:
		return "not served by " + strings.Join(lacking, ", ")
	case v.Servers.FirstFailed() != nil:
		return "waits until every ready pod can be asked"
	case len(failing) > 0:
		return "its requests fail in " + failing.DescribeFailing(v.GV)
	case len(v.Servers.Ready()) == 0:
		return "waits for a ready pod"
	}
	return fmt.Sprintf("waits for the answers of %d pods", len(v.Servers.Ready()))
}

// waitReasonExisting is WaitReason for spec.existing.
func (v *Version) waitReasonExisting() string {
	switch {
	case !v.Asked:
		return "waits until Service " + v.Identity.Target.String() + " was read"
	case v.Missing != "":
		return v.Missing
	case len(v.Servers) == 0:
		return "waits for a ready endpoint of Service " + v.Identity.Target.String()
	case v.Servers.AllServe(v.GV):
		return ""
	}
	return "waits until every ready endpoint of Service " + v.Identity.Target.String() + " can be asked"
}

// mayCreate reports whether an APIService that does not exist can be created, although
// pods may be unavailable: a ready pod answers requests for the version, no pod says that
// it lacks it, and the pods are of one revision, or a rollout is stuck. A pod that is not
// ready does not matter: it cannot become ready without the registered versions.
//
// Not so if someone else serves another version of the group: an implementation that works
// is only replaced by all our pods.
func (v *Version) mayCreate() bool {
	outdated := slices.ContainsFunc(v.Servers, func(s Server) bool { return !s.Ending && !s.Current })
	return (v.Rollout.Stuck || !outdated) && v.readyServe() && !v.Elsewhere
}

// readyServe reports whether a ready pod answers requests for the version, each ready
// pod that does not say what it serves has the same template as one of those, and no pod
// lacks the version. A pod that said so before it stopped answering still lacks it:
// otherwise a crashing pod would retire the version again and again.
func (v *Version) readyServe() bool {
	_, answering := v.Servers.ByRequests(v.GV)
	return len(answering) > 0 && !slices.ContainsFunc(v.Servers, func(s Server) bool {
		unknown := s.Serves == nil && !slices.ContainsFunc(answering, func(other Server) bool { return other.Template == s.Template })
		return !s.Ending && (s.Lacks(v.GV) || unknown && (s.Ready || v.Lacked[s.Template]))
	})
}
