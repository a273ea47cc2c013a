# Sourced: prints steps with their elapsed time, and runs commands quietly,
# showing their output when they fail.

steps_started=$SECONDS

clock() { printf '%02d:%02d' $((SECONDS / 60)) $((SECONDS % 60)); }

# step TEXT COMMAND...: prints one line, with the duration when the command is done.
step() {
	local text=$1 began=$SECONDS log
	shift
	log=$(mktemp)
	if [ -t 1 ]; then
		printf '  [%s] %s …' "$(clock)" "$text"
	fi
	if "$@" >"$log" 2>&1 </dev/null; then
		[ -t 1 ] && printf '\r\033[K'
		printf '  [%s] %s  (%ds)\n' "$(clock)" "$text" $((SECONDS - began))
		rm -f "$log"
	else
		local code=$?
		[ -t 1 ] && printf '\n'
		printf '  [%s] FAILED: %s\n' "$(clock)" "$text" >&2
		sed 's/^/      /' "$log" >&2
		rm -f "$log"
		return "$code"
	fi
}

# title TEXT: prints a heading.
title() { printf '\n== %s\n' "$*"; }

# show COMMAND...: prints the command as a user would type it, and its output.
show() {
	printf '\n$ %s\n' "$*"
	"$@"
}

# until_true SECONDS COMMAND...: repeats the command until it succeeds.
until_true() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		if [ "$SECONDS" -ge "$deadline" ]; then
			echo "gave up after waiting; last command: $*" >&2
			return 1
		fi
		sleep 1
	done
}
