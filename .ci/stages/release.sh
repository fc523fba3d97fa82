# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# g++ Release: every test. The bits again with clang-19 and in a g++ Debug build of the shared library. Consumers.

if builds release; then tests release release -LE '^model$'; fi
if builds debug regard regard_explain golden_test; then tests debug debug -L 'golden|consumer|symbols' -E embed; fi
if builds clang golden_test; then tests clang clang -L '^golden$'; fi
