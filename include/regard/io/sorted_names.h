// SPDX-License-Identifier: Apache-2.0
//
// Names from a file, sorted: a hash table takes quadratic time for names that are chosen to have the same hash, sorting
// takes n log n comparisons whatever they are. For that reason the library and the program have no hash table.
//
//     names        b  a  b  c
//     positions    0  1  2  3      sorted: 1 (a)  0 (b)  2 (b)  3 (c)
//
// Read next: src/io/json.cpp, src/model/tokenizer/tokenizer_json.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "regard/runtime.h"

namespace regard::inline v0 {

class SortedNames {
 public:
  // What names take here, each.
  static constexpr std::uint64_t kBytesPerName = 32;

  SortedNames() = default;
  // The views are kept. Throws Cancelled, naming the operation, where a stop is requested.
  template <class NameAt>
  SortedNames(std::size_t count, const NameAt& name_at, std::string_view operation, const std::stop_token& stop) {
    names_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) names_.push_back({front_of(name_at(i)), name_at(i), i});
    std::sort(names_.begin(), names_.end(), [&](const Name& a, const Name& b) {
      throw_if_stopped(stop, operation);
      if (a.front != b.front) return a.front < b.front;
      const int order = a.text.compare(b.text);
      return order != 0 ? order < 0 : a.position < b.position;
    });
  }

  // The smallest position whose name is at a smaller one, too.
  std::optional<std::size_t> first_repeated() const {
    std::optional<std::size_t> first;
    for (std::size_t i = 1; i < names_.size(); ++i) {
      if (names_[i].text == names_[i - 1].text && (!first || names_[i].position < *first)) first = names_[i].position;
    }
    return first;
  }

  // The i-th of the sorted names: its position.
  std::size_t position(std::size_t i) const { return names_[i].position; }

  // The first position of a name.
  std::optional<std::size_t> find(std::string_view text) const {
    const auto at = std::lower_bound(names_.begin(), names_.end(), text,
                                     [](const Name& name, std::string_view other) { return name.text < other; });
    if (at == names_.end() || at->text != text) return std::nullopt;
    return at->position;
  }

 private:
  // A name that ends earlier has zeros behind it, and is compared as a whole with one that has zeros of its own.
  static std::uint64_t front_of(std::string_view name) {
    std::uint64_t front = 0;
    for (std::size_t i = 0; i < sizeof front; ++i)
      front = front << 8 | (i < name.size() ? static_cast<unsigned char>(name[i]) : 0);
    return front;
  }

  struct Name {
    std::uint64_t front;  // the first 8 bytes, of which the first counts most: most names differ there
    std::string_view text;
    std::size_t position;
  };
  std::vector<Name> names_;
};

}  // namespace regard::inline v0
