// SPDX-License-Identifier: Apache-2.0
//
// Compares the arguments of a call between ranks, before any work: every rank sends its own arguments to all others,
// and all find the same error.
//
//   function           attention_forward        attention_forward
//   causal             1                        0                     ◀── InvalidArgument on both ranks
//   rows               512                      513                   number(): may differ
//
// Read next: agreement.cpp, attention.cpp.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/distributed/ranks.h"

namespace regard::inline v0::internal {

class Agreement {
 public:
  explicit Agreement(const char* function) : function_(function) { add("function", function); }

  // A value that must be equal on all ranks.
  void add(std::string name, std::string value) { fields_.emplace_back(std::move(name), std::move(value)); }
  void add(std::string name, Index value) { add(std::move(name), std::to_string(value)); }
  // A number that may differ; returns its index among the numbers of a rank.
  std::size_t number(Index value) {
    numbers_.push_back(value);
    return numbers_.size() - 1;
  }
  // This rank has found an error in its arguments. Only the first one is reported.
  void reject(const std::string& text) {
    if (mistake_.empty()) mistake_ = text;
  }

  // Throws the same InvalidArgument on all ranks, "function: rank r: …", if there was an error or a value differs.
  void exchange(Ranks& ranks, const std::stop_token& stop);
  // After exchange(): the number at this index, for each rank.
  std::vector<Index> numbers(std::size_t place) const;

 private:
  std::string function_;
  std::vector<std::pair<std::string, std::string>> fields_;
  std::vector<Index> numbers_;
  std::string mistake_;
  std::vector<std::vector<Index>> all_numbers_;
};

}  // namespace regard::inline v0::internal
