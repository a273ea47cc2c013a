// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/metricsbackend/metrics-backend-operator/serving/query"
	"github.com/metricsbackend/metrics-backend-operator/serving/restmapping"
)

func checkRequest(r query.ObjectRequest, resource restmapping.Resource) error {
	switch {
	case resource.Namespaced && r.Namespace == "":
		return badRequest("%s are in namespaces: ask for the metric under one", resource.GroupResource())
	case !resource.Namespaced && r.Namespace != "" && resource.GroupResource() != namespaces:
		return badRequest("%s are in no namespace: ask for the metric without one", resource.GroupResource())
	case r.Names != nil && len(r.Names) == 0:
		return badRequest("the request names no object")
	}
	if r.Namespace != "" {
		if err := checkNamespace(r.Namespace); err != nil {
			return err
		}
	}
	for _, name := range r.Names {
		if name == "" {
			return badRequest("the name of an object is empty")
		}
		if err := checkValue("name of an object", name); err != nil {
			return err
		}
	}
	return nil
}

// checkNamespace refuses what no namespace is called: the paths of these APIs may have
// anything there, and in a regular expression "shop|bank" would be two.
func checkNamespace(namespace string) error {
	if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
		return badRequest("the namespace %q cannot be one: %s", namespace, strings.Join(problems, "; "))
	}
	return nil
}

// checkValue refuses what no object is called, and what would leave the quotes in
// which a template may put it, or mean more than itself in a regular expression there.
// Dots, which are in many names, are dotted.go's.
func checkValue(what, value string) error {
	const most = 253
	if len(value) > most {
		return badRequest("the %s is longer than %d characters", what, most)
	}
	if !utf8.ValidString(value) {
		return badRequest("the %s is not UTF-8", what)
	}
	for _, r := range value {
		if strings.ContainsRune("\"'`\\{}^|()[]*+?$", r) || !unicode.IsPrint(r) {
			return badRequest("the %s has the character %q", what, r)
		}
	}
	return nil
}
