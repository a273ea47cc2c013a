# Sourced: records in bin/tested on which trees the long and the soak tests have passed. A release needs both.

# clean_tree: the hash of the checked-out tree, or an error where files differ from it.
clean_tree() {
	[ -z "$(git status --porcelain)" ] || return 1
	git rev-parse 'HEAD^{tree}'
}

# mark_tested TIER TREE: records that the tests of the tier have passed on the tree.
mark_tested() {
	mkdir -p bin/tested
	echo "$2" >"bin/tested/$1"
}

# require_tested VERSION: fails unless both tiers have passed on the checked-out tree, which a candidate (-rc) need not have.
require_tested() {
	local tree tier
	if ! tree=$(clean_tree); then
		echo "$1 is a release, and there are changes that are not committed: commit them, or give another VERSION" >&2
		return 1
	fi
	[[ $1 != *-rc* ]] || return 0
	for tier in long soak; do
		if [ "$(cat "bin/tested/$tier" 2>/dev/null)" != "$tree" ]; then
			echo "$1 is a release, and \`make test-$tier\` has not passed on this tree ($tree): run it first, or give another VERSION" >&2
			return 1
		fi
	done
}
