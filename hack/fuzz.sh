#!/usr/bin/env bash
# Fuzzes each fuzz target for FUZZTIME, one after the other.
set -euo pipefail
cd "$(dirname "$0")/.."
fuzztime=${FUZZTIME:-30s}
grep -rlE --include='*_test.go' '^func Fuzz' --exclude-dir=.git . | sort | while read -r file; do
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | awk '{print $2}' | while read -r target; do
		echo "== $target ($(dirname "$file"), $fuzztime)"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$fuzztime" "$(dirname "$file")" </dev/null
	done
done
