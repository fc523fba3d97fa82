// SPDX-License-Identifier: Apache-2.0
//
// Converts the bias of a tile to the compute type; see bias_tile.h.
// Read next: row_task.cpp.
#include "bias_tile.h"

#include <algorithm>

#include "instantiate.h"
#include "kernels/table.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0::internal {

using kernels::kBlockKeys;

template <class T>
void fill_bias_tile(const ResolvedAttention<T>& r, const Sequence& sequence, const TaskRows& of, Index first_key,
                    Index num_keys, T* tile) {
  const auto copy = [&]<class E>(E) {
    for (Index i = 0; i < of.num_rows; ++i) {
      const auto* from = static_cast<const E*>(r.bias.pointer(
          sequence.batch, of.head_of(i), sequence.first_query + of.row_of(i), sequence.first_key + first_key));
      T* to = tile + i * kBlockKeys;
      for (Index j = 0; j < num_keys; ++j)
        to[j] = static_cast<T>(static_cast<ComputeType<E>>(read_element(from + j * r.bias.strides[3])));
      std::fill(to + num_keys, to + kBlockKeys, static_cast<T>(0));
    }
  };
  if (r.bias.type == ElementType::float32) return copy(float{});
  with_element_type<T>(r.bias.type, copy);
}

REGARD_INSTANTIATE_COMPUTE(fill_bias_tile);

}  // namespace regard::inline v0::internal
