// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

// TestPermissionsDocumented compares the table of docs/concepts/security.md with the roles of all accounts. Where a permission is
// granted is not compared.
func TestPermissionsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/concepts/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(page), "| account | where | on | verbs | for |")
	if !found {
		t.Fatal("there is no table of permissions")
	}
	quoted := func(cell string) (all []string) {
		for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			all = append(all, match[1])
		}
		return all
	}
	documented := sets.New[string]()
	for _, row := range strings.Split(table, "\n") {
		cells := strings.Split(row, " | ")
		if len(cells) != 5 {
			continue
		}
		for _, object := range quoted(cells[2]) {
			for _, verb := range quoted(cells[3]) {
				documented.Insert(strings.Join(append(quoted(cells[0]), verb, object), " "))
			}
		}
	}

	granted := sets.New[string]()
	grant := func(account string, rules []rbacv1.PolicyRule) {
		for _, rule := range rules {
			objects := slices.Clone(rule.NonResourceURLs)
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					objects = append(objects, strings.TrimSuffix(resource+"."+group, "."))
				}
			}
			for _, object := range objects {
				for _, verb := range rule.Verbs {
					granted.Insert(account + " " + verb + " " + object)
				}
			}
		}
	}
	allGroups := serving()
	allGroups.CustomMetrics, allGroups.ExternalMetrics = true, true
	for account, roles := range map[string][]any{
		"metrics-serving-NAME":            {ClusterRole(withSources(serving())), Role(withSources(serving()))},
		"metrics-serving-NAME-scrape":     {ScrapeClusterRole(serving())},
		"metrics-serving-NAME-metricsapi": {MetricsAPIClusterRole(serving())},
		"metrics-serving-NAME-prober":     {ProberClusterRole(allGroups)},
	} {
		for _, role := range roles {
			grant(account, typed[rbacv1.ClusterRole](t, role).Rules)
		}
	}
	for _, name := range []string{"clusterrole", "other-namespaces/default", "other-namespaces/kube-system", "leader-election", "serving-namespace/role"} {
		content, err := os.ReadFile(filepath.Join("../../config/rbac", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(content), "\n---\n") {
			var role rbacv1.ClusterRole // or a binding, without rules
			if err := yaml.Unmarshal([]byte(document), &role); err != nil {
				t.Fatal(err)
			}
			grant("metrics-backend-operator", role.Rules)
		}
	}
	if diff := cmp.Diff(sets.List(granted), sets.List(documented)); diff != "" {
		t.Errorf("permissions (-granted +documented):\n%s", diff)
	}
}
