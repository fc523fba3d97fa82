# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# Sources, layers, format, the API reference, shell scripts, versions.

for rule in $(/usr/bin/python3 tests/check_style.py --list); do
  that "style: $rule" /usr/bin/python3 tests/check_style.py "$rule"
done
that 'layers' /usr/bin/python3 tests/check_layers.py
that 'format' sh -c "git ls-files '*.h' '*.cpp' '*.c' | xargs clang-format-19 --dry-run -Werror"
that 'API reference' sh -c 'mkdir -p "$0" && { cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $0"; } | doxygen -' "$work/api"
# SC2016: $ in single quotes is meant for the inner shell.
that 'shell' sh -c "shellcheck -x --exclude=SC2016 demo check .ci/run \$(git ls-files '*.sh')"
