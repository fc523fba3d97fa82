#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three ranks on two "hosts" (bench/two_namespaces.sh), whose link is cut while they compute together: every rank must end
# its call within its timeout of 2 s and 5 s more, with one sentence that names a rank on the other side. ./check slow
# runs it. Needs root, iproute2, Open MPI 4 and a build.
#
#     sudo tests/distributed/cut_link.sh BUILD [ROUNDS]      such as build/check/release 3
set -euo pipefail
cd "$(dirname "$0")/../.."
. bench/two_namespaces.sh
build=${1:?folder of a build} rounds=${2:-3}
work=$(mktemp -d)
end() {
  remove_namespaces
  rm -rf "$work"
}
trap end EXIT

compile tests/distributed/mpi_check.cpp "$work/mpi_check"
# What a rank prints stays on its host: mpirun is cut off as well.
cat >"$work/rank" <<RANK
#!/bin/sh
exec "$work/mpi_check" fail none 0 0 >"$work/rank-\$OMPI_COMM_WORLD_RANK" 2>/dev/null
RANK
chmod +x "$work/rank"

# count TEXT: the number of ranks that have printed it
count() { cat "$work"/rank-* 2>/dev/null | grep -c "$1" || true; }
# wait_for SECONDS TEXT: until all ranks have printed it
wait_for() {
  local end=$((SECONDS + $1))
  while [ "$(count "$2")" -lt 3 ]; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.1
  done
}

faults=0
for round in $(seq "$rounds"); do
  rm -f "$work"/rank-*
  make_namespaces
  mpirun_on_both 2 1 "$work/rank" >"$work/mpirun" 2>&1 </dev/null &
  if ! wait_for 30 ' computes$'; then
    echo "round $round: the ranks have not started" >&2
    cat "$work/mpirun" >&2
    exit 1
  fi
  sleep "0.$((RANDOM % 10))"
  ip -n "$left" link set veth0 down
  wait_for 7 ' of 3 ' || true
  cat "$work"/rank-* | grep ' of 3 ' | sed "s/^/round $round: /" || true
  silent='does not respond: nothing received for 2 s'
  for expected in "rank 0: rank 2 of 3 $silent" "rank 1: rank 2 of 3 $silent" "rank 2: rank [01] of 3 $silent"; do
    if [ "$(count "^$expected$")" != 1 ]; then
      echo "round $round: missing: $expected" >&2
      faults=$((faults + 1))
    fi
  done
  # They end by MPI_Abort 3 to 4 s later.
  for _ in $(seq 150); do
    { ip netns pids "$left" && ip netns pids "$right"; } | xargs -r ps -o comm= -p | grep -q mpi_check || break
    sleep 0.1
  done
  if { ip netns pids "$left" && ip netns pids "$right"; } | xargs -r ps -o comm= -p | grep mpi_check; then
    echo "round $round: ranks have not ended" >&2
    faults=$((faults + 1))
  fi
  remove_namespaces
  wait
done
[ $faults = 0 ]
