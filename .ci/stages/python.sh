# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# The program's tests and those of the Python package (pytest).

if ! python=$(python_environment tests/requirements.txt); then
  failed=$((failed + 1))
  return
fi
if ! build_preset release; then return; fi
if ! python=$(python_package "$python"); then
  failed=$((failed + 1))
  return
fi
run_pytest python "$python" tests/cli tests/python
