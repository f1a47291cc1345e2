#!/usr/bin/env bash
# The Neovim plugin and the other editors' fragments, in the editors themselves. Needs `make setup` before.
# Neovim is in the development requirements; the rest comes from Debian.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(tmux lua-check emacs-nox elpa-eglot)
if ! dpkg -s "${packages[@]}" >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
fi

.venv/bin/python -m pytest tests/editors
(cd editors/nvim && luacheck -q .)
if command -v npm >/dev/null; then
    (cd editors/nvim/tools && npm ci --silent && node format.mjs --check)
fi
