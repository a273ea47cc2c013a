# Sourced in the repository's root: the Go toolchain of go.mod, for its modules and the programs they build. Some
# distributions and images of Go set GOTOOLCHAIN=local, which ignores the line in go.mod.
if [ "${GOTOOLCHAIN:-local}" = local ]; then
	GOTOOLCHAIN=$(sed -n 's/^toolchain //p' go.mod)
fi
export GOTOOLCHAIN
