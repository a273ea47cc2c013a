#!/usr/bin/env bash
# test.sh PART...: runs the parts unit, integration and e2e, each to its end, and then says what failed and how long
# everything took. test/tiers says which tests are in the tier TEST_TIER (test, long or soak) and what each part may take.
# RUN, a pattern as for go test -run, chooses tests of integration and e2e whatever their tier.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh
. hack/tested.sh

export TEST_TIER=${TEST_TIER:-test} RUN=${RUN:-}
# Nothing here needs cgo but the race detector. Without it tests, images and the cluster's
# components share what they are built from, which is half of a first run's compiling.
export CGO_ENABLED=0

cluster() { go -C test/cluster run . "$@"; }

# check PART TEXT COMMAND...: a step that counts for the part, quiet unless it fails.
check() { shown "$1" "$2" step "$2" "${@:3}"; }

# shown PART TEXT COMMAND...: the same for a command that tells itself what it does.
shown() {
	local began=$SECONDS failed=
	"${@:3}" || failed=--failed
	bin/testrun step --part "$1" --name "$2" --seconds $((SECONDS - began)) $failed || broken=1
	[ -z "$failed" ]
}

# tests PART [FLAG...] -- ARGUMENT...: go test. What fails is kept, and the part goes on.
tests() {
	local code=0
	bin/testrun run --part "$1" "${@:2}" || code=$?
	# 1: tests failed, of which the results tell. Anything else they may not tell of.
	[ "$code" -le 1 ] || broken=1
}

# of_tier SUITE: the arguments that choose the tests of the tier, and those of RUN where it is set.
of_tier() {
	if [ -n "$RUN" ]; then
		printf '%s\n' -run "$RUN"
	else
		printf '%s\n' -skip "$(bin/testrun skip --suite "$1" --tier "$TEST_TIER")"
	fi
}

# Generated files must be what the types generate: compare with a fresh run.
# (A function under step runs without errexit, so each command says `|| return`.)
drift() {
	local before after
	before=$(generated_sums) || return
	hack/generate.sh || return
	after=$(generated_sums) || return
	if [ "$before" != "$after" ]; then
		echo "generated files were out of date: run make generate and commit the result" >&2
		diff <(echo "$before") <(echo "$after") >&2 || true
		return 1
	fi
}

generated_sums() {
	local files
	files=$(find api config/crd serving charts -name 'zz_generated*' -o -path 'config/crd/bases/*' -o -path 'charts/*/templates/*') || return
	test -n "$files" || return
	sort <<<"$files" | xargs sha256sum
}

formatted() {
	local unformatted
	unformatted=$(gofmt -l api bench client cmd controllers hack plugin serving test) || return
	test -z "$unformatted" || { echo "run gofmt -w on: $unformatted" >&2; return 1; }
}

unit() {
	title "Unit tests"
	check unit "go vet" go vet -tags integration,e2e ./... || true
	check unit "generated files are current" drift || true
	check unit "gofmt" formatted || true
	# The race detector needs a C compiler.
	if ! command -v gcc >/dev/null && [ "$(id -u)" -eq 0 ]; then
		check unit "install gcc for the race detector" sh -c 'apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev' || true
	fi
	# The great tables of failures run one goroutine: whole without the race detector,
	# sampled with it, which makes them ten times as slow.
	tests unit -- ./controllers/metricsbackend
	# The conformance suite checks times: without the race detector, and beside nothing.
	local packages
	packages=$(go list ./... | grep -v '/test/watchconformance$')
	# shellcheck disable=SC2086 # One word a package.
	CGO_ENABLED=1 tests unit -- -race -short $packages
	tests unit -- ./test/watchconformance
	local module
	for module in test/cluster test/chart test/autoscaler bench; do
		check unit "go vet in $module" go -C "$module" vet -tags e2e ./... || true
		tests unit --dir "$module" -- ./...
	done
	coverage
}

# How much of the watch the unit tests run, and no less than KEP-1013 asks for. The
# instrumented packages take seconds; all of them would be built anew for -coverpkg.
coverage() {
	local packages=(./serving/samplestore ./serving/resourcemetrics ./serving/stream)
	check unit "coverage of the watch" go test -short -coverprofile=bin/test/coverage \
		-coverpkg="$(IFS=,; echo "${packages[*]}")" "${packages[@]}" || return 0
	shown unit "least coverage" go run ./hack/coverage bin/test/coverage || true
}

# tagged FOLDER...: the tests in folders that want a real kube-apiserver, as a pattern.
tagged() {
	grep -rl --include='*_test.go' '^//go:build integration' "$@" | xargs sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' | paste -sd '|'
}

# binaries NAME...: builds components of Kubernetes, unless they are there, and prints their folder.
binaries() { cluster binaries --timeout "$(bin/testrun limit --part build --tier "$TEST_TIER")" "$@"; }

integration() {
	title "Integration tests: a real kube-apiserver and etcd"
	shown build "kube-apiserver, etcd and kubectl" binaries kube-apiserver etcd kubectl >/dev/null || return
	KUBEBUILDER_ASSETS=$(cluster binaries kube-apiserver etcd kubectl)
	export KUBEBUILDER_ASSETS
	local chosen
	mapfile -t chosen < <(of_tier integration)
	if [ "$TEST_TIER" = test ] && [ -z "$RUN" ]; then
		# What tests of several levels share has unit tests, and these.
		local shared
		shared=$(tagged test/fleet test/prometheus)
		check integration "tests of test/fleet and test/prometheus are found" test -n "$shared" || return
		tests integration -- -count=1 -tags integration -run "^($shared)\$" ./test/fleet ./test/prometheus/...
	fi
	# Tests in parallel wait for clients that do not read, and hardly compute.
	tests integration $AGAIN -- -count=1 -tags integration -parallel 16 "${chosen[@]}" ./test/integration/...
}

e2e() {
	title "End to end: a real cluster"
	if [ "$(id -u)" -ne 0 ]; then
		echo "the end-to-end tests start a kubelet and containers, which needs root: run make test-unit test-integration without" >&2
		bin/testrun step --part e2e --name "root is needed" --failed
		return 1
	fi
	# What an earlier run left, ended or killed, is no part of this one; a developer's cluster may stay.
	if [ "${CI:-}" = true ] || [ -n "$AGAIN" ] || [ -e bin/e2e-unfinished ]; then
		shown e2e "cluster down" cluster down || return
	fi
	touch bin/e2e-unfinished
	if e2e_tests; then
		rm bin/e2e-unfinished
	fi
	# On a build machine nothing may stay behind; a developer keeps the cluster.
	if [ "${CI:-}" = true ]; then
		shown e2e "cluster down" cluster down || return
	fi
}

# e2e_tests fails where it does not come to the tests.
e2e_tests() {
	shown build "Kubernetes" binaries >/dev/null || return
	shown e2e "cluster up" cluster up || return
	PATH=$(cluster binaries kubectl):$PATH
	KUBECONFIG=$(cluster kubeconfig)
	export PATH KUBECONFIG
	# The autoscaler's own figures, which the canary reads, are on loopback.
	export CONTROLLER_MANAGER=https://127.0.0.1:10257
	check e2e "build and load the images" make load || return
	check e2e "bring a Prometheus" hack/prometheus.sh || return
	local chosen
	if [ "$TEST_TIER" = test ] && [ -z "$RUN" ]; then
		local rotated
		rotated=$(bin/testrun rotated --commit "$(git rev-parse HEAD)")
		echo "  Of the long tier, this run takes $rotated; to repeat it: make test-e2e RUN='^$rotated\$'"
		chosen=(-skip "$(bin/testrun skip --suite e2e --tier test --extra "$rotated")")
	else
		mapfile -t chosen < <(of_tier e2e)
	fi
	# What the other tiers alone need.
	if [ "$TEST_TIER" != test ]; then
		check build "build the autoscaler by watch" go -C test/autoscaler test -c -tags e2e -o "$PWD/bin/autoscaler.test" . || return
	fi
	if [ "$TEST_TIER" = long ]; then
		check build "build helm" go -C test/chart tool helm version || return
		shown build "metrics-server" hack/peers.sh || return
	fi
	tests e2e --verbose $AGAIN -- -count=1 -tags e2e "${chosen[@]}" ./test/e2e/...
}

main() {
	# testrun passes an interrupt on and ends; no other part begins.
	trap 'exit 130' INT TERM HUP
	rm -rf bin/test bin/autoscaler.test
	go build -o bin/testrun ./hack/testrun
	# What has passed as a whole is kept for a release, unless somebody chose less.
	local part pattern whole=
	case "$TEST_TIER $*${RUN:+ $RUN}$(env | grep ^E2E_ || true)" in
	"long integration e2e" | "soak e2e") whole=$(clean_tree || true) ;;
	esac
	if [ "$TEST_TIER" = soak ]; then
		export E2E_SPEC_CYCLES=${E2E_SPEC_CYCLES:-10} E2E_IMAGE_CYCLES=${E2E_IMAGE_CYCLES:-4}
		export E2E_ROTATIONS=${E2E_ROTATIONS:-10} E2E_WATCH_WINDOW=${E2E_WATCH_WINDOW:-5m}
	fi
	AGAIN=
	# Set where something failed that the results do not have.
	broken=
	for part in "$@"; do
		"$part" || true
	done
	# Tests that waited in vain, if nothing else failed, have a second try, from a clean state.
	while IFS=$'\t' read -r part pattern; do
		AGAIN=--again RUN=$pattern
		title "Again, after it waited in vain: $pattern"
		"$part" </dev/null || true
	done < <(bin/testrun again)
	title "Summary, after $(clock)${RUN:+, of $RUN}"
	bin/testrun summary "$@"
	if [ -n "$broken" ]; then
		echo "hack/testrun itself failed: see above" >&2
		exit 1
	fi
	if [ -n "$whole" ] && [ "$(clean_tree || true)" = "$whole" ]; then
		mark_tested "$TEST_TIER" "$whole"
	fi
}

for part in "$@"; do
	case "$part" in
	unit | integration | e2e) ;;
	*) echo "there is no part $part: there are unit, integration and e2e" >&2 && exit 2 ;;
	esac
done
# Two runs would write to one folder, and share the cluster. All of this file has been read by now: an edit while it
# runs changes the next run only.
if [ "${TEST_LOCKED:-}" != "$PWD" ]; then
	mkdir -p bin
	code=0
	TEST_LOCKED=$PWD flock --nonblock --close --conflict-exit-code 75 bin/test.lock hack/test.sh "$@" || code=$?
	[ "$code" -ne 75 ] || echo "another run of hack/test.sh works here: wait for its end" >&2
	exit "$code"
fi
main "$@"
exit
