// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Command testrun runs the parts of the test suite for hack/test.sh, and decides whether the run has passed.
//
//	testrun run --part unit -- ARGUMENTS   run go test within the part's time limit
//	testrun step --part unit --name "go vet" --seconds 12 [--failed]   record a step that is not a Go test
//	testrun again      print the tests to run once more, by part
//	testrun summary PART...   print durations, measures and failures; exit code 1 unless all passed
//	testrun skip, extra, limit   print what test/tiers has
//
// It keeps the results of the run in the folder of --results.
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
			// The results may lack this failure: exit with another code than for failed tests.
			fmt.Fprintln(os.Stderr, "testrun:", err)
			os.Exit(2)
		}
		os.Exit(1)
	}
}

func root() *cobra.Command {
	var results string
	command := &cobra.Command{
		Use: "testrun", Short: "Run the parts of the test suite, and report the results",
		SilenceUsage: true, SilenceErrors: true,
	}
	command.PersistentFlags().StringVar(&results, "results", "bin/test", "folder of the results")

	var part partRun
	run := &cobra.Command{
		Use: "run -- ARGUMENTS", Short: "Run go test, and record the results", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			part.results, part.arguments = results, args
			return part.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	run.Flags().StringVar(&part.name, "part", "", "the part's name")
	run.Flags().StringVar(&part.dir, "dir", ".", "folder of the Go module")
	run.Flags().StringVar(&part.tier, "tier", cmp.Or(os.Getenv(outcome.TierVariable), string(tiers.Test)), "the tier, which has a limit for each part")
	run.Flags().BoolVar(&part.verbose, "verbose", false, "print the output of tests that pass, too")
	run.Flags().BoolVar(&part.again, "again", false, "this run repeats tests that missed a deadline")

	var step Step
	add := &cobra.Command{
		Use: "step", Short: "Record a step that is not a Go test", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return update(results, func(r *Results) { r.Steps = append(r.Steps, step) })
		},
	}
	add.Flags().StringVar(&step.Part, "part", "", "the part's name")
	add.Flags().StringVar(&step.Name, "name", "", "the step's name")
	add.Flags().Float64Var(&step.Seconds, "seconds", 0, "how long it took")
	add.Flags().BoolVar(&step.Failed, "failed", false, "it failed")

	again := &cobra.Command{
		Use: "again", Short: "Print the tests to run once more, by part", Args: cobra.NoArgs,
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
		Use: "summary PART...", Short: "Print durations, measures and failures; each of the parts must have run",
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
	command.AddCommand(run, add, again, summary, skip(), extraTest(), limit())
	return command
}

func skip() *cobra.Command {
	var (
		suite, tier string
		extra       []string
	)
	command := &cobra.Command{
		Use: "skip", Short: "Print a pattern for go test -skip that skips the tests of other tiers", Args: cobra.NoArgs,
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
	command.Flags().StringSliceVar(&extra, "extra", nil, "further tests that are not skipped")
	return command
}

func extraTest() *cobra.Command {
	var commit string
	command := &cobra.Command{
		Use: "extra", Short: "Print the end-to-end test of the long tier that a run of the tier test includes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), tiers.ExtraTest(commit))
			return err
		},
	}
	command.Flags().StringVar(&commit, "commit", "", "the tested commit")
	return command
}

func limit() *cobra.Command {
	var part, tier string
	command := &cobra.Command{
		Use: "limit", Short: "Print the time limit of a part, such as 24m0s", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			limit, err := tiers.Limit(tiers.Tier(tier), part)
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), limit)
			}
			return err
		},
	}
	command.Flags().StringVar(&part, "part", "", "build, unit, integration, e2e, clusters, bench or release")
	command.Flags().StringVar(&tier, "tier", string(tiers.Test), "test, long or soak")
	return command
}
