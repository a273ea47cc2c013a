// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
	"github.com/metricsbackend/metrics-backend-operator/internal/apiservices"
	"github.com/metricsbackend/metrics-backend-operator/plugin/aggregation"
)

const releaseLong = `Gives custom or external metrics back to the implementation that a MetricsBackend has taken
them over from: its APIService points to it again, if it answers. Then its source is
removed. It is adopt in reverse.

While the MetricsBackend has another section, it keeps the APIService as long as an
autoscaler reads a metric that the implementation does not serve.

Without --yes it writes nothing, and prints the commands instead, for a shell. With --yes
it makes the same writes, and waits between them.

Exit codes: 0 printed or done, 1 refused, or a wait took longer than --timeout, 2 it could
not be determined or written.`

const releaseExample = `  # What would be written; then do it
  kubectl metrics-backend release external
  kubectl metrics-backend release external --yes`

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
	to, owner, versions, left, err := o.owners(services)
	if err != nil {
		return nil, err
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
	source := o.sourceTo(backend, to)
	if source >= 0 && owner != "" {
		i := slices.IndexFunc(backend.Status.Sources, func(s v1alpha1.SourceStatus) bool { return s.Name == backend.Spec.Sources[source].Name })
		if i >= 0 && !backend.Status.Sources[i].Healthy {
			return nil, refusef("%s does not answer (%s: %s): an implementation that does not answer gets no APIService back. Start it first", to, backend.Status.Sources[i].Reason, backend.Status.Sources[i].Message)
		}
	}

	p := &plan{backend: backend.Name, before: []string{
		fmt.Sprintf("Gives %s back to %s. Metrics that only MetricsBackend %s defines are then lost.", o.group(), to, backend.Name),
		fmt.Sprintf("To be able to go back, keep it: kubectl get metricsbackend %s -o yaml%s", backend.Name, o.flags),
	}}
	if owner == "" && !backend.Spec.Section(o.group()).Set {
		p.steps, err = o.removal(ctx, backend, source, false)
		return p, err
	}
	give := step{
		does: fmt.Sprintf("%s leaves MetricsBackend %s. Its pods answer until every kube-apiserver asks %s.", o.field(), backend.Name, to),
		back: "put " + o.field() + " of your copy into MetricsBackend " + backend.Name, object: backendWith(backend.Name, nil),
		patch: `[{"op":"remove","path":"/spec/` + o.api + `Metrics"}]`,
		waits: []string{"released=" + o.group(), o.waitForVersions(versions)},
	}
	if !backend.Spec.Section(o.group()).Set {
		give.patch = "[]" // an earlier run has removed it
	}
	others := slices.DeleteFunc(aggregation.Groups(), func(group string) bool { return group == o.group() || !backend.Serves(group) })
	i := slices.IndexFunc(others, func(group string) bool { return backend.Spec.Section(group).Set })
	switch {
	case len(others) == 0:
		give.does = fmt.Sprintf("MetricsBackend %s, which has no other section, is deleted, whatever autoscalers read from it. Its pods answer until every kube-apiserver asks %s.", backend.Name, to)
		give.back = "create MetricsBackend " + backend.Name + " from your copy"
		give.patch, give.deletes = "", true
	case i < 0: // a spec without any section is invalid
		return nil, refusef("MetricsBackend %s is not released of %s yet, and would be deleted: kubectl metrics-backend wait --for=released=%s%s", backend.Name, others[0], others[0], o.flags)
	default:
		for _, name := range left {
			p.before = append(p.before, fmt.Sprintf("Nobody has served APIService %s before. It goes, and the wait for the release ends, once no client has used it for a day; at once if spec.removeDespiteConsumers has %s.", name, name))
		}
		p.before = append(p.before, o.managerWarnings(backend)...)
	}
	removal, err := o.removal(ctx, backend, source, give.deletes)
	p.steps = append([]step{give}, removal...)
	return p, err
}

// owners returns the Service that gets the versions of the group back, or has them back, and the MetricsBackend that still has
// them. The APIServices in left had no owner before it.
func (o *options) owners(services []apiregistrationv1.APIService) (to, owner string, versions, left []string, err error) {
	for i := range services {
		r := aggregation.Describe(&services[i])
		if r.AdoptedFrom == "" && r.Backend != "" {
			left = append(left, r.Name)
			continue
		}
		if err := json.Unmarshal([]byte(cmp.Or(services[i].Annotations[v1alpha1.AnnotationPreviousOwner], "{}")), &v1alpha1.PreviousOwner{}); err != nil {
			return "", "", nil, nil, refusef("read annotation %s of APIService %s, without which it would be deleted: %w: let the implementation apply it again", v1alpha1.AnnotationPreviousOwner, r.Name, err)
		}
		service := cmp.Or(r.AdoptedFrom, r.Service)
		if to != "" && to != service || owner != "" && r.Backend != "" && owner != r.Backend {
			return "", "", nil, nil, refusef("APIServices of %s are of several implementations or MetricsBackends, such as %s and %s: take %s out of each MetricsBackend by itself", o.group(), to, service, o.field())
		}
		to, owner, versions = service, cmp.Or(owner, r.Backend), append(versions, r.Version)
	}
	return to, owner, versions, left, nil
}

// sourceTo returns which source of a MetricsBackend leads to a Service, written NAMESPACE/NAME:PORT, or -1.
func (o *options) sourceTo(backend *v1alpha1.MetricsBackend, service string) int {
	return slices.IndexFunc(backend.Spec.Sources, func(s v1alpha1.SourceSpec) bool {
		return s.MetricsAPI != nil && string(s.MetricsAPI.Group) == o.group() && aggregation.ServiceName(s.MetricsAPI.Service) == service
	})
}

// managerWarnings returns what to know of other field managers that have written the section.
func (o *options) managerWarnings(backend *v1alpha1.MetricsBackend) (warnings []string) {
	for _, entry := range backend.ManagedFields {
		if entry.Manager != fieldManager && apiservices.ManagesField(entry, []string{"f:spec", "f:" + o.api + "Metrics"}) {
			warnings = append(warnings, fmt.Sprintf("Field manager %q has written %s of MetricsBackend %s, too: take it out of its manifest first, if it applies one again.", entry.Manager, o.field(), backend.Name))
		}
	}
	return warnings
}

// removal returns the steps that remove a source, if there is one, unless the whole MetricsBackend is deleted, and what adopt has made for it.
func (o *options) removal(ctx context.Context, backend *v1alpha1.MetricsBackend, i int, deleted bool) (steps []step, err error) {
	if i < 0 {
		return nil, nil
	}
	source, again := &backend.Spec.Sources[i], "kubectl metrics-backend adopt "+o.api+" --backend="+backend.Name+" --source="+backend.Spec.Sources[i].Name+o.flags
	if !deleted {
		steps = append(steps, step{
			does: "Source " + source.Name + " is removed.", back: again, object: backendWith(backend.Name, nil),
			patch: fmt.Sprintf(`[{"op":"test","path":"/spec/sources/%d/name","value":"%s"},{"op":"remove","path":"/spec/sources/%d"}]`, i, source.Name, i),
		})
	}
	if ca := source.MetricsAPI.TLS.CAConfigMapKeyRef; ca != nil && ca.Name == source.Name+authoritySuffix &&
		slices.ContainsFunc(appliedSpec(backend).Sources, func(s v1alpha1.SourceSpec) bool { return s.Name == source.Name }) { // adopt has made it
		namespace, err := o.namespaceOf(ctx, backend)
		if err != nil {
			return nil, err
		}
		steps = append(steps, step{does: "The copy of its CA certificates is deleted.", back: again, object: authority(namespace, ca, nil), deletes: true})
	}
	return steps, nil
}
