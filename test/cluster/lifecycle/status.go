// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/components"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/process"
)

// Status prints how each component is. healthy is false unless all are, and the node is Ready.
func (c Cluster) Status(ctx context.Context, out io.Writer) (healthy bool, err error) {
	config, err := c.config()
	if err != nil {
		return false, err
	}
	if err := privileged("status"); err != nil {
		return false, err
	}
	all, err := components.All(config)
	if err != nil {
		return false, err
	}
	healthy = true
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPID\tUP\tHEALTH")
	for _, component := range all {
		record, known, err := process.Load(c.Dir, component.Name)
		pid, up, health := "-", "-", "not started"
		switch {
		case err != nil:
			health = brief(err)
		case known && !record.Alive():
			health = "dead (was pid " + strconv.Itoa(record.PID) + ")"
		case known:
			pid, up = strconv.Itoa(record.PID), time.Since(record.Started).Truncate(time.Second).String()
			health = "ok"
			if err := component.Probe(ctx); err != nil {
				health = "unhealthy: " + brief(err)
			}
		}
		healthy = healthy && health == "ok"
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", component.Name, pid, up, health)
	}
	node := "Ready"
	if err := components.NodeReady(ctx, config); err != nil {
		node, healthy = brief(err), false
	}
	if err := table.Flush(); err != nil {
		return false, err
	}
	_, err = fmt.Fprintf(out, "\nnode         %s: %s\nversion      %s\nkubelet TLS  %s\nserver       %s\nkubeconfig   %s\nbinaries     %s\nlogs         %s\n",
		components.NodeName, node, config.Kubernetes, config.KubeletCertificate, config.Server(),
		c.Dir.Kubeconfig(), config.Binaries, c.Dir.Path("logs"))
	return healthy, err
}
