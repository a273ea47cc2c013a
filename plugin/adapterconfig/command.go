// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adapterconfig is `kubectl metrics-backend import prometheus-adapter`: it converts the
// configuration of prometheus-adapter to a MetricsBackend.
package adapterconfig

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/metricsbackend/metrics-backend-operator/plugin/output"
)

const long = `Reads the configuration of prometheus-adapter, and writes a MetricsBackend with the
same rules to the standard output. It asks no cluster.

FILE, or - for the standard input, is one of
  - the configuration itself: YAML with rules, externalRules or resourceRules,
  - manifests with a ConfigMap that holds it; the Deployment that mounts it tells of Prometheus,
  - the values of its Helm chart.

Rules are taken over word by word. Unknown fields are errors, as they are to
prometheus-adapter. Comments above the MetricsBackend say what is not as it was.

What cannot be carried over, such as a file with a token, a selector of everything or a
template that is not understood here, is a comment at its place and a warning on the
error stream. Such rules are written all the same, and then reported as invalid.

Exit codes: 0 everything is carried over, 2 nothing is written, 3 it is written, and
the warnings say what is missing.`

const example = `  # From what runs
  kubectl -n monitoring get configmap,deployment -o yaml |
    kubectl metrics-backend import prometheus-adapter - > backend.yaml

  # From a file
  kubectl metrics-backend import prometheus-adapter config.yaml \
    --prometheus-url=http://prometheus.monitoring.svc:9090 > backend.yaml

  # What would it change?
  kubectl diff -f backend.yaml`

// maxFile bounds a file, in bytes; a ConfigMap has at most 1 MiB.
const maxFile = 16 << 20

// NewCommand returns `kubectl metrics-backend import`.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import",
		Short: "Convert the configuration of another implementation to a MetricsBackend",
		Long:  "Makes a MetricsBackend of another implementation's configuration.",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newAdapterConfig(streams))
	return cmd
}

func newAdapterConfig(streams genericiooptions.IOStreams) *cobra.Command {
	o := options{name: "cluster", sourceName: "prometheus"}
	var url string
	cmd := &cobra.Command{
		Use:     "prometheus-adapter FILE",
		Short:   "Convert the configuration of prometheus-adapter to a MetricsBackend",
		Long:    long,
		Example: example,
		Args:    oneFile,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			text, err := read(args[0], streams.In)
			if err != nil {
				return err
			}
			name := args[0]
			if name == "-" {
				name = "the standard input"
			}
			f, err := find(text, name)
			if err != nil {
				return err
			}
			if f.config.empty() {
				f.remarks = append(f.remarks, "rules: there are none in "+name+", so the MetricsBackend below has nothing to serve, and the cluster refuses it as it is")
			}
			f.source.URL = cmp.Or(url, f.source.URL)
			if err := f.source.check(); err != nil {
				return err
			}
			leftOut, err := write(streams.Out, f, o)
			if err != nil {
				return err
			}
			for _, text := range leftOut {
				if _, err := fmt.Fprintln(streams.ErrOut, "warning:", strings.Join(strings.Fields(text), " ")); err != nil {
					return err
				}
			}
			if len(leftOut) > 0 {
				return output.ErrIncomplete
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&url, "prometheus-url", "", "URL of the Prometheus, as prometheus-adapter's flag of that name. Default: what the file says.")
	cmd.Flags().StringVar(&o.name, "name", o.name, "Name of the MetricsBackend.")
	cmd.Flags().StringVar(&o.sourceName, "source", o.sourceName, "Name of the source.")
	cmd.Flags().BoolVar(&o.nanAsZero, "nan-as-zero", false, "Make 0 of what is no number in metrics of objects, as prometheus-adapter does.")
	return cmd
}

func oneFile(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("name one FILE, or - for the standard input; there are %d: several manifests are one file with --- between them", len(args))
	}
	return nil
}

// validate rejects names that the CRD would reject.
func (o *options) validate() error {
	if wrong := validation.IsDNS1123Subdomain(o.name); len(wrong) > 0 {
		return fmt.Errorf("--name %q: %s", o.name, strings.Join(wrong, "; "))
	}
	if wrong := validation.IsDNS1123Label(o.sourceName); len(wrong) > 0 {
		return fmt.Errorf("--source %q: %s", o.sourceName, strings.Join(wrong, "; "))
	}
	return nil
}

func read(name string, in io.Reader) ([]byte, error) {
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is longer than %d MiB, and no configuration of prometheus-adapter", name, maxFile>>20)
	}
	return text, nil
}
