#!/usr/bin/env bash
# Tests in a Neovim of their own: run.sh [NAME_test.lua …], all of them by default.
# NVIM_BIN: the Neovim to use. PI_LS_PYTHON: a Python that has pi_ls and what its tests need.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
export PI_LS_ROOT=${PI_LS_ROOT:-$(cd "$here/../../.." && pwd)}
export PI_LS_PYTHON=${PI_LS_PYTHON:-$PI_LS_ROOT/.venv/bin/python}
export PI_LS_SERVER=${PI_LS_SERVER:-"[\"$PI_LS_PYTHON\", \"-m\", \"pi_ls\"]"}
export PYTHONPATH=$PI_LS_ROOT LC_ALL=C.UTF-8
nvim=${NVIM_BIN:-$(dirname "$PI_LS_PYTHON")/nvim}
[ -x "$nvim" ] || nvim=nvim
unset VIMRUNTIME NVIM

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
[ $# -gt 0 ] || set -- "$here"/*_test.lua
for test in "$@"; do
    case $test in */*) ;; *) test=$here/$test ;; esac
    name=$(basename "$test" .lua)
    mkdir -p "$scratch/$name"/{config,data,state,cache,run,home}
    printf '== %s\n' "$name"
    XDG_CONFIG_HOME=$scratch/$name/config XDG_DATA_HOME=$scratch/$name/data \
        XDG_STATE_HOME=$scratch/$name/state XDG_CACHE_HOME=$scratch/$name/cache \
        XDG_RUNTIME_DIR=$scratch/$name/run HOME=$scratch/$name/home PI_LS_SCRATCH=$scratch/$name \
        timeout -k 5 180 "$nvim" --headless -u "$here/minimal_init.lua" -l "$test" || {
        failed=1
        tail -40 "$scratch/$name/state/nvim/lsp.log" 2>/dev/null || true
    }
done
exit $failed
