// SPDX-License-Identifier: Apache-2.0
//
// A program that uses regard::distributed: the rows of a causal call, cut for two ranks.
// Read next: ../run.sh.
#include "regard/distributed/shards.h"

int main() {
  const std::vector<regard::Index> starts = regard::split_by_work({.causal = true}, 4096, 4096, 2);
  return starts[1] == 2896 ? 0 : 1;
}
