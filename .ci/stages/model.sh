# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# The real model's numbers, compared with those of transformers. Downloads the model if it is missing.

if ! python=$(python_environment tests/requirements.txt) || ! builds release; then
  failed=$((failed + 1))
  return
fi
that 'pull' "$work/release/regard" pull minilm
export REGARD_TEST_MODEL=$model
tests release model -L '^model$'
that 'example: sentence_vectors' /usr/bin/python3 tests/check_example.py examples/sentence_vectors.cpp \
  "$work/release/examples/example_sentence_vectors" "$model"
pytests model_python "$python" tests/model_*_check.py
