// SPDX-License-Identifier: Apache-2.0
//
// Counts operations and bytes of an attention call for a plan.
// Read next: runtime/plan.h.
#include "plan.h"

#include <string>
#include <utility>

#include "visibility.h"

namespace regard::inline v0::internal {
namespace {

// Per head: the (query, key) pairs visible under causal, window, prefix and lengths; and the keys that are read.
struct Seen {
  double pairs;
  double keys;
};
Seen seen(const UntypedAttention& r) {
  Seen all{0, 0};
  for (const Sequence& sequence : r.sequences) {
    all.keys += static_cast<double>(sequence.num_queries > 0 ? sequence.key_limit : 0);
    for (Index row = 0; row < sequence.num_queries; ++row) {
      const Interval of_row = visible_interval(r, sequence, row);
      all.pairs += static_cast<double>(of_row.end - of_row.begin);
    }
  }
  return all;
}

}  // namespace

void plan_attention(const char* name, const UntypedAttention& r, Index key_bytes, Index value_bytes,
                    std::string strategy, double written_bytes) {
  const auto [pairs, keys] = seen(r);
  const Index columns = value_bytes > 0 ? r.value_head_size : 0;
  const double queries = static_cast<double>(r.batch * r.num_heads * r.num_queries * r.head_size);
  const double bytes =
      queries * static_cast<double>(type_bytes(r.query.type)) +
      keys * static_cast<double>(r.num_kv_heads) * static_cast<double>(r.head_size * key_bytes + columns * value_bytes);
  const double operations = 2 * pairs * static_cast<double>(r.num_heads * (r.head_size + columns));
  plan_operator(
      {.name = name, .strategy = std::move(strategy), .operations = operations, .bytes = bytes + written_bytes});
}

void plan_backward(const char* name, const UntypedAttention& r, double written_bytes) {
  const auto [pairs, keys] = seen(r);
  // Query, its context, and the gradient of the context; then key and value.
  const double queries = static_cast<double>(r.batch * r.num_heads * r.num_queries);
  const double query_bytes = static_cast<double>(type_bytes(r.query.type));
  const double state_bytes = static_cast<double>(type_bytes(compute_type(r.query.type)));
  const double bytes =
      queries * (static_cast<double>(r.head_size) * query_bytes +
                 2 * static_cast<double>(r.value_head_size) * query_bytes + 2 * state_bytes) +
      keys * static_cast<double>(r.num_kv_heads) *
          static_cast<double>(r.head_size * type_bytes(r.key.type) + r.value_head_size * type_bytes(r.value.type));
  plan_operator({.name = name,
                 .strategy = std::to_string(static_cast<Index>(r.sequences.size()) * r.num_kv_heads) +
                             " KV heads, each with up to six partial sums of grad_query",
                 .operations = 2 * pairs * static_cast<double>(r.num_heads * (3 * r.head_size + 2 * r.value_head_size)),
                 .bytes = bytes + written_bytes});
}

}  // namespace regard::inline v0::internal
