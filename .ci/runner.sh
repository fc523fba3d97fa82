# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# Functions of the stages: run_test, build_preset, run_ctest and run_pytest. They add to the totals of ./check.

# run_test NAME COMMAND…: runs one test. Its output goes to the log, and is shown if the test fails.
run_test() {
  local name=$1 output status
  shift
  output=$(timeout -k 5 "${limit:-120}" "$@" 2>&1 </dev/null)
  status=$?
  printf '== %s: %s\n%s\n' "$name" "$status" "$output" >>"$log"
  if [ $status -eq 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf '%s\nFAILED: %s (%s)\n' "$(tail -n 60 <<<"$output")" "$name" "$status" >&2
  fi
}

# choose_kernels PRESET: with sanitizers, kernels take longest to compile, and only kernels that this processor can run
# are useful. The sanitizer builds therefore contain only the narrowest and the widest of them (avx512_bf16 and amx_bf16
# use kernels of avx512), without the checks of pointer arithmetic (the address sanitizer detects wrong accesses
# anyway). ./check slow adds the other kernels and these checks. All other builds contain all kernels.
choose_kernels() {
  local sets=(generic) set
  kernels=()
  case $1 in address | fuzz) ;; *) return ;; esac
  [ "$(uname -m)" = x86_64 ] || return
  for set in avx2:avx2 avx512:avx512f avx512_bf16:avx512_bf16 amx_bf16:amx_bf16; do
    if grep -qw "${set#*:}" /proc/cpuinfo; then sets+=("${set%:*}"); fi
  done
  if [ "${sanitized_kernels:-outermost}" = all ]; then
    kernels=(-DREGARD_KERNEL_OPTIONS=)
  elif [[ ${sets[-1]} == *_bf16 ]]; then
    sets=(generic avx512 "${sets[-1]}")
  elif [ ${#sets[@]} -gt 2 ]; then
    sets=(generic "${sets[-1]}")
  fi
  kernels+=("-DREGARD_INSTRUCTION_SETS=$(IFS=';'; printf '%s' "${sets[*]}")")
}

# build_preset PRESET [TARGET…]: configures and builds. A failure counts as one failed test, and the build is not run.
build_preset() {
  local preset=$1
  shift
  choose_kernels "$preset"
  if cmake --preset "$preset" "${kernels[@]}" >>"$log" 2>&1 && ninja -C "$work/$preset" -j "$jobs" "$@" >>"$log" 2>&1; then return 0; fi
  failed=$((failed + 1))
  printf '%s\nFAILED: building %s\n' "$(grep -v '^\[' "$log" | tail -n 60)" "$preset" >&2
  return 1
}

# run_ctest PRESET NAME [CTEST ARGUMENT…]: runs tests of that build and counts them. Running no test is a failure.
run_ctest() {
  local preset=$1 name=$2
  shift 2
  "${fixed_addresses[@]}" ctest --test-dir "$work/$preset" -j "$jobs" --timeout 120 --no-tests=error --output-on-failure \
    --output-junit "$results/$name.xml" "$@" >"$logs/$name.log" 2>&1 </dev/null
  count_results "$name" $?
}

# count_results NAME STATUS: adds the results of one run (JUnit) to the totals, and shows its log if a test failed.
count_results() {
  local name=$1 status=$2 numbers
  numbers=$(/usr/bin/python3 tests/check_results.py count "$results/$name.xml" 2>>"$logs/$name.log") || numbers='0 1 0'
  read -r p f s <<<"$numbers"
  if [ "$status" -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
  if [ "$f" -gt 0 ]; then
    tail -n 120 "$logs/$name.log" >&2
    printf 'FAILED: %s, %s tests (build/check/logs/%s.log)\n' "$name" "$f" "$name" >&2
  fi
}

# The sanitizers' shadow memory collides with addresses chosen from more than 28 random bits.
fixed_addresses=()
if [ "$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 0)" -gt 28 ]; then fixed_addresses=(setarch -R); fi

# run_pytest NAME PYTHON ARGUMENT…: runs Python tests on the release build and counts them.
run_pytest() {
  local name=$1 python=$2
  shift 2
  REGARD_PROGRAM=$work/release/regard "$python" -m pytest -q -n "$jobs" -p no:cacheprovider \
    --junitxml="$results/$name.xml" -o faulthandler_timeout=120 -o faulthandler_exit_on_timeout=true "$@" \
    >"$logs/$name.log" 2>&1 </dev/null
  count_results "$name" $?
}
