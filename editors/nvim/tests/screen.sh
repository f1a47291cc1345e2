#!/usr/bin/env bash
# What a person sees and types, in a terminal. SHOTS=DIR keeps pictures of the screens there.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PI_LS_ROOT=${PI_LS_ROOT:-$(cd "$here/../../.." && pwd)}
export PI_LS_PYTHON=${PI_LS_PYTHON:-$PI_LS_ROOT/.venv/bin/python}
export PI_LS_SERVER=${PI_LS_SERVER:-"[\"$PI_LS_PYTHON\", \"-m\", \"pi_ls\"]"}
export PYTHONPATH=$PI_LS_ROOT LC_ALL=C.UTF-8 COLORTERM=truecolor
nvim=${NVIM_BIN:-$(dirname "$PI_LS_PYTHON")/nvim}
[ -x "$nvim" ] || nvim=nvim
unset VIMRUNTIME NVIM TMUX

[ -z "${SHOTS:-}" ] || SHOTS=$(mkdir -p "$SHOTS" && cd "$SHOTS" && pwd)
scratch=$(mktemp -d)
socket=pi-screen-$$
t() { tmux -u -L "$socket" -f /dev/null "$@"; }
trap 't kill-server 2>/dev/null || true; rm -rf "$scratch"' EXIT
for kind in CONFIG DATA STATE CACHE; do
    export "XDG_${kind}_HOME=$scratch/${kind,,}"
done
export HOME=$scratch/home PI_LS_SCRATCH=$scratch PI_CODING_AGENT_DIR=$scratch/agent
mkdir -p "$HOME"
project=$("$nvim" --headless -u NONE -l "$here/demo_project.lua")

# see PATTERN: waits until a line of the screen matches
see() {
    for _ in $(seq 150); do
        t capture-pane -p >"$scratch/pane"
        if grep -Eq -- "$1" "$scratch/pane"; then
            echo "ok   screen: $1"
            return
        fi
        sleep 0.1
    done
    echo "FAIL screen: $1"
    cat "$scratch/pane"
    tail -20 "$scratch/state/nvim/lsp.log" 2>/dev/null || true
    exit 1
}
type_() { t send-keys "$@"; }
shot() {
    [ -n "${SHOTS:-}" ] || return 0
    t capture-pane -pe | "$PI_LS_PYTHON" "$here/picture.py" "$2" 110 >"$SHOTS/$1.svg"
}

cd "$project"
t new-session -d -x 110 -y 28 "exec $nvim -u $here/minimal_init.lua bucket.py"
t set-option -g default-terminal tmux-256color

see 'bucket.py +pi 74% \(auto\)'
shot statusline 'The meter in the statusline'

type_ ':PiLs transcript' Enter
see 'I decided against it'
type_ '?# You' Enter zt ':' Enter
see 'Could SQLite group by the hour'
shot transcript 'The conversation'
type_ q

type_ ':PiLs tree' Enter
see '◆ .*assistant +I decided against it'
see '\[ready to merge\] Implemented'
type_ '/├ user' Enter zz
see '├ user .*as yo'
type_ zc
see '├ user .* … [0-9]+ entries'
shot tree 'The tree of a session'

type_ 'g?'
see 'go here and summarize'
shot keys 'Keys of the tree'
type_ q q

type_ ':PiLs branch' Enter
see 'Type number and <Enter>|Branch'
shot branch 'Choosing another branch'
type_ 1 Enter
see 'what shall stay of it'
shot summary 'What shall stay of the branch that is left'
type_ 2 Enter
see 'with a summary of the branch left'
type_ Enter
see 'pi ~[0-9]+% \(auto\)'

type_ ':PiLs preview' Enter
see 'Entries summarized'
shot preview 'What a compaction would do'
type_ q
type_ ':PiLs compact' Enter
see 'compacted: [0-9,]+ → about [0-9,]+ tokens'
type_ Enter
see 'pi \? \(auto\)'

type_ ':PiLs transcript' Enter
see '<modified-files>'
type_ q

type_ ':lua require("pi_ls.events").handle(1, "approval_request", { approvalId = "1", toolName = "edit", summary = "Edit bucket.py", args = { path = "bucket.py", edits = { { oldText = "[0] * int((last - first) / HOUR)", newText = "[0] * round((last - first) / HOUR)" } } } })' Enter
see 'pi asks: Edit bucket.py'
see '^\+.*round'
shot approval 'The agent asks'
type_ 4 Enter
see 'bucket.py'
echo 'all screens seen'
