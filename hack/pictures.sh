#!/usr/bin/env bash
# Draws docs/reference/images/status.png and top.png: what the kubectl plugin shows in a terminal, on the current kubeconfig's
# cluster, such as that of make demo. It takes about three minutes, in which the values of top become trends.
set -euo pipefail
cd "$(dirname "$0")/.."
. hack/toolchain.sh
export LC_ALL=C.UTF-8
command -v tmux >/dev/null || { apt-get update -qq && apt-get install -qq -y tmux; } >/dev/null
make build >/dev/null
PATH=$PWD/bin:$PATH
freeze=$PWD/bin/freeze
go -C hack/tools build -o "$freeze" github.com/charmbracelet/freeze
folder=$(mktemp -d)
terminal() { tmux -u -f /dev/null -S "$folder/socket" "$@"; }
trap 'terminal kill-server 2>/dev/null || true; rm -rf "$folder"' EXIT

# picture NAME SECONDS COLUMNS LINES COMMAND...: the screen of a terminal of that size, that long after the command.
picture() {
	terminal new-session -d -s "$1" -x "$3" -y "$4" "printf '$ %s\n' '${*:5}'; ${*:5}; sleep 1000"
	sleep "$2"
	terminal capture-pane -e -p -t "$1" | sed -e :a -e '/^[[:space:]]*$/{$d;N;ba' -e '}' >"$folder/screen"
	terminal kill-session -t "$1"
	"$freeze" --language ansi --padding 20 --font.size 13 \
		--output "docs/reference/images/$1.png" <"$folder/screen" >/dev/null
	chmod 644 "docs/reference/images/$1.png"
	echo "docs/reference/images/$1.png"
}
picture status 10 150 50 kubectl metrics-backend status
picture top 150 125 18 kubectl metrics-backend top pods -A --watch --sort-by=cpu
