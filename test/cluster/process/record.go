// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/metricsbackend/metrics-backend-operator/test/cluster/state"
)

// Record is what is kept about a started component.
type Record struct {
	Name string `json:"name"`
	Identity
	// Fingerprint is the hash of the command line and the configuration files that it was started with.
	Fingerprint string    `json:"fingerprint"`
	Started     time.Time `json:"started"`
}

func recordPath(dir state.Dir, name string) string { return dir.Path("processes", name+".json") }

// Load returns the record of a component; ok is false where there is none.
func Load(dir state.Dir, name string) (record Record, ok bool, err error) {
	content, err := os.ReadFile(recordPath(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("reading the record of %s: %w", name, err)
	}
	if err := json.Unmarshal(content, &record); err != nil {
		return Record{}, false, fmt.Errorf("reading the record of %s (%s): %w", name, recordPath(dir, name), err)
	}
	return record, true, nil
}

// Records returns all records, by name.
func Records(dir state.Dir) ([]Record, error) {
	paths, err := filepath.Glob(dir.Path("processes", "*.json"))
	if err != nil {
		return nil, fmt.Errorf("listing process records: %w", err)
	}
	var (
		records []Record
		failed  error
	)
	for _, path := range paths {
		name := filepath.Base(path)
		record, ok, err := Load(dir, name[:len(name)-len(".json")])
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		if ok {
			records = append(records, record)
		}
	}
	return records, failed
}

func (r Record) save(dir state.Dir) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the record of %s: %w", r.Name, err)
	}
	return state.WriteFile(recordPath(dir, r.Name), append(content, '\n'), 0o644)
}

// Forget removes the record of a component.
func Forget(dir state.Dir, name string) error {
	if err := os.Remove(recordPath(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the record of %s: %w", name, err)
	}
	return nil
}
