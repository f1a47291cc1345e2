#!/usr/bin/env bash
# pi-ls.el in a real Emacs with the real server. PI_LS_PYTHON: a Python that has pi_ls and what its tests need.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
export PI_LS_PYTHON=${PI_LS_PYTHON:-$root/.venv/bin/python} PYTHONPATH=$root LC_ALL=C.UTF-8
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export HOME=$scratch/home PI_CODING_AGENT_DIR=$scratch/agent PI_LS_PROJECT=$scratch/app
mkdir -p "$HOME" "$PI_LS_PROJECT/.git" "$scratch/bin"
printf '#!/bin/sh\nexec "%s" -m pi_ls "$@"\n' "$PI_LS_PYTHON" >"$scratch/bin/pi-ls"
chmod +x "$scratch/bin/pi-ls"
export PATH=$scratch/bin:$PATH PI_LS_README=$here/../../README.md
echo notes >"$PI_LS_PROJECT/notes.txt"
"$PI_LS_PYTHON" "$root/tests/editors/scratch.py" "$PI_LS_PROJECT"
timeout 120 emacs --batch -L "$here/.." -l "$here/pi-ls-tests.el" -f ert-run-tests-batch-and-exit
