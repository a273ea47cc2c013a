// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
)

const releaseLong = `Gives custom or external metrics back to the implementation that a MetricsBackend has taken
them over from: its APIService points to it again, once it answers. Then its source is
removed. It is adopt in reverse.

While the MetricsBackend has another section, it keeps the APIService as long as an
autoscaler reads a metric that the implementation does not serve.

Without --yes it writes nothing, and prints the commands instead, for a shell. With --yes
it makes the same writes, and waits between them.

Exit codes: 0 printed or done, 1 refused, or a wait took longer than --timeout, 2 it could
not be determined or written.`

const releaseExample = `  # What would be written; then do it
  kubectl metrics release external
  kubectl metrics release external --yes`

// release plans a release, or says why there can be none. It leaves out what an earlier run has done.
func (o *options) release(ctx context.Context) (*plan, error) {
	services, err := o.services(ctx)
	if err != nil {
		return nil, err
	}
	backends, err := o.cluster.Backends(ctx)
	if err != nil {
		return nil, err
	}
	// The Service that gets the versions back, or has them back, and the MetricsBackend that still has them.
	var to, owner string
	var versions, warnings []string
	for i := range services {
		r := aggregation.Describe(&services[i])
		switch {
		case r.AdoptedFrom != "":
			if err := json.Unmarshal([]byte(services[i].Annotations[v1alpha1.AnnotationPreviousOwner]), &v1alpha1.PreviousOwner{}); err != nil {
				return nil, refusef("read annotation %s of APIService %s, without which it would be deleted: %w: let the implementation apply it again", v1alpha1.AnnotationPreviousOwner, r.Name, err)
			}
			to, owner, versions = r.AdoptedFrom, r.Backend, append(versions, r.Version)
		case r.Backend == "":
			to, versions = cmp.Or(to, r.Service), append(versions, r.Version)
		default:
			warnings = append(warnings, fmt.Sprintf("Nobody has served APIService %s before. It goes, and the wait for the release ends, once no client has used it for a day; at once if spec.removeDespiteConsumers has it.", r.Name))
		}
	}
	at := slices.IndexFunc(backends, func(b v1alpha1.MetricsBackend) bool {
		return b.Name == owner || owner == "" && o.sourceTo(&b, to) >= 0
	})
	switch {
	case at < 0 && owner != "":
		return nil, refusef("APIServices of %s are of MetricsBackend %q, which there is not: let the implementation apply them again", o.group(), owner)
	case at < 0:
		return nil, refusef("no MetricsBackend has taken %s over from another implementation: nobody gets it back", o.group())
	}
	backend := &backends[at]

	p := &plan{backend: backend.Name, before: []string{fmt.Sprintf("Gives %s back to %s. Metrics that only MetricsBackend %s defines are then lost.", o.group(), to, backend.Name)}}
	deleted := false
	if owner != "" || backend.Spec.Section(o.group()).Set {
		p.before = append(p.before, warnings...)
		p.before = append(p.before, o.otherManagers(backend)...)
		s := step{
			does: fmt.Sprintf("%s leaves MetricsBackend %s. Its pods answer until every kube-apiserver asks %s.", o.field(), backend.Name, to),
			back: "kubectl metrics adopt " + o.api + o.flags + ", then apply what else the section had", object: backendWith(backend.Name, nil),
			patch: `{"spec":{"` + o.api + `Metrics":null}}`,
			waits: []string{"released=" + o.group(), "versions=" + strings.Join(inOrder(versions), "."+o.group()+",") + "." + o.group()},
		}
		if deleted = !slices.ContainsFunc(aggregation.Groups(), func(group string) bool { return group != o.group() && backend.Spec.Section(group).Set }); deleted {
			s.does = fmt.Sprintf("MetricsBackend %s, which has no other section, is deleted, whatever autoscalers read from it. Its pods answer until every kube-apiserver asks %s.", backend.Name, to)
			s.patch, s.deletes = "", true
		}
		p.steps = append(p.steps, s)
	}
	if source := o.sourceTo(backend, to); source >= 0 {
		removal, err := o.removal(ctx, backend, source, deleted)
		if err != nil {
			return nil, err
		}
		p.steps = append(p.steps, removal...)
	}
	return p, nil
}

// sourceTo returns which source of a MetricsBackend leads to a Service, written NAMESPACE/NAME:PORT, or -1.
func (o *options) sourceTo(backend *v1alpha1.MetricsBackend, service string) int {
	return slices.IndexFunc(backend.Spec.Sources, func(s v1alpha1.SourceSpec) bool {
		return s.MetricsAPI != nil && string(s.MetricsAPI.Group) == o.group() && aggregation.ServiceName(s.MetricsAPI.Service) == service
	})
}

// otherManagers warns of those who may write the section again.
func (o *options) otherManagers(backend *v1alpha1.MetricsBackend) (warnings []string) {
	for _, entry := range backend.ManagedFields {
		if entry.Manager != fieldManager && apiservices.ManagesField(entry, []string{"f:spec", "f:" + o.api + "Metrics"}) {
			warnings = append(warnings, fmt.Sprintf("Field manager %q has written %s of MetricsBackend %s, too: take it out of its manifest first, if it applies one again.", entry.Manager, o.field(), backend.Name))
		}
	}
	return warnings
}

// removal returns the steps that remove a source, unless the whole MetricsBackend is deleted, and what adopt has made for it.
func (o *options) removal(ctx context.Context, backend *v1alpha1.MetricsBackend, i int, deleted bool) (steps []step, err error) {
	source, again := &backend.Spec.Sources[i], "kubectl metrics adopt "+o.api+o.flags
	if !deleted {
		steps = append(steps, step{
			does: "Source " + source.Name + " is removed.", back: again, object: backendWith(backend.Name, nil),
			patch: fmt.Sprintf(`[{"op":"test","path":"/spec/sources/%d/name","value":"%s"},{"op":"remove","path":"/spec/sources/%d"}]`, i, source.Name, i),
		})
	}
	if ca := source.MetricsAPI.TLS.CAConfigMap; ca != nil && ca.Name == source.Name+authoritySuffix {
		namespace, err := o.namespaceOf(ctx, backend)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{does: "The copy of its CA certificates is deleted.", back: again, object: authority(namespace, ca, nil), deletes: true})
	}
	return steps, nil
}
