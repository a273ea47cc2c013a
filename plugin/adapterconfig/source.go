// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package adapterconfig

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/metricsbackend/metrics-backend-operator/api/v1alpha1"
)

// source is a Prometheus as prometheus-adapter's flags describe it, with the names of spec.sources.
type source struct {
	URL            string        `yaml:"url"`
	SeriesInterval time.Duration `yaml:"seriesInterval,omitempty"`
	SeriesLookback time.Duration `yaml:"seriesLookback,omitempty"`
	// Authentication is empty, or has serviceAccountToken.
	Authentication map[string]struct{} `yaml:"authentication,omitempty"`
	Headers        []header            `yaml:"headers,omitempty"`
	// ambiguous names Deployments with different URLs, to begin an error.
	ambiguous string
	// leftOut is about flags that are not imported.
	leftOut []string
}

type header struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
}

// adapterRelist is prometheus-adapter's default of --metrics-relist-interval and
// --metrics-max-age.
const adapterRelist = 10 * time.Minute

// readDeployments reads the flags of the first Deployment. The others must have the same URL.
func (s *source) readDeployments(adapters []deployment) {
	if len(adapters) == 0 {
		return
	}
	s.readArguments(adapters[0].args)
	if s.SeriesInterval == 0 && s.SeriesLookback == 0 {
		// Otherwise series that come each 6 to 10 minutes would be lost.
		s.SeriesLookback = adapterRelist
	}
	for _, d := range adapters[1:] {
		var other source
		if other.readArguments(d.args); other.URL != s.URL {
			// Not the URLs, which may contain credentials.
			s.URL, s.ambiguous = "", fmt.Sprintf("the Deployments %s and %s have different flags --prometheus-url: ", adapters[0], d)
			return
		}
	}
}

// readArguments reads prometheus-adapter's flags about its Prometheus.
func (s *source) readArguments(args []string) {
	for i, arg := range args {
		name, value, assigned := strings.Cut(arg, "=")
		if !strings.HasPrefix(name, "-") || value == "false" {
			continue
		}
		name = strings.TrimLeft(name, "-")
		if !assigned && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			value = args[i+1]
		}
		switch name {
		case "prometheus-url":
			s.URL = value
		case "metrics-relist-interval":
			s.SeriesInterval = s.duration(name, value, 5*time.Second, time.Hour)
		case "metrics-max-age":
			s.SeriesLookback = s.duration(name, value, 5*time.Second, 24*time.Hour)
		case "prometheus-header":
			s.readHeader(value)
		case "prometheus-ca-file", "prometheus-client-tls-cert-file", "prometheus-client-tls-key-file", "prometheus-auth-config":
			s.leaveOut("--" + name + ": put the file's content into a Secret and name it in spec.sources[0].prometheus.tls or authentication; for the cluster's CA set caConfigMapKeyRef: {name: kube-root-ca.crt, key: ca.crt}")
		case "prometheus-token-file", "prometheus-auth-incluster":
			s.Authentication = map[string]struct{}{"serviceAccountToken": {}}
			s.leaveOut("--" + name + ": tokens of the ServiceAccount metrics-serving-NAME-source are sent, where NAME is that of the MetricsBackend; grant it what prometheus-adapter's account has, or name a Secret with a token in spec.sources[0].prometheus.authentication.bearerTokenSecretKeyRef instead")
		}
	}
}

func (s *source) leaveOut(text string) {
	// A key follows its certificate: one remark for both is enough, and for each flag.
	if !slices.Contains(s.leftOut, text) {
		s.leftOut = append(s.leftOut, text)
	}
}

func (s *source) duration(name, value string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(value)
	if err != nil || d < least || d > most {
		s.leaveOut(fmt.Sprintf("--%s=%s: not taken over, since it is no duration from %v to %v", name, value, least, most))
		return 0
	}
	return d
}

// readHeader reads a header, unless it contains credentials.
func (s *source) readHeader(text string) {
	name, value, _ := strings.Cut(text, "=")
	if v1alpha1.IsCredentialHeader(name) {
		s.leaveOut("--prometheus-header=" + name + "=…: credentials belong into a Secret; name it in spec.sources[0].prometheus.authentication, or in valueSecretKeyRef of a header")
		return
	}
	s.Headers = append(s.Headers, header{Name: name, Value: value})
}

// check converts the URL to one that the CRD accepts.
func (s *source) check() error {
	if s.URL == "" {
		return errors.New(s.ambiguous + "say which Prometheus is asked: --prometheus-url=http://NAME.NAMESPACE.svc:9090")
	}
	parsed, err := url.Parse(s.URL)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
		// The error of url.Parse repeats all of it, a password too.
		return fmt.Errorf("the URL of Prometheus cannot be used: it must have http:// or https:// and a host, and may have a port and a path, as http://NAME.NAMESPACE.svc:9090; --prometheus-url says another")
	}
	if parsed.User != nil {
		parsed.User = nil
		s.leaveOut("credentials in the URL of Prometheus: put them into a Secret and name it in spec.sources[0].prometheus.authentication.basicAuthSecretRef")
	}
	if parsed.RawQuery != "" || parsed.Fragment != "" {
		parsed.RawQuery, parsed.Fragment = "", ""
		s.leaveOut("the query in the URL of Prometheus is left out: a tenant belongs into spec.sources[0].prometheus.headers")
	}
	if s.SeriesInterval > 0 && s.SeriesLookback == 0 && s.SeriesInterval > 5*time.Minute {
		s.SeriesLookback = s.SeriesInterval // its default is 5m, and it must not be shorter
	}
	if s.SeriesLookback > 0 && s.SeriesLookback < max(s.SeriesInterval, time.Minute) {
		s.SeriesLookback = max(s.SeriesInterval, time.Minute) // as prometheus-adapter demands
	}
	s.URL = parsed.String()
	return nil
}

// object names an object of a manifest, which may leave its namespace out.
type object struct{ namespace, name string }

func (o object) String() string { return strings.TrimPrefix(o.namespace+"/"+o.name, "/") }

// deployment is a Deployment of prometheus-adapter.
type deployment struct {
	object
	args []string
}

// adapters returns the Deployments that use the configuration: those that mount its ConfigMap,
// or if none does, those that look like prometheus-adapter. Other Deployments may have a flag
// of the same name.
func (f *input) adapters(documents []*yaml.Node) []deployment {
	var mounting, alike []deployment
	for _, document := range documents {
		metadata, pod := at(document, "metadata"), at(at(at(document, "spec"), "template"), "spec")
		d := deployment{object: object{stringAt(metadata, "namespace"), stringAt(metadata, "name")}}
		isAlike := false
		for _, container := range list(pod, "containers") {
			args := slices.Concat(scalars(container, "command"), scalars(container, "args"))
			isAlike = isAlike || strings.Contains(stringAt(container, "image"), "prometheus-adapter") || slices.ContainsFunc(args, func(arg string) bool {
				name, _, _ := strings.Cut(arg, "=")
				return name == "--config" || name == "-config"
			})
			d.args = append(d.args, args...)
		}
		sameNamespace := d.namespace == f.configMap.namespace || d.namespace == "" || f.configMap.namespace == ""
		switch {
		case f.configMap.name != "" && sameNamespace && mounts(pod, f.configMap.name):
			mounting = append(mounting, d)
		case isAlike:
			alike = append(alike, d)
		}
	}
	if len(mounting) > 0 {
		return mounting
	}
	return alike
}

// mounts reports whether a volume of the pods has the ConfigMap.
func mounts(pod *yaml.Node, configMap string) bool {
	return slices.ContainsFunc(list(pod, "volumes"), func(volume *yaml.Node) bool {
		return stringAt(at(volume, "configMap"), "name") == configMap ||
			slices.ContainsFunc(list(at(volume, "projected"), "sources"), func(source *yaml.Node) bool {
				return stringAt(at(source, "configMap"), "name") == configMap
			})
	})
}

// list returns the elements of a sequence, if it is one.
func list(node *yaml.Node, key string) []*yaml.Node {
	if found := at(node, key); found != nil && found.Kind == yaml.SequenceNode {
		return found.Content
	}
	return nil
}

func scalars(node *yaml.Node, key string) []string {
	var all []string
	for _, one := range list(node, key) {
		all = append(all, one.Value)
	}
	return all
}
