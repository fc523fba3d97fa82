# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# g++ Release: every test. Shared libraries, which consist of the same objects: symbols and consumers.

if build_preset release; then run_ctest release release -LE '_check$'; fi
if build_preset shared regard regard_explain regard_distributed; then run_ctest shared shared -L 'consumer|symbols' -E embed; fi
