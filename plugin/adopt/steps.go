// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/metricsbackend/metrics-backend-operator/plugin/wait"
)

// fieldManager is the name of the command in server-side apply.
const fieldManager = "kubectl-metrics-backend"

// plan is what a command does.
type plan struct {
	backend string
	// before is what the user has to know first, after is what comes next.
	before, after []string
	steps         []step
}

// step writes one object, and waits.
type step struct {
	// does says what happens, back how to go back.
	does, back string
	object     *unstructured.Unstructured
	// patch is the JSON patch of the object, or deletes is set; otherwise it is applied.
	patch   string
	deletes bool
	// waits are values of --for of `kubectl metrics-backend wait`.
	waits []string
}

// command returns the step's command of kubectl, with its input.
func (s *step) command(flags string) string {
	object := strings.ToLower(s.object.GetKind()) + " " + s.object.GetName() + flags
	if s.object.GetNamespace() != "" {
		object += " -n " + s.object.GetNamespace()
	}
	switch {
	case s.deletes:
		return "kubectl delete " + object + "\n"
	case s.patch != "":
		return fmt.Sprintf("kubectl patch %s --type=json -p '%s'\n", object, s.patch)
	}
	return fmt.Sprintf("kubectl apply --server-side --field-manager=%s%s -f - <<'END'\n%sEND\n", fieldManager, flags, manifest(s.object))
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
		fmt.Fprintf(&b, "\n%s%s", comment(fmt.Sprintf("%d. %s", i+1, s.does), "To go back: "+s.back), s.command(o.flags))
		for _, text := range s.waits {
			backend := p.backend + " "
			if strings.HasPrefix(text, "versions=") || s.deletes {
				backend = "" // they are of a group, whoever serves it
			}
			fmt.Fprintf(&b, "kubectl metrics-backend wait %s--for=%s --timeout=%s%s\n", backend, text, o.timeout, o.flags)
		}
	}
	return b.String() + "\n" + comment(p.after...) + comment("Nothing is written yet: run these commands, one step after the other, or this one with --yes.")
}

// do does one step after the other.
func (o *options) do(ctx context.Context, p *plan) error {
	_, _ = fmt.Fprint(o.streams.Out, comment(p.before...))
	for i, s := range p.steps {
		_, _ = fmt.Fprint(o.streams.Out, comment(fmt.Sprintf("%d. %s", i+1, s.does)))
		err := o.explained(o.write(ctx, &s))
		for _, text := range s.waits {
			if err == nil {
				err = wait.Until(ctx, o.cluster, o.streams, o.clock, p.backend, text, o.timeout)
			}
		}
		if err != nil {
			_, _ = fmt.Fprintf(o.streams.ErrOut, "step %d is not finished: kubectl metrics-backend status%s shows the state. To go on, run this command again. To go back: %s\n", i+1, o.flags, s.back)
			return err
		}
	}
	_, err := fmt.Fprint(o.streams.Out, comment(p.after...))
	return err
}

// write makes the write of a step. An apply takes no field from another field manager.
func (o *options) write(ctx context.Context, s *step) error {
	ctx, cancel := context.WithTimeout(ctx, o.cluster.Timeout)
	defer cancel()
	object, verb := s.object.DeepCopy(), "apply"
	var err error
	switch {
	case s.deletes:
		verb, err = "delete", client.IgnoreNotFound(o.cluster.Objects.Delete(ctx, object))
	case s.patch != "":
		verb, err = "patch", o.cluster.Objects.Patch(ctx, object, client.RawPatch(types.JSONPatchType, []byte(s.patch)), client.FieldOwner(fieldManager))
	default:
		err = o.cluster.Objects.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldManager))
		if apierrors.IsConflict(err) {
			return refusef("apply %s %s: %w\nPut this into the manifest that this field manager applies:\n%s", object.GetKind(), object.GetName(), err, manifest(s.object))
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s %s: %w", verb, s.object.GetKind(), s.object.GetName(), err)
	}
	return nil
}
