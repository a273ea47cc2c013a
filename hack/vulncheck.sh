#!/usr/bin/env bash
# Fails if a binary of ours calls a known vulnerability that hack/vulncheck/accepted does not name. The database is the
# newest version of the module golang.org/x/vulndb, which is indexed once for each version.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/toolchain.sh
export CGO_ENABLED=0

if ! module=$(go mod download -json golang.org/x/vulndb@latest); then
	echo "$module" >&2
	echo "the database of vulnerabilities cannot be had: it is the Go module golang.org/x/vulndb" >&2
	exit 1
fi
field() { sed -n "s/^\t\"$1\": \"\(.*\)\",\?$/\1/p" <<<"$module"; }
version=$(field Version)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/metrics-backend-operator
database=$cache/vulndb-$version
if [ ! -e "$database" ]; then
	# Complete or not at all, also if two run at once.
	mkdir -p "$cache"
	partial=$(mktemp -d "$cache/partial-XXXXXX")
	trap 'rm -rf "$partial"' EXIT
	go run "golang.org/x/vulndb/cmd/indexdb@$version" -vulns "$(field Dir)/data/osv" -out "$partial/vulndb"
	mv -T "$partial/vulndb" "$database" 2>/dev/null || test -e "$database"
	find "$cache" -maxdepth 1 -name 'vulndb-*' ! -path "$database" -exec rm -rf {} +
fi
echo "database: golang.org/x/vulndb@$version"
go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 -db "file://$database" -format json ./cmd/... | go run ./hack/vulncheck hack/vulncheck/accepted
