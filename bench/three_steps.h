// SPDX-License-Identifier: Apache-2.0
//
// Attention as everybody writes it first, on Regard's own matrix kernels: what a fused forward has to beat.
//
//     scores (L, S) = query · keyᵀ     packed rows times packed panels, as linear_forward computes them
//     weights       = softmax(scale · scores), row by row, with the kernels' exp
//     context       = weights · value  the same tiles again
//
// The whole (L, S) matrix of a head is stored. Threads, of the library's pool, take heads, or share the rows of one
// where heads are few. Read next: shapes.cpp, src/kernels/linear_tile.cpp.
#pragma once

#include <cstdint>
#include <vector>

#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard::bench {

// One line of shapes.txt.
struct Shape {
  Index heads = 1, queries = 1, keys = 1, depth = 64;
  bool causal = false;  // the last query sees the last key
  Index window = -1;    // keys before a query's own that it sees; −1: all
  bool mask = false;    // a mask of booleans, nine of ten true, the first key seen by all
};

struct Arrays {
  Tensor<float, 4> query, key, value;  // (1, H, L or S, D)
  Tensor<std::uint8_t, 4> seen;        // (1, 1, L, S), where the shape has a mask

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
  // Of a head: panel p of its keys and, after these, of its values; rows 60 · strip and following.
  void pack(Index head, Scratch& s, Index p) const;
  void multiply_keys(Index head, Scratch& s, std::vector<float>& rows, Index strip) const;
  void soften(Scratch& s, Index strip) const;
  void multiply_values(Index head, Scratch& s, std::vector<float>& rows, Index strip, Tensor<float, 4>& context) const;

  const Shape& shape_;
  const Arrays& arrays_;
  Runtime runtime_;
  int workers_;
  bool heads_are_few_;
  std::vector<Scratch> scratch_;          // of each worker, or one for all
  std::vector<std::vector<float>> rows_;  // packed rows of each worker
};

}  // namespace regard::bench
