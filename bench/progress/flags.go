// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Scale sets the flags that the command line leaves out to the defaults of a scale.
func Scale(fs *pflag.FlagSet, scale string, scales map[string]map[string]string) error {
	defaults, ok := scales[scale]
	if !ok {
		return fmt.Errorf("--scale %q: must be %s", scale, strings.Join(slices.Sorted(maps.Keys(scales)), " or "))
	}
	for name, value := range defaults {
		if !fs.Changed(name) {
			if err := fs.Set(name, value); err != nil {
				return fmt.Errorf("set the default of --%s: %w", name, err)
			}
		}
	}
	return nil
}
