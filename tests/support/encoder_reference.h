// SPDX-License-Identifier: Apache-2.0
//
// Results of transformers, stored in tests/encoder (the script that made them documents the names), and the deviation
// of an array from them.
// Read next: encoder/make_reference.py, encoder_test.cpp, model_encoder_check.cpp.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "regard/model/encoder.h"

namespace regard {

class EncoderReference {
 public:
  explicit EncoderReference(const std::string& path) : file_(Checkpoint::read_file(path)) {}

  std::vector<float> numbers(const std::string& name) const { return file_.read_float32(tensor(name)); }
  std::vector<Index> indices(const std::string& name) const {
    const StoredTensor& t = tensor(name);
    if (t.type != ElementType::int32) throw std::runtime_error(name + " is not of integers");
    std::vector<Index> result;
    for (std::size_t at = 0; at < t.bytes.size(); at += sizeof(std::int32_t)) {
      std::int32_t x = 0;
      std::memcpy(&x, t.bytes.data() + at, sizeof x);
      result.push_back(x);
    }
    return result;
  }
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }

 private:
  const StoredTensor& tensor(const std::string& name) const {
    const StoredTensor* found = file_.find(name);
    if (found == nullptr) throw std::runtime_error("the reference has no " + name);
    return *found;
  }
  Checkpoint file_;
};

// The bound for everything that is compared with transformers in float32.
constexpr double kReferenceBound = 1e-5;

inline double largest_difference(std::span<const float> got, std::span<const float> expected) {
  if (got.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    largest = std::isnan(difference) ? std::numeric_limits<double>::infinity() : std::max(largest, difference);
  }
  return largest;
}
inline testing::AssertionResult near_reference(std::span<const float> got, std::span<const float> expected) {
  const double difference = largest_difference(got, expected);
  if (difference <= kReferenceBound) return testing::AssertionSuccess();
  return testing::AssertionFailure() << got.size() << " and " << expected.size() << " numbers, off by " << difference;
}

template <int Rank>
std::span<const float> elements(const Tensor<float, Rank>& tensor) {
  return {tensor.data(), static_cast<std::size_t>(tensor.size())};
}

// (L, E) from (H, L, D).
inline std::vector<float> joined(const Tensor<float, 3>& by_head) {
  const auto [heads, length, depth] = by_head.shape();
  std::vector<float> rows;
  for (Index i = 0; i < length; ++i) {
    for (Index h = 0; h < heads; ++h) {
      for (Index d = 0; d < depth; ++d) rows.push_back(by_head(h, i, d));
    }
  }
  return rows;
}

// The hidden states before layer 0 and after each layer, in the order of transformers.
inline const Tensor<float, 2>& states_after(const ModelTrace& trace, std::size_t num_layers) {
  return num_layers == 0 ? trace.embedded : trace.layers[num_layers - 1].output;
}

}  // namespace regard
