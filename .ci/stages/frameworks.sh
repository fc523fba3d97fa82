# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# The Python package with PyTorch and transformers, the notebooks, and the program under Ray and Dask (downloads 1.9 GB of
# packages once).

if ! python=$(frameworks_environment); then
  failed=$((failed + 1))
  return
fi
if ! build_preset release; then return; fi
if ! python=$(python_package "$python"); then
  failed=$((failed + 1))
  return
fi
OMP_WAIT_POLICY=PASSIVE run_pytest frameworks "$python" tests/frameworks
