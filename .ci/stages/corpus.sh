# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# Replays the corpora of the fuzz targets.

if ! build_preset address; then return; fi
for target in tests/fuzz/*_fuzz.cpp; do
  target=$(basename "$target" .cpp)
  corpus=tests/fuzz/corpus/${target%_fuzz}
  run_test "corpus: $target" "${fixed_addresses[@]}" sh -c '
    set -e
    program=$1; shift
    [ $# -gt 0 ] && [ -f "$1" ]
    "$program" -timeout=5 -rss_limit_mb=512 "$@" >"$0" 2>&1 || { tail -n 40 "$0"; exit 1; }
    [ "$(grep -c "^Executed " "$0")" -eq $# ]
  ' "$logs/$target.log" "$work/address/tests/fuzz/$target" "$corpus"/*
done
