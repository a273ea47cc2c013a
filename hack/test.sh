#!/usr/bin/env bash
# test.sh PART...: runs the parts unit, integration and e2e, in this order of
# cost, and says how long each took. coverage is the last piece of unit.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/steps.sh

# Nothing here needs cgo but the race detector. Without it tests, images and the cluster's
# components share what they are built from, which is half of a first run's compiling.
export CGO_ENABLED=0

cluster() { go -C test/cluster run . "$@"; }

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
	step "go vet" go vet -tags integration,e2e ./...
	step "generated files are current" drift
	step "gofmt" formatted
	# The race detector needs a C compiler.
	if ! command -v gcc >/dev/null && [ "$(id -u)" -eq 0 ]; then
		step "install gcc for the race detector" sh -c 'apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev'
	fi
	# The great tables of failures run one goroutine: whole without the race detector,
	# sampled with it, which makes them ten times as slow.
	go test -timeout 15m ./controllers/metricsbackend
	# The conformance suite checks times: without the race detector, and beside nothing.
	local packages
	packages=$(go list ./... | grep -v '/test/watchconformance$')
	# shellcheck disable=SC2086 # One word a package.
	CGO_ENABLED=1 go test -race -short -timeout 25m $packages
	go test -timeout 10m ./test/watchconformance
	(cd test/cluster && go vet ./... && go test ./...)
	(cd test/chart && go vet ./... && go test ./...)
	(cd bench && go vet ./... && go test ./...)
	(cd test/autoscaler && go vet -tags e2e ./... && go test ./...)
	coverage
}

# How much of the watch the unit tests run, and no less than KEP-1013 asks for. The
# instrumented packages take seconds; all of them would be built anew for -coverpkg.
coverage() (
	packages=(./serving/point ./serving/resourcemetrics ./serving/stream)
	folder=$(mktemp -d)
	trap 'rm -r "$folder"' EXIT
	step "coverage of the watch" go test -short -coverprofile="$folder/profile" \
		-coverpkg="$(IFS=,; echo "${packages[*]}")" "${packages[@]}"
	go run ./hack/coverage "$folder/profile"
)

integration() {
	title "Integration tests: a real kube-apiserver and etcd"
	KUBEBUILDER_ASSETS=$(cluster binaries kube-apiserver etcd kubectl)
	export KUBEBUILDER_ASSETS
	# Tests in parallel wait for clients that do not read, and hardly compute.
	go test -count=1 -tags integration -timeout 30m -parallel 16 ./test/integration/... ./test/fleet/... ./test/prometheus/...
}

e2e() {
	title "End to end: a real cluster"
	if [ "$(id -u)" -ne 0 ]; then
		echo "the end-to-end tests start a kubelet and containers, which needs root: run make test-unit test-integration without" >&2
		return 1
	fi
	# What an earlier run left, ended or killed, is no part of this one.
	if [ "${CI:-}" = true ]; then
		cluster down
	fi
	cluster up
	PATH=$(cluster binaries kubectl):$PATH
	KUBECONFIG=$(cluster kubeconfig)
	export PATH KUBECONFIG
	# The autoscaler's own figures, which the canary reads, are on loopback.
	export CONTROLLER_MANAGER=https://127.0.0.1:10257
	step "build and load the images" make load
	step "build helm" go -C test/chart tool helm version
	step "build the autoscaler by watch" go -C test/autoscaler test -tags e2e -run '^$' .
	hack/peers.sh
	step "bring a Prometheus" hack/prometheus.sh
	local log code=0
	log=$(mktemp)
	go test -count=1 -tags e2e -timeout 110m -v ./test/e2e/... 2>&1 | tee "$log" || code=$?
	printf '\n  What took longest:\n'
	sed -nE 's/^--- (PASS|FAIL): (\S+) \((.*)s\)/\3 \1 \2/p' "$log" | sort -rn | head -12 | sed 's/^/    /'
	if [ "$code" -ne 0 ]; then
		failures "$log"
		rm -f "$log"
		return "$code"
	fi
	rm -f "$log"
	# On a build machine nothing may stay behind; a developer keeps the cluster.
	if [ "${CI:-}" = true ]; then
		cluster down
	fi
}

# What tests that failed said, once more and last: it may be tens of thousands of lines above.
failures() {
	printf '\n  What failed:\n'
	awk '
		NR == FNR { if ($1 == "---" && $2 == "FAIL:") failed[$3] = 1; next }
		/^===/ { said = $2 != "PAUSE" && $3 in failed ? $3 : ""; next }
		/^ *---/ { said = "" }
		said != "" && /^ +[a-z0-9_]+\.go:[0-9]+: / { if (said != last) print "    " (last = said); lines = 0 }
		said != "" && lines++ < 20 { print "    " substr($0, 1, 500) }
	' "$1" "$1"
}

for part in "$@"; do
	began=$SECONDS
	"$part"
	printf '  [%s] %s: all passed (%ds)\n' "$(clock)" "$part" $((SECONDS - began))
done
