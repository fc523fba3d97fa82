# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# The real model's numbers, compared with those of transformers. Downloads the model if it is missing.

if ! python=$(python_environment tests/requirements.txt) || ! build_preset release; then
  failed=$((failed + 1))
  return
fi
run_test 'pull' "$work/release/regard" pull minilm
export REGARD_TEST_MODEL=$model
run_ctest release model -L '_check$'
run_test 'example: sentence_vectors' /usr/bin/python3 tests/check_example.py examples/sentence_vectors.cpp \
  "$work/release/examples/example_sentence_vectors" "$model"
run_pytest model_python "$python" tests/cli/model_*_check.py
if ! python=$(python_environment tests/requirements-page.txt); then
  failed=$((failed + 1))
  return
fi
run_pytest model_core "$python" tests/wasm/model_core_check.py
