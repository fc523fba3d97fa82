# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# The core of live pages, compiled to WebAssembly, against the native instruction set generic: bits, digits, tokens.

if ! python=$(python_environment tests/requirements-page.txt); then
  failed=$((failed + 1))
  return
fi
if ! build_preset release; then return; fi
run_pytest wasm "$python" tests/wasm
REGARD_PROGRAM=$work/release/regard PYTHONPATH=tests/support run_test 'speed' "$python" tests/wasm/speed.py
sed -n 's/^speed of the core/          &/p' "$log"
