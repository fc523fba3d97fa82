# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# g++ Release: every test. The bits again with clang-19 and in a g++ Debug build of the shared library. Consumers.

if build_preset release; then run_ctest release release -LE '^model$'; fi
if build_preset debug regard regard_explain regard_distributed golden_test; then run_ctest debug debug -L 'golden|consumer|symbols' -E embed; fi
if build_preset clang golden_test; then run_ctest clang clang -L '^golden$'; fi
