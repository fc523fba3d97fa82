# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# Sources, layers, format, the API reference, shell scripts, versions.

for rule in $(/usr/bin/python3 tests/check_style.py --list); do
  run_test "style: $rule" /usr/bin/python3 tests/check_style.py "$rule"
done
run_test 'layers' /usr/bin/python3 tests/check_layers.py
run_test 'format' sh -c "git ls-files '*.h' '*.cpp' '*.c' | xargs clang-format-19 --dry-run -Werror"
run_test 'API reference' sh -c 'mkdir -p "$0" && { cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $0"; } | doxygen -' "$work/api"
# SC2016: $ in single quotes is meant for the inner shell.
run_test 'shell' sh -c "shellcheck -x --exclude=SC2016 demo check .ci/run \$(git ls-files '*.sh')"
