# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# The Python package with PyTorch and transformers, the notebooks, and the program under Ray and Dask (downloads 1.9 GB of
# packages once).

cache=${XDG_CACHE_HOME:-$HOME/.cache}
mkdir -p "$cache"
free=$(df --output=avail -BM "$cache" | tail -n 1 | tr -dc 0-9)
if [ ! -f "$cache/regard-dev/$(sha256sum tests/requirements-frameworks.txt | cut -c1-16)/complete" ] && [ "$free" -lt 4300 ]; then
  failed=$((failed + 1))
  echo "FAILED: $cache has $free MB free; installing PyTorch and transformers needs 4300 MB" >&2
  return
fi
if ! python=$(python_environment tests/requirements-frameworks.txt); then
  failed=$((failed + 1))
  return
fi
if ! build_preset release; then return; fi
if ! python=$(python_package "$python"); then
  failed=$((failed + 1))
  return
fi
OMP_WAIT_POLICY=PASSIVE run_pytest frameworks "$python" tests/frameworks
