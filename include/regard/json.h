// SPDX-License-Identifier: Apache-2.0
//
// JSON, read strictly into a tree that knows where each value stands: for explain's input, config.json, tokenizer.json.
// Read next: src/model/json.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "regard/export.h"
#include "regard/runtime.h"
#include "regard/tensor.h"

namespace regard {
inline namespace v0 {

struct REGARD_EXPORT JsonValue {
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0.0;
  std::string text{};
  std::vector<double> numbers{};  // of an array of nothing but numbers, which then has no items
  std::vector<JsonValue> items{};
  std::vector<std::pair<std::string, JsonValue>> members{};  // in the order of the text, no name twice
  std::size_t offset = 0;                                    // of its first byte; of a number, of one of its bytes

  const JsonValue* find(std::string_view name) const;
};

// Throws std::runtime_error "source: byte N: …" for text that is not JSON or not UTF-8, a name given
// twice, numbers that no double holds, and brackets nested deeper than max_depth; regard::cancelled where runtime.stop
// is requested, the only part of runtime that is used.
REGARD_EXPORT JsonValue read_json(std::string_view text, const std::string& source, Index max_depth = 64,
                                  const Runtime& runtime = {});

}  // namespace v0
}  // namespace regard
