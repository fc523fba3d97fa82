// SPDX-License-Identifier: Apache-2.0
//
// Unfused attention on Regard's own matrix kernels: the baseline of the fused forward pass.
//
//     scores (L, S) = query · keyᵀ     packed rows times packed panels, as linear_forward computes them
//     weights       = softmax(scale · scores), row by row, with the kernels' exp
//     context       = weights · value  with the same tiles
//
// The whole (L, S) matrix of a head is stored. Each thread of the library's pool processes whole heads; if there are
// fewer heads than threads, the threads share the rows of each head.
// Read next: shapes.cpp, src/kernels/linear_tile.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::bench {

// One line of shapes.txt.
struct Shape {
  Index heads = 1, queries = 1, keys = 1, depth = 64;
  bool causal = false;  // a causal mask, aligned at the bottom right
  Index window = -1;    // visible keys before a query's own position; −1 means all
  bool mask = false;    // boolean; nine of ten elements are true, and the first key is visible to all queries
};

struct Arrays {
  Tensor<float, 4> query, key, value;  // (1, H, L or S, D)
  Tensor<std::uint8_t, 4> seen;        // (1, 1, L, S) if the shape has a mask

  TensorView<const bool, 4> mask() const { return {reinterpret_cast<const bool*>(seen.data()), seen.shape()}; }
};

class ThreeSteps {
 public:
  ThreeSteps(const Shape& shape, const Arrays& arrays, const Runtime& runtime);
  // Writes context (1, H, L, D).
  void run(Tensor<float, 4>& context);

 private:
  struct Scratch {
    std::vector<float> keys, values, scores;
  };
  // pack() packs panel p of a head: the panels of the keys come first, then those of the values. The other functions
  // process the kRows rows from kRows · strip on.
  void pack(Index head, Scratch& s, Index p) const;
  void multiply_keys(Index head, Scratch& s, std::vector<float>& rows, Index strip) const;
  void apply_softmax(Scratch& s, Index strip) const;
  void multiply_values(Index head, Scratch& s, std::vector<float>& rows, Index strip, Tensor<float, 4>& context) const;

  const Shape& shape_;
  const Arrays& arrays_;
  Runtime runtime_;
  int workers_;
  bool heads_are_few_;
  std::vector<Scratch> scratch_;          // one per worker, or one for all
  std::vector<std::vector<float>> rows_;  // packed rows of each worker
};

}  // namespace regard::bench
