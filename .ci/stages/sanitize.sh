# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# clang-19 with the address and undefined-behavior sanitizers. Tests are smaller (tests/support/test_size.h), except in
# ./check slow.

if build_preset address; then REGARD_RANDOM_CALLS=${random_calls:-50} REGARD_SMALL_TESTS=${small_tests:-1} run_ctest address sanitize -LE 'consumer|header|symbols|version|_check$'; fi
