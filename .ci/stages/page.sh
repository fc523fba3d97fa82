# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# The types of web/*.js, and the pages in a headless Chromium.

if ! python=$(python_environment tests/requirements-page.txt) ||
  ! compiler=$(PATH=$(dirname "$python"):$PATH typescript); then
  failed=$((failed + 1))
  return
fi
run_test 'types of the page' "$(dirname "$python")/node" "$compiler" --project web
if ! build_preset release; then return; fi
# Tests wait for frames and timers of the browser: one more than there are processors keeps these busy.
run_pytest page "$python" tests/page -n $((jobs + 1))
