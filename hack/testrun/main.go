// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testrun runs the parts of the test suite for hack/test.sh, and judges the whole run.
//
//	testrun run --part unit -- ARGUMENTS   go test, as long as the part may take
//	testrun step --part unit --name "go vet" --seconds 12 [--failed]   keep what is no Go test
//	testrun again      the parts and tests that may be run once more, if any
//	testrun summary PART...   durations, figures and failures; exit code 1 unless all passed
//	testrun skip, rotated, limit   what test/tiers says
//
// What it knows of the run is kept in the folder of --results.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/metricsbackend/metrics-backend-operator/test/outcome"
	"github.com/metricsbackend/metrics-backend-operator/test/tiers"
)

func main() {
	if err := root().Execute(); err != nil {
		if !errors.Is(err, errFailed) {
			// What could not be kept is not in the results: hack/test.sh has to know.
			fmt.Fprintln(os.Stderr, "testrun:", err)
			os.Exit(2)
		}
		os.Exit(1)
	}
}

func root() *cobra.Command {
	var results string
	command := &cobra.Command{
		Use: "testrun", Short: "Runs the parts of the test suite, and judges the whole run",
		SilenceUsage: true, SilenceErrors: true,
	}
	command.PersistentFlags().StringVar(&results, "results", "bin/test", "folder of the results")

	var part partRun
	run := &cobra.Command{
		Use: "run -- ARGUMENTS", Short: "Run go test, and keep the results", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			part.results, part.arguments = results, args
			return part.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	run.Flags().StringVar(&part.name, "part", "", "the part's name")
	run.Flags().StringVar(&part.dir, "dir", ".", "folder of the Go module")
	run.Flags().StringVar(&part.tier, "tier", cmp.Or(os.Getenv(outcome.TierVariable), string(tiers.Test)), "the tier, which has a limit for each part")
	run.Flags().BoolVar(&part.verbose, "verbose", false, "print the output of tests that pass, too")
	run.Flags().BoolVar(&part.again, "again", false, "it repeats tests that waited in vain")

	var step Step
	add := &cobra.Command{
		Use: "step", Short: "Keep the duration of what is no Go test", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return update(results, func(r *Results) { r.Steps = append(r.Steps, step) })
		},
	}
	add.Flags().StringVar(&step.Part, "part", "", "the part's name")
	add.Flags().StringVar(&step.Name, "name", "", "the step's name")
	add.Flags().Float64Var(&step.Seconds, "seconds", 0, "how long it took")
	add.Flags().BoolVar(&step.Failed, "failed", false, "it failed")

	again := &cobra.Command{
		Use: "again", Short: "Print the parts and tests that may be run once more", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := load(results)
			if err != nil {
				return err
			}
			for part, pattern := range r.again() {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\n", part, pattern)
			}
			return nil
		},
	}
	summary := &cobra.Command{
		Use: "summary PART...", Short: "Print durations, measures and failures of the parts, each of which must have been run",
		RunE: func(cmd *cobra.Command, parts []string) error {
			r, err := load(results)
			if err != nil {
				return err
			}
			r.require(parts)
			if err := r.writeDurations(results); err != nil {
				return err
			}
			r.print(cmd.OutOrStdout(), results)
			if !r.passed() {
				return errFailed
			}
			return nil
		},
	}
	command.AddCommand(run, add, again, summary, skip(), rotated(), limit())
	return command
}

func skip() *cobra.Command {
	var (
		suite, tier string
		extra       []string
	)
	command := &cobra.Command{
		Use: "skip", Short: "Print the pattern for go test's -skip that leaves the tests of a tier", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			pattern, err := tiers.Skip(tiers.Suite(suite), tiers.Tier(tier), extra...)
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), pattern)
			}
			return err
		},
	}
	command.Flags().StringVar(&suite, "suite", "", "e2e or integration")
	command.Flags().StringVar(&tier, "tier", string(tiers.Test), "test, long or soak")
	command.Flags().StringSliceVar(&extra, "extra", nil, "further tests to leave")
	return command
}

func rotated() *cobra.Command {
	var commit string
	command := &cobra.Command{
		Use: "rotated", Short: "Print the end-to-end test of the long tier that a run of the tier test takes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), tiers.Rotated(commit))
			return err
		},
	}
	command.Flags().StringVar(&commit, "commit", "", "the commit that is tested")
	return command
}

func limit() *cobra.Command {
	var part, tier string
	command := &cobra.Command{
		Use: "limit", Short: "Print the most that a part may take, as 24m0s", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limit, err := tiers.Limit(tiers.Tier(tier), part)
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), limit)
			}
			return err
		},
	}
	command.Flags().StringVar(&part, "part", "", "build, unit, integration or e2e")
	command.Flags().StringVar(&tier, "tier", string(tiers.Test), "test, long or soak")
	return command
}
