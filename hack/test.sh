#!/usr/bin/env bash
# test.sh PART...: runs the parts unit, integration, e2e, clusters, bench and release, each to its end, and then
# reports failures and durations.
# test/tiers has the tests of the tier TEST_TIER (test, long or soak) and the time limit of each part. RUN, a pattern
# for go test -run, selects tests of integration and e2e in any tier.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh
. hack/tested.sh
. hack/toolchain.sh

export TEST_TIER=${TEST_TIER:-test} RUN=${RUN:-}
# Only the race detector needs cgo. Without cgo, tests, images and the cluster's components
# share compiled packages, which halves the compile time of a first run.
export CGO_ENABLED=0

# Besides the version of test/cluster, the part clusters tests the oldest that is supported, and one between them.
oldest=v1.31.4 between=v1.34.4

cluster() { go -C test/cluster run . "$@"; }

# quiet_step PART TEXT COMMAND...: runs a step and records it for the part. Its output is shown only if it fails.
quiet_step() { verbose_step "$1" "$2" step "$2" "${@:3}"; }

# verbose_step PART TEXT COMMAND...: the same, with the command's output.
verbose_step() {
	local began=$SECONDS failed=
	"${@:3}" || failed=--failed
	bin/testrun step --part "$1" --name "$2" --seconds $((SECONDS - began)) $failed || broken=1
	[ -z "$failed" ]
}

# tests PART [FLAG...] -- ARGUMENT...: runs go test and records failures; the part continues.
tests() {
	local code=0
	bin/testrun run --part "$1" "${@:2}" || code=$?
	# 1: tests failed, and are in the results. Other errors may not be.
	[ "$code" -le 1 ] || broken=1
}

# of_tier SUITE: prints the arguments that select the tests of RUN if it is set, else those of the tier.
of_tier() {
	if [ -n "$RUN" ]; then
		printf '%s\n' -run "$RUN"
	else
		printf '%s\n' -skip "$(bin/testrun skip --suite "$1" --tier "$TEST_TIER")"
	fi
}

# Generated files must match a fresh run. (A function under step runs without errexit, so
# each command has `|| return`.)
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
	files=$(find api config/crd config/monitoring serving charts docs/reference/api.md -type f \( -name 'zz_generated*' -o -path 'config/crd/bases/*' -o -path 'config/monitoring/*' -o -path 'charts/*/templates/*' -o -path 'charts/*/files/*' -o -path docs/reference/api.md \)) || return
	test -n "$files" || return
	sort <<<"$files" | xargs sha256sum
}

formatted() {
	local unformatted
	unformatted=$(gofmt -l api bench client cmd config controllers hack internal plugin serving test) || return
	test -z "$unformatted" || { echo "run gofmt -w on: $unformatted" >&2; return 1; }
}

unit() {
	title "Unit tests"
	quiet_step unit "go vet" go vet -tags integration,e2e ./... || true
	quiet_step unit "generated files are current" drift || true
	quiet_step unit "gofmt" formatted || true
	quiet_step unit "no known vulnerability is called" hack/vulncheck.sh || true
	# The race detector needs a C compiler.
	if ! command -v gcc >/dev/null && [ "$(id -u)" -eq 0 ]; then
		quiet_step unit "install gcc for the race detector" sh -c 'apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev' || true
	fi
	# The large tables of failures use one goroutine: they run completely without the race
	# detector, and sampled with it, which makes them ten times slower.
	tests unit -- ./controllers/metricsbackend
	# The conformance suite checks times: it runs alone, without the race detector.
	local packages
	packages=$(go list ./... | grep -v '/test/watchconformance$')
	# shellcheck disable=SC2086 # One word a package.
	CGO_ENABLED=1 tests unit -- -race -short $packages
	tests unit -- ./test/watchconformance
	local module
	for module in test/cluster test/chart test/autoscaler hack/dashboard bench; do
		quiet_step unit "go vet in $module" go -C "$module" vet -tags e2e ./... || true
		tests unit --dir "$module" -- ./...
	done
	tests unit --dir hack/tools -- ./coverage
	coverage
}

# Coverage of the watch by unit tests, at least what KEP-1013 requires. Only these packages
# are instrumented: -coverpkg=./... would rebuild everything.
coverage() {
	local packages=(./serving/samplestore ./serving/resourcemetrics ./serving/stream)
	quiet_step unit "coverage of the watch" go test -vet=off -short -coverprofile=bin/test/coverage \
		-coverpkg="$(IFS=,; echo "${packages[*]}")" "${packages[@]}" || return 0
	verbose_step unit "least coverage" go -C hack/tools run ./coverage "$PWD/bin/test/coverage" || true
}

# tagged FOLDER...: prints a pattern of the tests in folders that need a real kube-apiserver.
tagged() {
	grep -rl --include='*_test.go' '^//go:build integration' "$@" | xargs sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' | paste -sd '|'
}

# binaries NAME...: builds missing components of Kubernetes, and prints their folder.
binaries() { cluster binaries --timeout "$(bin/testrun limit --part build --tier "$TEST_TIER")" "$@"; }

# control_plane builds what integration tests start.
control_plane() {
	verbose_step build "kube-apiserver, etcd and kubectl" binaries kube-apiserver etcd kubectl >/dev/null || return
	KUBEBUILDER_ASSETS=$(cluster binaries kube-apiserver etcd kubectl)
	export KUBEBUILDER_ASSETS
}

integration() {
	title "Integration tests: a real kube-apiserver and etcd"
	control_plane || return
	local chosen
	mapfile -t chosen < <(of_tier integration)
	# Only the long tier needs these; a test of RUN builds what it needs itself.
	if [ "$TEST_TIER" = long ] && [ -z "$RUN" ]; then
		local program
		for program in victoria-metrics thanos argocd-controller cert-manager; do
			quiet_step build "$program" hack/build-program.sh "$program" || return
		done
	fi
	if [ "$TEST_TIER" = soak ] && [ -z "$RUN" ]; then
		tests integration --verbose -- -timeout 40m -run '^TestExplore$' ./controllers/metricsbackend -pairs 20s || true
	fi
	if [ "$TEST_TIER" = test ] && [ -z "$RUN" ]; then
		# Shared test packages have integration tests of their own.
		local shared
		shared=$(tagged test/fleet test/prometheus)
		quiet_step integration "tests of test/fleet and test/prometheus are found" test -n "$shared" || return
		tests integration -- -count=1 -tags integration -run "^($shared)\$" ./test/fleet ./test/prometheus/...
	fi
	# Parallel tests wait for clients that do not read, and need little CPU.
	tests integration $AGAIN -- -count=1 -tags integration -parallel 16 "${chosen[@]}" ./test/integration/...
}

e2e() {
	title "End to end: a real cluster"
	if [ "$(id -u)" -ne 0 ]; then
		echo "the end-to-end tests start a kubelet and containers, which needs root: run make test-unit test-integration without" >&2
		bin/testrun step --part e2e --name "root is needed" --failed
		return 1
	fi
	# An earlier run that did not finish may have left a cluster. A developer's own cluster may stay.
	if [ "${CI:-}" = true ] || [ -n "$AGAIN" ] || [ -e bin/e2e-unfinished ]; then
		verbose_step e2e "cluster down" cluster down || return
	fi
	touch bin/e2e-unfinished
	if e2e_tests; then
		rm bin/e2e-unfinished
	fi
	# A build machine must be left clean; a developer keeps the cluster.
	if [ "${CI:-}" = true ]; then
		verbose_step e2e "cluster down" cluster down || return
	fi
}

# start_cluster PART [FLAG...]: brings the cluster up, with the images and a Prometheus.
start_cluster() {
	verbose_step build "Kubernetes" binaries >/dev/null || return
	verbose_step "$1" "cluster up" cluster up "${@:2}" || return
	PATH=$(cluster binaries kubectl):$PATH
	KUBECONFIG=$(cluster kubeconfig)
	export PATH KUBECONFIG
	# The autoscaler serves its own metrics, which test/clients reads, on loopback.
	export CONTROLLER_MANAGER=https://127.0.0.1:10257
	quiet_step "$1" "build and load the images" make load || return
	quiet_step "$1" "bring a Prometheus" hack/prometheus.sh || return
}

# e2e_tests fails if it does not reach the tests.
e2e_tests() {
	start_cluster e2e || return
	local chosen
	if [ "$TEST_TIER" = test ] && [ -z "$RUN" ]; then
		local extra
		extra=$(bin/testrun extra --commit "$(git rev-parse HEAD)")
		echo "  This run includes $extra of the long tier; to repeat it: make test-e2e RUN='^$extra\$'"
		chosen=(-skip "$(bin/testrun skip --suite e2e --tier test --extra "$extra")")
	else
		mapfile -t chosen < <(of_tier e2e)
	fi
	# Only the other tiers need these.
	if [ "$TEST_TIER" != test ]; then
		quiet_step build "build the autoscaler by watch" go -C test/autoscaler test -c -tags e2e -o "$PWD/bin/autoscaler.test" . || return
	fi
	if [ "$TEST_TIER" = long ]; then
		quiet_step build "build Helm 3" go -C test/chart tool helm.sh/helm/v3/cmd/helm version || return
		quiet_step build "build Helm 4" go -C test/chart tool helm.sh/helm/v4/cmd/helm version || return
		verbose_step build "metrics-server" hack/metrics-server.sh || return
		verbose_step build "Flux' controllers" hack/flux.sh || return
		verbose_step build "KEDA" hack/keda.sh || return
		verbose_step build "prometheus-adapter" hack/prometheus-adapter.sh || return
	fi
	tests e2e --verbose $AGAIN -- -count=1 -tags e2e "${chosen[@]}" ./test/e2e/...
}

# clusters runs tests of the tier test against other versions of Kubernetes, and on a cluster without IPv4.
clusters() {
	title "Other clusters: Kubernetes $between and $oldest, and IPv6"
	local version chosen
	mapfile -t chosen < <(TEST_TIER=test of_tier integration)
	# MutatingAdmissionPolicy is v1 since 1.36, and kubectl top uses v1 since 1.37.
	[ -n "$RUN" ] || chosen[1]+='|^TestPoliciesChangeWhatIsApplied$|^TestThroughKubeAPIServer$/^kubectl_top$/^v1_comes_before_beta$'
	for version in "$between" "$oldest"; do
		# The oldest kubectl top has no --show-swap.
		[ -n "$RUN" ] || [ "$version" != "$oldest" ] || chosen[1]+='|^TestThroughKubeAPIServer$/^kubectl_top$/_with_swap$'
		export KUBERNETES_VERSION=$version
		control_plane || continue
		tests clusters $AGAIN -- -count=1 -tags integration -parallel 16 "${chosen[@]}" ./test/integration/operator ./test/integration/serving
	done
	# The last of them, which is the oldest.
	other_cluster || true
	unset KUBERNETES_VERSION
	other_cluster --ip-family=IPv6 || true
}

# other_cluster FLAG...: runs end-to-end tests on a new cluster.
other_cluster() {
	verbose_step clusters "cluster down" cluster down || return
	start_cluster clusters "$@" || return
	local chosen
	mapfile -t chosen < <(TEST_TIER=test of_tier e2e)
	# HPAScaleToZero is on by default since 1.37.
	[ -n "$RUN" ] || [ -z "${KUBERNETES_VERSION:-}" ] || chosen[1]+='|^TestWatch$/^side_by_side$/^custom_metrics$/^scale_to_zero$'
	tests clusters --verbose $AGAIN -- -count=1 -tags e2e "${chosen[@]}" ./test/e2e
	verbose_step clusters "cluster down" cluster down
}

# bench runs the load test of metrics.k8s.io at its small scale. Its figures are recorded in the output, not judged.
bench() {
	title "Load test beside metrics-server"
	control_plane || return
	quiet_step build "metrics-server" hack/build-program.sh metrics-server || return
	verbose_step bench "make bench SCALE=small" make bench SCALE=small
}

# release makes a release's files in two clones of the commit, and compares their checksums. After a failure the clones
# stay, to compare the files.
release() {
	title "Release: the same files twice"
	local clones=bin/release-clones clone
	rm -rf "$clones"
	# Both now: a commit that follows would be another release.
	for clone in first second; do
		quiet_step release "$clone clone" git clone --quiet "$PWD" "$clones/$clone" || return
	done
	for clone in first second; do
		quiet_step release "make release in the $clone clone" \
			make -C "$clones/$clone" release VERSION=v0.0.0-rc.0 PUSH= PREFIX= PLATFORMS= || return
	done
	quiet_step release "start on arm64" start_arm64 "$clones/first/bin/release/arm64/operator" "$clones/first/bin/release/arm64/serving" || return
	quiet_step release "same checksums" diff "$clones/first/dist/checksums.txt" "$clones/second/dist/checksums.txt" || return
	rm -rf "$clones"
}

# start_arm64 FILE...: starts programs for arm64 under qemu.
start_arm64() {
	command -v qemu-aarch64-static >/dev/null ||
		sh -c 'apt-get update && apt-get install -y --no-install-recommends qemu-user-static' || return
	local file
	for file in "$@"; do
		qemu-aarch64-static "$file" --version || return
	done
}

main() {
	# testrun forwards an interrupt and exits; no other part starts.
	trap 'exit 130' INT TERM HUP
	rm -rf bin/test bin/autoscaler.test
	go build -o bin/testrun ./hack/testrun
	# A complete run that passes is recorded for a release.
	local part pattern whole=
	case "$TEST_TIER $*${RUN:+ $RUN}$(env | grep -E '^(E2E_|OPERATIONS=|SEED=)' || true)" in
	"long integration e2e clusters bench release" | "soak integration e2e") whole=$(clean_tree || true) ;;
	esac
	if [ "$TEST_TIER" = soak ]; then
		export E2E_SPEC_CYCLES=${E2E_SPEC_CYCLES:-10} E2E_IMAGE_CYCLES=${E2E_IMAGE_CYCLES:-4}
		export OPERATIONS=${OPERATIONS:-400} E2E_ROTATIONS=${E2E_ROTATIONS:-10} E2E_WATCH_WINDOW=${E2E_WATCH_WINDOW:-5m}
	fi
	AGAIN=
	# Set if something failed that is not in the results.
	broken=
	for part in "$@"; do
		"$part" || true
	done
	# If only deadlines were missed, those tests run once more, from a clean state.
	while IFS=$'\t' read -r part pattern; do
		AGAIN=--again RUN=$pattern
		title "Again, after a missed deadline: $pattern"
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
	unit | integration | e2e | clusters | bench | release) ;;
	*) echo "unknown part $part: use unit, integration, e2e, clusters, bench or release" >&2 && exit 2 ;;
	esac
done
# Concurrent runs would share the results and the cluster. Bash has read all of this file by now: an edit during a run
# only affects the next one.
if [ "${TEST_LOCKED:-}" != "$PWD" ]; then
	mkdir -p bin
	code=0
	TEST_LOCKED=$PWD flock --nonblock --close --conflict-exit-code 75 bin/test.lock hack/test.sh "$@" || code=$?
	[ "$code" -ne 75 ] || echo "another run of hack/test.sh is active here: wait until it ends" >&2
	exit "$code"
fi
main "$@"
exit
