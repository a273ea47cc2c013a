// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package output

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Format is the value of -o: text, json or yaml.
type Format string

var formats = []string{"text", "json", "yaml"}

// AddFlag adds -o, with text as default.
func (f *Format) AddFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(f), "output", "o", "text", "Output format: text, json or yaml.")
	Complete(cmd, "output", formats...)
}

// Complete registers the completion of a flag.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	// It only fails for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// Validate returns an error for an unknown format.
func (f Format) Validate() error {
	if slices.Contains(formats, string(f)) {
		return nil
	}
	return fmt.Errorf("--output %q: must be text, json or yaml", string(f))
}

// Print writes value as JSON or YAML, or trees as text.
func (f Format) Print(w io.Writer, value any, trees ...*Node) error {
	switch f {
	case "json":
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case "yaml":
		text, err := yaml.Marshal(value)
		if err != nil {
			return fmt.Errorf("write YAML: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	return Trees(w, trees...)
}
