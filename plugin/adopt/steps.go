// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/plugin/wait"
)

// fieldManager is the name of the command in server-side apply.
const fieldManager = "kubectl-metrics"

// plan is what the command does.
type plan struct {
	backend string
	// before is what the user has to know first, after is what comes next.
	before, after []string
	steps         []step
}

// step applies one object, and waits.
type step struct {
	// does says what happens, back how to go back.
	does, back string
	applied    *unstructured.Unstructured
	// waits are values of --for of `kubectl metrics wait`.
	waits []string
}

// manifest returns an object in YAML. Each line of a value is indented, so that none is a line of the shell.
func manifest(object *unstructured.Unstructured) string {
	text, _ := yaml.Marshal(object.Object) // it is made of JSON
	return string(text)
}

// comment returns lines of the shell that do nothing, whatever words of others the texts have.
func comment(texts ...string) string {
	var b strings.Builder
	for _, text := range texts {
		fmt.Fprintf(&b, "# %s\n", printers.EscapeTerminal(strings.Join(strings.Fields(text), " ")))
	}
	return b.String()
}

// script returns the plan for a shell.
func (o *options) script(p *plan) string {
	var b strings.Builder
	b.WriteString(comment(p.before...))
	for i, s := range p.steps {
		fmt.Fprintf(&b, "\n%skubectl apply --server-side --field-manager=%s%s -f - <<'END'\n%sEND\n",
			comment(fmt.Sprintf("%d. %s", i+1, s.does), "To go back: "+s.back), fieldManager, o.flags, manifest(s.applied))
		for _, text := range s.waits {
			backend := p.backend + " "
			if strings.HasPrefix(text, "versions=") {
				backend = "" // they are of a group, whoever serves it
			}
			fmt.Fprintf(&b, "kubectl metrics wait %s--for=%s --timeout=%s%s\n", backend, text, o.timeout, o.flags)
		}
	}
	return b.String() + "\n" + comment(p.after...) + comment("Nothing is written yet: run these commands, one step after the other, or this one with --yes.")
}

// do does one step after the other.
func (o *options) do(ctx context.Context, p *plan) error {
	_, _ = fmt.Fprint(o.streams.Out, comment(p.before...))
	for i, s := range p.steps {
		_, _ = fmt.Fprint(o.streams.Out, comment(fmt.Sprintf("%d. %s", i+1, s.does)))
		err := o.explained(o.apply(ctx, s.applied))
		for _, text := range s.waits {
			if err == nil {
				err = wait.Until(ctx, o.cluster, o.streams, o.clock, p.backend, text, o.timeout)
			}
		}
		if err != nil {
			_, _ = fmt.Fprintf(o.streams.ErrOut, "step %d is not finished: kubectl metrics status%s shows the state. To go on, run this command again. To go back: %s\n", i+1, o.flags, s.back)
			return err
		}
	}
	_, err := fmt.Fprint(o.streams.Out, comment(p.after...))
	return err
}

// apply applies an object server-side. It takes no field from another field manager.
func (o *options) apply(ctx context.Context, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, o.cluster.Timeout)
	defer cancel()
	err := o.cluster.Objects.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), client.FieldOwner(fieldManager))
	switch {
	case apierrors.IsConflict(err):
		return refusef("apply %s %s: %w\nPut this into the manifest that this field manager applies:\n%s", object.GetKind(), object.GetName(), err, manifest(object))
	case err != nil:
		return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}
