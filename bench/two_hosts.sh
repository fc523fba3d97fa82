#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs bench/two_hosts.cpp on two "hosts": network namespaces of this machine with one core each, whose link has a
# limited rate. Needs root, iproute2, Open MPI 4 and a build.
#
#     sudo bench/two_hosts.sh BUILD [RATE] [ROUNDS]      such as build/check/release 1gbit 7
set -euo pipefail
cd "$(dirname "$0")/.."
. bench/two_namespaces.sh
build=${1:?folder of a build} rate=${2:-1gbit} rounds=${3:-7}
work=$(mktemp -d)
end() {
  remove_namespaces
  rm -rf "$work"
}
trap end EXIT

compile bench/two_hosts.cpp "$work/two_hosts"
make_namespaces
for namespace in "$left" "$right"; do
  ip netns exec "$namespace" tc qdisc add dev veth0 root tbf rate "$rate" burst 256k latency 20ms
done

# Messages of up to 8 MB are sent without asking the receiver first: the question would wait behind the data of the
# previous head in the socket, and the link would be idle meanwhile.
options=(--mca btl ^vader --mca pml ob1 --mca btl_tcp_flags 1 --mca btl_tcp_eager_limit 8388608
  --mca btl_tcp_rndv_eager_limit 8388608 --mca btl_tcp_max_send_size 8388608)
bits=$(numfmt --from=si "$(sed 's/bit$//; s/k/K/; s/m/M/; s/g/G/' <<<"$rate")")
mpirun_on_both 1 1 "${options[@]}" "$work/two_hosts" "$bits" "$rounds"
printf 'bytes through the link: %s and %s\n' "$(ip netns exec "$left" cat /sys/class/net/veth0/statistics/tx_bytes)" \
  "$(ip netns exec "$left" cat /sys/class/net/veth0/statistics/rx_bytes)"
