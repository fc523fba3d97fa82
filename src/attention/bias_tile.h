// SPDX-License-Identifier: Apache-2.0
//
// The additive bias of a tile of scores.
// Read next: bias_tile.cpp.
#pragma once

#include <variant>

#include "arguments.h"
#include "task_rows.h"

namespace regard::inline v0::internal {

inline bool has_bias(const UntypedAttention& r) { return !r.bias.absent(); }

// Writes the additive bias to tile[row][lane]; lanes from num_keys on remain 0.
template <class T>
void fill_bias_tile(const ResolvedAttention<T>& r, const Sequence& sequence, const TaskRows& of, Index first_key,
                    Index num_keys, T* tile);

}  // namespace regard::inline v0::internal
