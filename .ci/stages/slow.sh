# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# exp and activations over every float, every header in every language, bits of g++ Debug and clang-19 Release, heads of
# 20 training runs, clang-tidy, WebAssembly twice, Firefox, aarch64 under qemu, all sanitizers on all kernels, ten minutes
# of fuzzing per target.

if build_preset release; then
  REGARD_EXHAUSTIVE=1 limit=3600 run_test 'exp over every float' "$work/release/tests/core_tests" --gtest_filter='Elementwise*'
  REGARD_EXHAUSTIVE=1 limit=3600 run_test 'activations over every float' "$work/release/tests/core_tests" --gtest_filter='ActivationError*'
fi
if build_preset release; then REGARD_EXHAUSTIVE=1 run_ctest release headers -L '^header$'; fi
for preset in debug clang; do
  if build_preset $preset thread_tests; then run_ctest $preset $preset -L '^golden$'; fi
done
if build_preset release; then
  limit=1200 run_test 'heads of 20 training runs' /usr/bin/python3 tests/train/events.py --train "$work/release/regard" {0..19}
fi
if build_preset tidy regard_commit; then
  limit=3600 run_test 'clang-tidy' sh -c "git ls-files 'src/*.cpp' 'cli/*.cpp' 'tests/*_test.cpp' |
    xargs -P $jobs -n 4 clang-tidy-19 -p build/check/tidy --quiet"
fi
if build_preset release; then
  limit=1800 run_test 'WebAssembly twice' tests/wasm/build_again.sh "$work/release" "$work/wasm-again"
fi
# A live page in Firefox.
if python=$(python_environment tests/requirements-page.txt); then
  run_pytest firefox "$python" tests/page/firefox_check.py -n 1
else
  failed=$((failed + 1))
fi
# Two hundred ranks that are killed, stopped, or make a mistake.
REGARD_MPI_FAILURES=70
export REGARD_MPI_FAILURES
. .ci/stages/mpi.sh
unset REGARD_MPI_FAILURES
as_root=()
if [ "$(id -u)" -ne 0 ]; then as_root=(sudo -n); fi
limit=600 run_test 'ranks whose link is cut' "${as_root[@]}" tests/distributed/cut_link.sh "$work/release" 10
# The emulator itself uses threads, so tests that count threads or fork are excluded, as are two that take minutes.
neon=(activation activation_error attention_backward_pairs attention_bits attention_corners attention_unpacked
  attention_random attention_types attention_visibility attention_weights elementwise golden kv_cache kv_cache_ahead
  kv_cache_int8 linear parallel rotary)
if build_preset neon core_tests thread_tests; then
  REGARD_RANDOM_CALLS=300 run_ctest neon neon -E 'Fork|ActivationErrorDouble' -L "^($(IFS='|'; printf '%s' "${neon[*]}"))\$"
fi
# The wheel, compiled from source as `pip install .` does.
if python=$(python_environment tests/requirements.txt); then
  rm -rf "$work/wheel"
  limit=1800 run_test 'building the wheel' "$python" -m pip wheel --no-input --disable-pip-version-check --no-deps -w "$work/wheel" "$root"
  REGARD_WHEEL=$work/wheel run_pytest wheel "$python" tests/python/wheel_check.py
else
  failed=$((failed + 1))
fi
# shellcheck disable=SC2034  # read by choose_kernels and the stage
sanitized_kernels=all random_calls=2000 small_tests=0
. .ci/stages/sanitize.sh
if ! build_preset fuzz; then return; fi
# One target per processor at a time; each writes its exit status next to its log.
printf '%s\n' tests/fuzz/*_fuzz.cpp | xargs -P "$jobs" -n 1 "${fixed_addresses[@]}" sh -c '
  target=$(basename "$2" .cpp)
  mkdir -p "$1/fuzz-new/$target"
  timeout -k 5 700 "$1/fuzz/tests/fuzz/$target" -max_total_time=600 -timeout=5 -rss_limit_mb=512 -print_final_stats=1 \
    -artifact_prefix="$1/fuzz-new/$target/" "$1/fuzz-new/$target" "tests/fuzz/corpus/${target%_fuzz}" >"$0/$target.log" 2>&1
  echo $? >"$0/$target.status"' "$logs" "$work"
for target in tests/fuzz/*_fuzz.cpp; do
  target=$(basename "$target" .cpp)
  run_test "fuzz: $target" sh -c 'tail -n 60 "$0.log"; exit "$(cat "$0.status")"' "$logs/$target"
  log_line=$(awk '/^stat::number_of_executed_units/ {runs = $2}
    match($0, /cov: [0-9]+/) {coverage = substr($0, RSTART + 5, RLENGTH - 5)}
    END {printf "| %s | %s |", runs, coverage}' "$logs/$target.log")
  printf '| %s | %s %s\n' "$(date -u +%F)" "${target%_fuzz}" "$log_line" >>docs/developer/fuzzing.md
done
