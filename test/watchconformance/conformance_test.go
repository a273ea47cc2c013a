// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package watchconformance

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

// Flags of a run against a cluster. KUBECONFIG alone does not ask for one: `go test
// ./...` must not open watches on whatever cluster is current.
var (
	kubeconfig    = flag.String("kubeconfig", "", "kubeconfig of the server to check; without one, this repository's on loopback")
	kubecontext   = flag.String("context", "", "context of the kubeconfig, by default of KUBECONFIG")
	levelName     = flag.String("level", Expected.String(), "up to which level a check that fails fails the test: required, expected, promised")
	only          = flag.String("checks", "", "regular expression of the checks to run")
	patience      = flag.Duration("patience", 5*time.Second, "how long what is due at once may take")
	pointInterval = flag.Duration("point-interval", 15*time.Second, "how often an object has a new data point")
	bookmarks     = flag.Duration("bookmark-interval", time.Minute, "the longest time between two bookmarks")
	watches       = flag.Int("watches", 50, "how many watches to open at once")
	limit         = flag.Int("limit", 0, "how many watches the server admits; all of them are taken for a moment")
	custom        = flag.String("custom", "", "a custom metric to check in place of metrics.k8s.io, as NAMESPACE/RESOURCE/METRIC, without a namespace as /RESOURCE/METRIC")
	external      = flag.String("external", "", "an external metric to check in place of metrics.k8s.io, as NAMESPACE/METRIC")
	writeTo       = flag.String("write-namespace", "", "namespace in which a check may make a pod and change its labels")
	writeImage    = flag.String("write-image", "registry.k8s.io/pause:3.10", "image of that pod")
)

func TestMain(m *testing.M) {
	// Tests wait most of the time: more of them at once than cores, unless -parallel says otherwise.
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintf(os.Stderr, "set up the tests: %v\n", err)
		os.Exit(1)
	}
	flag.Parse()
	// The reference's own log tells nothing that a check does not.
	klog.SetLogger(klog.Logger{})
	os.Exit(m.Run())
}

// TestConformance checks the cluster of the flags, or else the reference.
func TestConformance(t *testing.T) {
	t.Parallel()
	level, ok := map[string]Level{"required": Required, "expected": Expected, "promised": Promised}[*levelName]
	if !ok {
		t.Fatalf("-level=%s: want required, expected or promised", *levelName)
	}
	config, options := reading(t)
	if *kubeconfig == "" && *kubecontext == "" {
		r := newReference(t, roomy)
		level, config = Promised, r.config
		options.Patience = max(options.Patience, referencePatience)
		options.PointInterval, options.BookmarkInterval, options.Pods = 10*referenceInterval, 2*time.Second, r
	}
	report, err := Run(t.Context(), config, apiOfFlags(t), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", report)
	if !report.Served {
		t.Error("there is no watch to be checked: discovery names the verb for no resource")
	}
	for _, r := range report.With(Failed, level) {
		t.Errorf("%s, %s %s: %s (%s)", r.Check, r.Version, r.Resource, r.Why, r.Source)
	}
	if *kubeconfig == "" && *kubecontext == "" {
		// A small or quiet cluster does not show all; the reference does.
		for _, r := range report.With(Unseen, level) {
			t.Errorf("%s, %s %s: %s", r.Check, r.Version, r.Resource, r.Why)
		}
	}
}

// apiOfFlags is the API to check.
func apiOfFlags(t *testing.T) API {
	t.Helper()
	switch parts := strings.Split(*custom+*external, "/"); {
	case *custom == "" && *external == "":
		return ResourceMetrics()
	case *kubeconfig == "" && *kubecontext == "":
		t.Fatal("-custom and -external are of a cluster: give a -kubeconfig")
	case *external == "" && len(parts) == 3:
		return CustomMetric(schema.ParseGroupResource(parts[1]), parts[0], parts[2])
	case *custom == "" && len(parts) == 2:
		return ExternalMetric(parts[0], parts[1])
	}
	t.Fatalf("-custom=%s -external=%s: want one of NAMESPACE/RESOURCE/METRIC and NAMESPACE/METRIC", *custom, *external)
	return API{}
}

// reading reads the flags.
func reading(t *testing.T) (*rest.Config, Options) {
	t.Helper()
	options := Options{
		Patience: *patience, PointInterval: *pointInterval, BookmarkInterval: *bookmarks, Watches: *watches, Limit: *limit,
	}
	if *only != "" {
		expression, err := regexp.Compile(*only)
		if err != nil {
			t.Fatalf("-checks: %v", err)
		}
		options.Only = expression
	}
	if *kubeconfig == "" && *kubecontext == "" {
		return nil, options
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = *kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: *kubecontext}).ClientConfig()
	if err != nil {
		t.Fatalf("read the kubeconfig: %v", err)
	}
	if *writeTo != "" {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		options.Pods = NewPods(client, *writeTo, *writeImage)
	}
	return config, options
}

// TestLimit has the reference admit no more watches than the check opens.
func TestLimit(t *testing.T) {
	limits := roomy
	limits.Connections = 8
	r := newReference(t, limits)
	report, err := Run(t.Context(), r.config, ResourceMetrics(), Options{Patience: referencePatience, Limit: limits.Connections, Only: regexp.MustCompile("^limit-429$|^many-watches$")})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(report.With(Passed, Promised)); got != len(report.Results) || got != 2*4 {
		t.Errorf("want 2 checks of 2 resources in 2 versions to pass:\n%s", report)
	}
}

// uncheckable are the rows of the design's table of which clients see nothing, or
// only what another row says, and why.
var uncheckable = map[string]string{
	"shutdown":               "the suite restarts nothing",
	"time":                   "streams without timeoutSeconds last half an hour and more",
	"time of custom metrics": "kube-apiserver's own minute is the reason for it; test/e2e holds such a watch through it until it ends",
	"verb":                   "it takes users with other rights; test/integration/serving and test/e2e have them",
	"options":                "malformed-refused is of the line paths",
	"metrics":                "the server's own",
}

// designLines are the rows of the Watch table in docs/design.md.
func designLines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Watch\n")
	section, _, _ = strings.Cut(section, "\n## ")
	_, rows, found := strings.Cut(section, "\n|---|---|\n")
	if !found {
		t.Fatal("docs/design.md has no table of two columns under Watch")
	}
	var lines []string
	for row := range strings.Lines(rows) {
		cells := strings.Split(row, "|")
		if len(cells) < 4 {
			break // the table's end
		}
		lines = append(lines, strings.TrimSpace(cells[1]))
	}
	return lines
}

// TestCatalogue: names are unique, and each row of the design's table that can be
// seen from outside has a check.
func TestCatalogue(t *testing.T) {
	seen, lines := map[string]bool{}, map[string]bool{}
	for _, c := range catalogue {
		if seen[c.name] {
			t.Errorf("%s is there twice", c.name)
		}
		seen[c.name], lines[c.line] = true, true
		if c.source == "" || c.run == nil || strings.ToLower(c.name) != c.name {
			t.Errorf("%s is incomplete", c.name)
		}
	}
	for _, line := range designLines(t) {
		if lines[line] == (uncheckable[line] != "") {
			t.Errorf("the line %q of docs/design.md: want either a check of it or a reason against one", line)
		}
		delete(lines, line)
	}
	for line := range lines {
		t.Errorf("checks are of the line %q, which docs/design.md does not have", line)
	}
}
