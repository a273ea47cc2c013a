// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
)

// AuthorityTime is how long our authority must stay in the caBundle of someone else's APIService before that is taken
// over. Operators that write a caBundle of their own do so at each change of the APIService, whoever serves it (KEDA's).
const AuthorityTime = time.Minute

// authorityLine precedes our authority in someone else's caBundle. PEM allows text between two certificates.
const authorityLine = "\n# metricsbackend.io/backend="

// WithAuthority returns the caBundle of an APIService with that of a MetricsBackend behind it.
func WithAuthority(theirs, ours []byte, backend string, now time.Time) []byte {
	line := authorityLine + backend + " " + now.UTC().Format(time.RFC3339) + "\n"
	return slices.Concat(theirs, []byte(line), ours)
}

// CutAuthority returns a caBundle without what WithAuthority has added for any MetricsBackend, and when that was done for
// this one, or the zero time.
func CutAuthority(caBundle []byte, backend string) (theirs []byte, added time.Time) {
	theirs, rest, found := bytes.Cut(caBundle, []byte(authorityLine))
	if !found {
		return caBundle, time.Time{}
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if name, at, _ := strings.Cut(string(line), " "); name == backend {
		added, _ = time.Parse(time.RFC3339, at)
	}
	return theirs, added
}

// OurAuthority returns what WithAuthority has added to a caBundle, or the whole one if it has not.
func OurAuthority(caBundle []byte) []byte {
	_, rest, found := bytes.Cut(caBundle, []byte(authorityLine))
	if !found {
		return caBundle
	}
	_, ours, _ := bytes.Cut(rest, []byte("\n"))
	return ours
}

// SetLive sets the APIService of the version. That of the previous owner keeps its authority beside ours: who applies it
// may point it back at any time, and often by its Service alone (charts whose caBundle an operator writes).
func (v *Version) SetLive(live *apiregistrationv1.APIService) {
	v.Live = live
	target := &v.Identity.Target
	target.CABundle = OurAuthority(target.CABundle)
	if live == nil || !v.Identity.Deploys || len(target.CABundle) == 0 {
		return
	}
	var theirs []byte
	if record, err := ReadPreviousOwner(live); err == nil && v.IsRecorded() && !v.IsForeign() {
		theirs = record.CABundle
	} else if v.ReplacesOther() {
		theirs, _ = CutAuthority(live.Spec.CABundle, "")
	}
	present, added := CutAuthority(live.Spec.CABundle, v.Identity.Serving.Backend)
	switch {
	case len(theirs) == 0, !v.IsForeign() && bytes.Equal(theirs, target.CABundle):
	case !added.IsZero() && bytes.Equal(present, theirs):
		target.CABundle = WithAuthority(theirs, target.CABundle, v.Identity.Serving.Backend, added)
	default:
		target.CABundle = WithAuthority(theirs, target.CABundle, v.Identity.Serving.Backend, v.Now)
	}
}

// testsAuthority reports whether others may write the caBundle of the APIService, which is someone else's. Where nobody
// answers, there is nothing to lose.
func (v *Version) testsAuthority() bool {
	return v.Identity.Deploys && v.IsForeign() && len(v.Live.Spec.CABundle) > 0 && v.unavailable() < AdoptionGrace
}

// authoritySince returns for how long our authority has been in the caBundle of the APIService, and whether it is there.
func (v *Version) authoritySince() (time.Duration, bool) {
	_, added := CutAuthority(v.Live.Spec.CABundle, v.Identity.Serving.Backend)
	return v.Now.Sub(added), !added.IsZero()
}

// KeepsAuthority reports whether our authority may stay in the caBundle of someone else's APIService: it is about to be
// taken over.
func (v *Version) KeepsAuthority() bool {
	return v.Wanted && !v.isRefused() && v.Conflict == "" && v.Paused.Message == "" && (!v.isCompared() || len(v.Differences.Lost) == 0)
}

func (v *Version) lacksAuthority() bool {
	_, added := v.authoritySince()
	return v.testsAuthority() && !added
}

// isAuthorityRemoved reports whether another field manager has taken our authority out again.
func (v *Version) isAuthorityRemoved() bool {
	return v.lacksAuthority() && (v.Contest.AuthorityAdded || !v.Contest.AuthorityRemoved.IsZero() && v.Now.Sub(v.Contest.AuthorityRemoved) < ContestWindow)
}

// StopContest has the operator try no more for a ContestWindow.
func (v *Version) StopContest() {
	switch {
	case !v.isAuthorityRemoved():
		v.Contest.Stop(v.Now)
	case v.Contest.AuthorityAdded:
		v.Contest.AuthorityAdded, v.Contest.AuthorityRemoved = false, v.Now
	}
}

// AuthorityRemoved is in the message about another manager that takes our authority out of a caBundle.
const AuthorityRemoved = "took our CA out again"

func (v *Version) describeRemovedAuthority() string {
	manager, _ := apiservices.ChangedBy(v.Live, v1alpha1.FieldOwner, apiservices.CABundleField)
	return fmt.Sprintf("APIService %s is served by %s, and stays theirs: field manager %q writes its caBundle, and %s. After a "+
		"takeover every request would fail. Stop that first (%s), or take version %s out of %s.versions. The operator tries once more every %d hours, "+
		"and after a change of the spec", v.Name(), DescribeTarget(v.Live), manager, AuthorityRemoved, apiservices.CABundleRemedy, v.GV.Version, v.Section, int(ContestWindow.Hours()))
}
