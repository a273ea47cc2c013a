// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/binaries"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/cgroups"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/components"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/network"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/packages"
	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// readyTimeout is how long a node may take from its kubelet's health to Ready, and kube-apiserver from its own to
// the namespace kube-system.
const readyTimeout = 2 * time.Minute

// Options are the choices of an Up. Empty ones of a cluster that exists stay as they are.
type Options struct {
	// Kubernetes is the version of all components, such as v1.31.4. Default, also of a cluster that exists: that of
	// this module.
	Kubernetes string
	// KubeletCertificate is by default signed by the cluster.
	KubeletCertificate state.KubeletCertificate
	// IPFamily is by default IPv4. It is immutable.
	IPFamily state.IPFamily
}

// Up brings the cluster up. On one that is healthy it changes nothing; on one that is partly down it starts
// what is missing.
func (c Cluster) Up(ctx context.Context, options Options) error {
	if err := privileged("up"); err != nil {
		return err
	}
	var folder string
	needs, working := errgroup.WithContext(ctx)
	needs.Go(func() error { return c.install(working) })
	needs.Go(func() (err error) {
		folder, err = binaries.Build(working, c.Report, options.Kubernetes)
		return err
	})
	if err := needs.Wait(); err != nil {
		return err
	}
	c.Report.Say("binaries", "Kubernetes %s and etcd in %s", options.Kubernetes, folder)
	// Before anything is made: a directory of ours would later say that there is something to take down.
	if _, err := network.HaveBridge(string(c.Dir)); err != nil {
		return err
	}
	if err := c.Dir.Create(); err != nil {
		return err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	err = c.bringUp(ctx, folder, options)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\n(the logs are in %s; run up again to repair, or down and up to start over)", err, c.Dir.Path("logs"))
	}
	return err
}

func (c Cluster) install(ctx context.Context) error {
	absent := packages.Missing()
	if len(absent) == 0 {
		c.Report.Say("packages", "all there")
		return nil
	}
	c.Report.Say("packages", "installing %s", strings.Join(absent, ", "))
	if err := packages.Install(ctx, absent); err != nil {
		return err
	}
	c.Report.Say("packages", "installed")
	return nil
}

func (c Cluster) bringUp(ctx context.Context, folder string, options Options) error {
	settings, err := c.settings(func() (state.Settings, error) { return before(ctx) })
	if err != nil {
		return err
	}
	settings.Binaries, settings.Kubernetes = folder, options.Kubernetes
	settings.KubeletCertificate = cmp.Or(options.KubeletCertificate, settings.KubeletCertificate)
	have := cmp.Or(settings.IPFamily, options.IPFamily, state.IPv4)
	if options.IPFamily != "" && options.IPFamily != have {
		return fmt.Errorf("the cluster has addresses of %s: run down before up --ip-family=%s", have, options.IPFamily)
	}
	settings.IPFamily = have
	if err := c.Dir.Save(settings); err != nil {
		return err
	}
	config := c.configOf(settings)
	changed, err := c.prepare(config)
	if err != nil {
		return err
	}
	all, err := components.All(config)
	if err != nil {
		return err
	}
	if err := c.strays(ctx, all); err != nil {
		return err
	}
	started, err := c.startAll(ctx, all, &settings)
	if err != nil {
		return err
	}
	if err := c.await(ctx, "the ResourceQuota of kube-system", components.APIServer, func(ctx context.Context) error {
		return components.AllowPriorityClasses(ctx, config)
	}); err != nil {
		return err
	}
	if err := c.await(ctx, "the node "+components.NodeName, components.Kubelet, func(ctx context.Context) error {
		return components.NodeReady(ctx, config)
	}); err != nil {
		return err
	}
	c.Report.Say("node", "%s is Ready", components.NodeName)
	if !changed && !started {
		c.Report.Say("cluster", "was up and healthy; nothing to do")
	} else {
		c.Report.Say("cluster", "up")
	}
	c.Report.Say("use it", "export KUBECONFIG=%s PATH=%s:$PATH", c.Dir.Kubeconfig(), filepath.Clean(folder))
	return nil
}

// before notes what "down" will put back.
func before(ctx context.Context) (state.Settings, error) {
	sysctls, err := network.ReadSysctls()
	if err != nil {
		return state.Settings{}, err
	}
	tables, err := network.Tables(ctx)
	if err != nil {
		return state.Settings{}, err
	}
	return state.Settings{
		Created:            time.Now().UTC().Truncate(time.Second),
		KubeletCertificate: state.SignedByCluster,
		Sysctls:            sysctls,
		Tables:             tables,
	}, nil
}

// prepare makes what the components stand on.
func (c Cluster) prepare(config components.Config) (changed bool, err error) {
	made, err := components.EnsureCertificates(config)
	if err != nil {
		return false, err
	}
	if len(made) > 0 {
		c.Report.Say("certificates", "%d made", len(made))
	}
	kubeconfig, err := components.AdminKubeconfig(config)
	if err != nil {
		return false, err
	}
	if err := state.WriteFile(c.Dir.Kubeconfig(), kubeconfig, 0o600); err != nil {
		return false, err
	}
	bridge, err := network.EnsureBridge(string(c.Dir), network.AddressesOf(config.IPFamily))
	if err != nil {
		return false, err
	}
	if err := network.Forward(config.IPFamily); err != nil {
		return false, err
	}
	if bridge {
		c.Report.Say("network", "bridge %s with %s", network.Bridge, network.AddressesOf(config.IPFamily).Node)
	}
	hierarchies, err := cgroups.Hierarchies()
	if err != nil {
		return false, err
	}
	if err := cgroups.Create(hierarchies); err != nil {
		return false, err
	}
	return len(made) > 0 || bridge, nil
}

// startAll starts the components: the store, then the API, then what uses it; containerd and the images at
// the same time.
func (c Cluster) startAll(ctx context.Context, all []components.Component, settings *state.Settings) (bool, error) {
	var started atomic.Bool
	ensure := func(ctx context.Context, names ...string) error {
		for _, name := range names {
			component, err := components.Named(all, name)
			if err != nil {
				return err
			}
			did, err := c.ensure(ctx, component)
			if err != nil {
				return err
			}
			if did {
				started.Store(true)
			}
		}
		return nil
	}
	first, firstContext := errgroup.WithContext(ctx)
	first.Go(func() error { return ensure(firstContext, components.Etcd, components.APIServer) })
	first.Go(func() error {
		if err := ensure(firstContext, components.Containerd); err != nil {
			return err
		}
		did, err := c.ownImages(firstContext, settings)
		if did {
			started.Store(true)
		}
		return err
	})
	if err := first.Wait(); err != nil {
		return false, err
	}
	second, secondContext := errgroup.WithContext(ctx)
	for _, name := range []string{components.ControllerManager, components.Scheduler, components.Kubelet, components.Proxy} {
		second.Go(func() error { return ensure(secondContext, name) })
	}
	err := second.Wait()
	return started.Load(), err
}

// await repeats ready until it succeeds; otherwise the error names the component's log.
func (c Cluster) await(ctx context.Context, what, component string, ready func(context.Context) error) error {
	waiting, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		err := ready(waiting)
		if err == nil {
			return nil
		}
		select {
		case <-waiting.Done():
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return fmt.Errorf("waiting %s for %s: %w; see %s", readyTimeout, what, err, c.Dir.Log(component))
		case <-ticker.C:
		}
	}
}
