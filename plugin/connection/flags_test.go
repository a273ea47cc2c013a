// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

func TestFlags(t *testing.T) {
	tests := map[string]struct {
		args []string
		want string
	}{
		"none":               {},
		"cluster and user":   {args: []string{"--context=prod", "--kubeconfig", "/a/b"}, want: " --kubeconfig=/a/b --context=prod"},
		"a context of EKS":   {args: []string{"--context", "arn:aws:eks:eu-west-1:1:cluster/a"}, want: " --context=arn:aws:eks:eu-west-1:1:cluster/a"},
		"for a shell":        {args: []string{"--kubeconfig", "/my files/it's"}, want: ` --kubeconfig='/my files/it'\''s'`},
		"no credentials":     {args: []string{"--token=secret", "--server=https://h:1"}, want: " --server=https://h:1"},
		"by its address":     {args: []string{"--tls-server-name=api", "--server=https://h:1"}, want: " --server=https://h:1 --tls-server-name=api"},
		"an authority":       {args: []string{"--certificate-authority=/ca"}, want: " --certificate-authority=/ca"},
		"not verified":       {args: []string{"--insecure-skip-tls-verify"}, want: " --insecure-skip-tls-verify=true"},
		"of this command":    {args: []string{"--request-timeout=5s"}},
		"given as the empty": {args: []string{"--context="}, want: " --context="},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			set := pflag.NewFlagSet("", pflag.ContinueOnError)
			genericclioptions.NewConfigFlags(true).AddFlags(set)
			if err := set.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			if got := Flags(set); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
