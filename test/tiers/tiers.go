// Copyright The metrics-backend-operator Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tiers assigns the tests of test/e2e and test/integration to `make test`, `make test-long` and
// `make test-soak`. Only `make test` has unit tests.
package tiers

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Tier is one of the three test runs.
type Tier string

// The tiers. A test of the soak tier repeats one of another tier for longer, or checks durations.
const (
	Test Tier = "test"
	Long Tier = "long"
	Soak Tier = "soak"
)

// All lists the tiers.
var All = []Tier{Test, Long, Soak}

// Suite is a part of a run whose tests have tiers.
type Suite string

// The suites, which are folders of test/.
const (
	EndToEnd    Suite = "e2e"
	Integration Suite = "integration"
)

// table has the names of the tests. Each is in one of the tiers test and long, and may be in soak, too. docs/testing.md
// says which of the tier long need a program of another project.
var table = map[Suite]map[Tier]string{
	EndToEnd: {
		Test: `
			TestAPIServicesAreVerified TestKubectlTop TestKubectlGet TestKubectlExplainMetrics
			TestReaderRoles TestServingPodDeletedUnderLoad TestDeletion
			TestUpgradeAndRollbackBySpec TestUpgradeAndRollbackByImage TestWatch`,
		Long: `
			TestVersionDroppedAndAdded TestOperatorKilled TestServingChildrenDeleted TestServingProcessKilled
			TestKubeAPIServerKilled TestOperatorNamespaceDeleted TestManifestDeletedFirst
			TestSelfSignedKubelet TestSignedKubeletIsNeverPinned
			TestTakeover TestKEDA TestPrometheusAdapter TestAlertsFire TestBrokenAdoptions TestRunbooks TestChart TestFlux TestPluginVerify TestHorizontalPodAutoscalerByWatch`,
		Soak: `TestUpgradeAndRollbackBySpec TestUpgradeAndRollbackByImage TestWatch TestHorizontalPodAutoscalerByWatch`,
	},
	Integration: {
		Test: `
			TestAdmissionOfAutoscalers TestAdmissionLeavesOldMetrics TestAdmissionDecidesAsServing TestAdmissionOfCapitalLetters
			TestAdmissionFailsOpen TestAdmissionStaysWithinBudget TestBinary TestBinaryRefuses
			TestValidation TestNamespaceIsImmutable TestDefaults TestStoredFlagIsKept
			TestKubectlShowsColumnsAndFields TestValidationOfSources TestValidationOfDeclaredMetricsAndPolicies
			TestDefaultsOfSourcesAndMetrics TestDeclaredMetric TestOperatorMemory
			TestOneOfTwoKubeAPIServersLags
			TestUntrustedKubelets
			TestGroupsComeAndGo TestWhoMayReadMetrics TestObjectsAreAccepted TestPodsAreRestricted TestChildrenMetadata
			TestDriftIsCorrected TestCRDOlderThanOperator TestCRDNewerThanOperator TestKubectlApplyPrune
			TestExistingAndServing TestSpecAppliedByTwo TestServerSideApplyAfterClientSide TestTwoBackends
			TestRights TestScrapeAccount TestMetricsAPIAccount TestCertificatesChangeUnderLoad TestCertManager TestPriorityClassLimited TestPriorityClassWithoutQuota
			TestPoliciesChangeWhatIsApplied TestPoliciesRefuseWhatIsApplied
			TestSteadyHourPersistsLeasesOnly TestAdoptionOfUnreachablePods TestAdoptionReverted
			TestAlerts TestScrapeExample TestWideQuestionsGiveTheSame TestConfinedQueriesReadOneNamespace TestEvaluate TestRejected TestSelectorKeys TestImportMarksInvalidRules
			TestHealthAndSeries TestResourceRules TestNativeHistograms TestPartialResponse
			TestKubeletReceivesTokenOfScrapeAccount TestOtherImplementation TestScrapeTokenForbidden
			TestThroughKubeAPIServer TestAuthenticationConfigMissing TestCertificateFilesBroken
			TestFrontProxyRotation TestRuntimeConfig TestAudit TestKubeAPIServerRestart
			TestFollowsItsBackend TestWithoutResourceMetrics TestRuleForms
			TestShutdownFailsNoRequest TestPersistsNothing TestServingMemory
			TestValues TestWatchThroughKubeAPIServer TestServingKilledUnderWatches TestKubeAPIServerRestartUnderWatches
			TestWatchFollowsItsBackend TestWatchFollowsItsFile TestShutdownMovesWatches`,
		Long: `
			TestOperations TestTwoOperators TestWatchFaults
			TestRulesOfOtherServers TestVictoriaMetrics TestThanos
			TestArgoCD TestCertManagerControllers`,
		Soak: `TestOperations`,
	},
}

// extraTests are end-to-end tests of the long tier of which each `make test` runs one. They need no further binaries,
// and take at most 150 s.
const extraTests = `
	TestVersionDroppedAndAdded TestOperatorKilled TestServingChildrenDeleted TestServingProcessKilled TestKubeAPIServerKilled
	TestOperatorNamespaceDeleted TestSelfSignedKubelet TestSignedKubeletIsNeverPinned
	TestPluginVerify`

// limits are the time limits of the parts of a run. Those of the tier test add up to less than the 85 minutes after
// which a build machine ends a run, so that a test that hangs is reported with its goroutines. A warm run takes 6, 4
// and 11 minutes for the last three; with two busy loops on two cores it took 19, 6 and 15. On a machine without a
// cache the unit part takes 25: it compiles everything, and all dependencies once more for the race detector.
var limits = map[Tier]map[string]time.Duration{
	Test: {"build": 14 * time.Minute, "unit": 35 * time.Minute, "integration": 10 * time.Minute, "e2e": 25 * time.Minute},
	Long: {"build": 80 * time.Minute, "integration": 20 * time.Minute, "e2e": 75 * time.Minute, "clusters": 70 * time.Minute, "bench": 10 * time.Minute, "release": 50 * time.Minute},
	Soak: {"build": 40 * time.Minute, "integration": 60 * time.Minute, "e2e": 120 * time.Minute},
}

// Limit returns the time limit of a part: build, unit, integration, e2e, clusters, bench or release.
func Limit(tier Tier, part string) (time.Duration, error) {
	limit, ok := limits[tier][part]
	if !ok {
		return 0, fmt.Errorf("no part %q in a tier %q", part, tier)
	}
	return limit, nil
}

// Parts of a run, in their order.
var Parts = []string{"build", "unit", "integration", "e2e", "clusters", "bench", "release"}

// Total returns the time limit of all parts together.
func Total(tier Tier) time.Duration {
	var total time.Duration
	for _, limit := range limits[tier] {
		total += limit
	}
	return total
}

// Tests returns the names of the tests of a suite in a tier.
func Tests(suite Suite, tier Tier) []string { return strings.Fields(table[suite][tier]) }

// ExtraTests returns the end-to-end tests of the long tier of which each `make test` runs one.
func ExtraTests() []string { return strings.Fields(extraTests) }

// ExtraTest returns the one that `make test` runs on a commit, whose hash chooses it.
func ExtraTest(commit string) string {
	tests, n := ExtraTests(), 0
	for _, digit := range commit {
		n = (16*n + int(digit)) % len(tests)
	}
	return tests[n]
}

// Skip returns a pattern for go test -skip that skips all tests of a suite but those of one tier and the extra ones. It
// is empty if nothing is skipped.
func Skip(suite Suite, tier Tier, extra ...string) (string, error) {
	if table[suite] == nil || !slices.Contains(All, tier) {
		return "", fmt.Errorf("no suite %q with a tier %q; suites are %s and %s, tiers %v", suite, tier, EndToEnd, Integration, All)
	}
	kept := append(Tests(suite, tier), extra...)
	var skipped []string
	for _, other := range All {
		for _, name := range Tests(suite, other) {
			if !slices.Contains(kept, name) && !slices.Contains(skipped, name) {
				skipped = append(skipped, name)
			}
		}
	}
	return Pattern(skipped), nil
}

// Pattern returns a pattern for -run and -skip that matches only these tests, or "" for none.
func Pattern(tests []string) string {
	if len(tests) == 0 {
		return ""
	}
	quoted := make([]string, 0, len(tests))
	for _, name := range tests {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}
