// SPDX-License-Identifier: Apache-2.0
//
// See regard/train/gradient_chain.h.
#include "regard/train/gradient_chain.h"

#include <algorithm>

namespace regard::inline v0 {

GradientChain::~GradientChain() = default;
void GradientChain::expect(std::span<std::byte>) {}

BatchPieces batch_pieces(Index batch, Index micro_batch, Index num_ranks) {
  const Index at_once = num_ranks * std::min(batch, micro_batch);
  const Index pieces_of_rank = (batch + at_once - 1) / at_once;
  return {.batch = batch, .count = std::min(batch, num_ranks * pieces_of_rank)};
}

}  // namespace regard::inline v0
