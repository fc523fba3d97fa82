#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs bench/two_hosts.cpp on two "hosts": network namespaces of this machine with one core each, whose link has a
# limited rate. Needs root, iproute2, Open MPI 4 (its plm_rsh_agent starts the second rank) and a build.
#
#     sudo bench/two_hosts.sh BUILD [RATE] [ROUNDS]      such as build/check/release 1gbit 7
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?folder of a build} rate=${2:-1gbit} rounds=${3:-7}
work=$(mktemp -d)
left=regard-a-$$ right=regard-b-$$
end() {
  ip netns del "$left" 2>/dev/null || true
  ip netns del "$right" 2>/dev/null || true
  rm -rf "$work"
}
trap end EXIT

mpicxx -std=c++20 -O2 -DOMPI_SKIP_MPICXX -Iinclude bench/two_hosts.cpp "$build/src/distributed/libregard_distributed.a" \
  "$build/libregard.a" -lpthread -o "$work/two_hosts"

ip netns add "$left"
ip netns add "$right"
ip link add veth0 netns "$left" type veth peer name veth0 netns "$right"
host=1
for namespace in "$left" "$right"; do
  ip -n "$namespace" link set lo up
  ip -n "$namespace" address add "10.77.0.$host/24" dev veth0
  ip -n "$namespace" link set veth0 up
  ip netns exec "$namespace" tc qdisc add dev veth0 root tbf rate "$rate" burst 256k latency 20ms
  host=2
done

# Messages of up to 8 MB are sent without asking the receiver first: the question would wait behind the data of the
# previous head in the socket, and the link would be idle meanwhile.
options=(--mca btl ^vader --mca pml ob1 --mca btl_tcp_flags 1 --mca btl_tcp_eager_limit 8388608
  --mca btl_tcp_rndv_eager_limit 8388608 --mca btl_tcp_max_send_size 8388608 --mca btl_tcp_if_include 10.77.0.0/24
  --mca oob_tcp_if_include 10.77.0.0/24)

# mpirun calls it with a host and a command; each host has its own name, so that ranks share no memory.
cat >"$work/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec $right unshare --uts sh -c 'hostname regard-b; exec "\$@"' sh taskset -c 1 sh -c "\$*"
AGENT
chmod +x "$work/agent"
bits=$(numfmt --from=si "$(sed 's/bit$//; s/k/K/; s/m/M/; s/g/G/' <<<"$rate")")
ip netns exec "$left" unshare --uts sh -c 'hostname regard-a; exec "$@"' sh taskset -c 0 mpirun --allow-run-as-root \
  --host 10.77.0.1:1,10.77.0.2:1 -n 2 --bind-to none --mca plm_rsh_agent "$work/agent" "${options[@]}" \
  "$work/two_hosts" "$bits" "$rounds"
printf 'bytes through the link: %s and %s\n' "$(ip netns exec "$left" cat /sys/class/net/veth0/statistics/tx_bytes)" \
  "$(ip netns exec "$left" cat /sys/class/net/veth0/statistics/rx_bytes)"
