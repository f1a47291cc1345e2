#!/usr/bin/env bash
# The fragment in a real Helix with the real server, in a terminal (tmux).
# HELIX: the program (default: hx). PI_LS_PYTHON: a Python that has pi_ls and what its tests need.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
export PI_LS_PYTHON=${PI_LS_PYTHON:-$root/.venv/bin/python} PYTHONPATH=$root LC_ALL=C.UTF-8 COLORTERM=truecolor
scratch=$(mktemp -d)
socket=pi-helix-$$
t() { tmux -u -L "$socket" -f /dev/null "$@"; }
trap 't kill-server 2>/dev/null || true; rm -rf "$scratch"' EXIT
unset TMUX
export HOME=$scratch/home PI_CODING_AGENT_DIR=$scratch/agent
export XDG_CONFIG_HOME=$scratch/config XDG_CACHE_HOME=$scratch/cache PATH=$scratch/bin:$PATH
project=$scratch/app
mkdir -p "$HOME" "$project/.git" "$XDG_CONFIG_HOME/helix" "$XDG_CACHE_HOME/helix" "$scratch/bin"
printf '#!/bin/sh\nexec "%s" -m pi_ls "$@"\n' "$PI_LS_PYTHON" >"$scratch/bin/pi-ls"
chmod +x "$scratch/bin/pi-ls"
cp "$here/../languages.toml" "$XDG_CONFIG_HOME/helix/"
printf '# Notes\n' >"$project/notes.md"
"$PI_LS_PYTHON" "$root/tests/editors/scratch.py" "$project"
session=$(echo "$PI_CODING_AGENT_DIR"/sessions/*/*.jsonl)

# until WHAT COMMAND…: waits until the command succeeds
until_() {
    local what=$1
    shift
    for _ in $(seq 150); do
        if "$@" >/dev/null 2>&1; then
            echo "ok   helix: $what"
            return
        fi
        sleep 0.1
    done
    echo "FAIL helix: $what"
    t capture-pane -p
    tail -5 "$XDG_CACHE_HOME/helix/helix.log" 2>/dev/null || true
    exit 1
}
seen() { t capture-pane -p | grep -Eq -- "$1"; }
connected() { pgrep -P "$(t display-message -p '#{pane_pid}')" -f pi_ls; }

cd "$project"
t new-session -d -x 110 -y 28 "exec ${HELIX:-hx} -v notes.md"
until_ 'the file is shown' seen 'Notes'
until_ 'the server runs' connected
until_ 'the server is ready' grep -q 'initialized' "$XDG_CACHE_HOME/helix/helix.log"
t send-keys ':lsp-workspace-command' Space
until_ 'its commands are completed' seen 'pi\.compact'
t send-keys 'pi.compact' Enter
until_ 'the compaction is in the session' grep -q '"type":"compaction"' "$session"
t send-keys ':lsp-workspace-command pi.undoCompaction' Enter
until_ 'and taken back' grep -q 'pi_ls.leaf' "$session"
t send-keys ':lsp-workspace-command pi.forkSession' Enter
until_ 'an error stands in the log' grep -q 'entryId' "$XDG_CACHE_HOME/helix/helix.log"
version=$("${HELIX:-hx}" --version | grep -Eo '[0-9]+\.[0-9]+' | head -1)
if [ "$(printf '%s\n' 25.07 "$version" | sort -V | head -1)" = 25.07 ]; then
    t send-keys ':lsp-workspace-command pi.setSessionName {"name": "from Helix"}' Enter
    until_ 'arguments arrive' grep -q '"name":"from Helix"' "$session"
fi
t send-keys ':q!' Enter
echo 'all seen in Helix'
