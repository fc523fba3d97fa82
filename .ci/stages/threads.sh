# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# clang-19 with the thread sanitizer; and the bits of the kernels that the stage sanitize leaves out.

if build_preset thread thread_tests; then
  REGARD_RANDOM_CALLS=20 REGARD_SMALL_TESTS=1 run_ctest thread threads -L '^(isa|runtime|parallel|golden|attention_bits|attention_runtime|kv_cache|ranks)$' -E 'Fork|RandomChangesMatchForward'
fi
