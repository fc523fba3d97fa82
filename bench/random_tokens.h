// SPDX-License-Identifier: Apache-2.0
//
// Tokens without any meaning, for the time of a training step.
#pragma once

#include <cstdint>
#include <span>

#include "regard/random.h"
#include "regard/train/batch_source.h"

namespace regard::bench {

class RandomTokens final : public BatchSource {
 public:
  RandomTokens(Index vocabulary, Index length) : vocabulary_(vocabulary), length_(length) { data_.name = "random"; }
  const TrainingData& data() const override { return data_; }
  Index vocabulary() const override { return vocabulary_; }
  Index length() const override { return length_; }
  void example(std::uint64_t seed, TaskSplit, Index index, std::span<Index> tokens,
               std::span<Index> targets) const override {
    for (std::size_t i = 0; i <= tokens.size(); ++i) {
      const Index token = random_below(seed, static_cast<std::uint64_t>(index), i, vocabulary_);
      if (i < tokens.size()) tokens[i] = token;
      if (i > 0) targets[i - 1] = token;
    }
  }

 private:
  Index vocabulary_, length_;
  TrainingData data_;
};

}  // namespace regard::bench
