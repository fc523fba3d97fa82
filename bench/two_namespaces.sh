# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154  # $work and $build are the caller's
# Two "hosts": network namespaces of this machine, joined by a link. Sourced by bench/two_hosts.sh and
# tests/distributed/cut_link.sh. Needs root, iproute2 and Open MPI 4, whose plm_rsh_agent starts ranks on the second host.
#
#     host 10.77.0.1, core 0   $left  veth0 ──── veth0  $right   host 10.77.0.2, core 1

left=regard-a-$$ right=regard-b-$$

make_namespaces() {
  local namespace host=1
  ip netns add "$left"
  ip netns add "$right"
  ip link add veth0 netns "$left" type veth peer name veth0 netns "$right"
  for namespace in "$left" "$right"; do
    ip -n "$namespace" link set lo up
    ip -n "$namespace" address add "10.77.0.$host/24" dev veth0
    ip -n "$namespace" link set veth0 up
    host=2
  done
  # mpirun calls it with a host and a command; each host has its own name, so that ranks share no memory.
  cat >"$work/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec $right unshare --uts sh -c 'hostname regard-b; exec "\$@"' sh taskset -c 1 sh -c "\$*"
AGENT
  chmod +x "$work/agent"
}

# Ends the processes in the namespaces as well.
remove_namespaces() {
  local namespace
  for namespace in "$left" "$right"; do
    { ip netns pids "$namespace" 2>/dev/null || true; } | xargs -r kill -9 || true
    ip netns del "$namespace" 2>/dev/null || true
  done
}

# compile SOURCE PROGRAM
compile() {
  mpicxx -std=c++20 -O2 -DOMPI_SKIP_MPICXX -Iinclude "$1" "$build/src/distributed/libregard_distributed.a" \
    "$build/libregard.a" -lpthread -o "$2"
}

# mpirun_on_both SLOTS SLOTS ARGUMENT…: mpirun on the first host, with slots for ranks on each.
mpirun_on_both() {
  local slots=(--host "10.77.0.1:$1,10.77.0.2:$2" -n $(($1 + $2)))
  shift 2
  ip netns exec "$left" unshare --uts sh -c 'hostname regard-a; exec "$@"' sh taskset -c 0 mpirun --allow-run-as-root \
    "${slots[@]}" --bind-to none --mca plm_rsh_agent "$work/agent" --mca btl_tcp_if_include 10.77.0.0/24 \
    --mca oob_tcp_if_include 10.77.0.0/24 "$@"
}
