//go:build integration

// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

// value is one of any of the APIs, as JSON has it.
type value struct {
	DescribedObject struct{ Name string }
	MetricLabels    map[string]string
	Value           string
}

func (v *value) String() string {
	if v.DescribedObject.Name != "" {
		return v.DescribedObject.Name + " " + v.Value
	}
	return labels.Set(v.MetricLabels).String() + " " + v.Value
}

func valuesOf(body []byte) ([]string, error) {
	var list struct{ Items []value }
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("decode %s: %w", body, err)
	}
	all := []string{}
	for i := range list.Items {
		all = append(all, list.Items[i].String())
	}
	return all, nil
}

// valuesAt asks as an administrator.
func valuesAt(t *testing.T, path string) []string {
	t.Helper()
	body, err := raw(t.Context(), path)
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	all, err := valuesOf(body)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantValues(ctx context.Context, path string, want ...string) error {
	body, err := raw(ctx, path)
	if err != nil {
		return err
	}
	got, err := valuesOf(body)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%q, want %q", got, want)
	}
	return nil
}
