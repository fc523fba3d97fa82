// SPDX-License-Identifier: Apache-2.0
//
// Operations and bytes of an attention call.
#include "attention_plan.h"

#include "visibility.h"

namespace regard {
inline namespace v0 {
namespace internal {

template <class T>
double output_bytes(const TypedOutputs<T>& o) {
  double context = static_cast<double>(type_bytes(o.context.type));
  for (Index extent : o.context.shape) context *= static_cast<double>(extent);
  return context + view_bytes(o.row_max) + view_bytes(o.row_sum) + view_bytes(o.lse) + view_bytes(o.weights) +
         view_bytes(o.sink_weights);
}

template <class T>
void plan_attention(const char* name, const ResolvedAttention<T>& r, Index key_bytes, Index value_bytes,
                    std::string way, double written_bytes) {
  double pairs = 0;
  double keys = 0;
  for (const Sequence& sequence : r.sequences) {
    keys += static_cast<double>(sequence.num_queries > 0 ? sequence.key_limit : 0);
    for (Index row = 0; row < sequence.num_queries; ++row) {
      const Interval seen = visible_interval(r, sequence, row);
      pairs += static_cast<double>(seen.end - seen.begin);
    }
  }
  const Index columns = value_bytes > 0 ? r.columns : 0;
  const double queries = static_cast<double>(r.batch * r.num_heads * r.num_queries * r.depth);
  const double bytes =
      queries * static_cast<double>(type_bytes(r.query.type)) +
      keys * static_cast<double>(r.num_key_heads) * static_cast<double>(r.depth * key_bytes + columns * value_bytes);
  plan_operator({.name = name,
                 .way = std::move(way),
                 .operations = 2 * pairs * static_cast<double>(r.num_heads * (r.depth + columns)),
                 .bytes = bytes + written_bytes});
}

template double output_bytes(const TypedOutputs<float>&);
template double output_bytes(const TypedOutputs<double>&);
template void plan_attention(const char*, const ResolvedAttention<float>&, Index, Index, std::string, double);
template void plan_attention(const char*, const ResolvedAttention<double>&, Index, Index, std::string, double);

}  // namespace internal
}  // namespace v0
}  // namespace regard
