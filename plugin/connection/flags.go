// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"regexp"
	"strings"

	"github.com/spf13/pflag"
)

const (
	// OperatorLabel selects the operator's pods.
	OperatorLabel = "app.kubernetes.io/name=metrics-backend-operator"
	// OperatorPods is the command that shows whether the operator runs, in whichever namespace.
	OperatorPods = "kubectl get pods -A -l " + OperatorLabel
)

// needsQuotes matches what a shell would not pass on as it is.
var needsQuotes = regexp.MustCompile(`[^A-Za-z0-9@%+=:,./_-]`)

// Flags returns the given flags that choose a cluster, how it is verified, and its user, each after a space,
// to append to a kubectl command for the same cluster.
func Flags(set *pflag.FlagSet) string {
	var out strings.Builder
	for _, name := range []string{"kubeconfig", "context", "cluster", "user", "server", "tls-server-name", "certificate-authority", "insecure-skip-tls-verify"} {
		flag := set.Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		value := flag.Value.String()
		if needsQuotes.MatchString(value) {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		out.WriteString(" --" + name + "=" + value)
	}
	return out.String()
}
