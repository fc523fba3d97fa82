// SPDX-License-Identifier: Apache-2.0
/// @file
/// A sorted index of names that come from a file, for finding names and duplicates.
///
/// @verbatim
///     names        b  a  b  c
///     positions    0  1  2  3      sorted: 1 (a)  0 (b)  2 (b)  3 (c)
/// @endverbatim
///
/// A hash table takes quadratic time for names chosen to have equal hashes. Sorting takes O(n log n) comparisons for
/// any names. For this reason, neither the library nor the program uses a hash table.
///
/// Read next: src/io/json.cpp, src/model/tokenizer/tokenizer_json.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "regard/runtime.h"

namespace regard::inline v0 {

/// Names, sorted by their bytes, each with its position in the original order.
///
/// @par Example
/// @code{.cpp}
/// const std::vector<std::string> all{"b", "a", "b", "c"};
/// const SortedNames names(all.size(), [&](std::size_t i) { return std::string_view(all[i]); }, "reading", {});
/// names.find("b");         // 0
/// names.first_repeated();  // 2
/// @endcode
class SortedNames {
 public:
  /// Memory that the index takes for each name, in bytes.
  static constexpr std::uint64_t kBytesPerName = 32;

  /// Creates an empty index.
  SortedNames() = default;
  /// Sorts the names. The index keeps views of them, so the names must outlive it.
  ///
  /// @tparam NameAt    A callable that takes a position (std::size_t) and returns a std::string_view.
  /// @param count      Number of names.
  /// @param name_at    Returns the name at a position from 0 to count − 1.
  /// @param operation  Name of the operation, for the message of Cancelled.
  /// @param stop       Stop token, polled while the names are sorted.
  /// @throws Cancelled  if a stop is requested. The message names the operation.
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

  /// Finds the first duplicate: the smallest position whose name also occurs at a smaller position.
  ///
  /// @return The position, or std::nullopt if all names are distinct.
  std::optional<std::size_t> first_repeated() const {
    std::optional<std::size_t> first;
    for (std::size_t i = 1; i < names_.size(); ++i) {
      if (names_[i].text == names_[i - 1].text && (!first || names_[i].position < *first)) first = names_[i].position;
    }
    return first;
  }

  /// Returns the position of the i-th name in sorted order.
  ///
  /// @param i  Zero-based rank of the name.
  /// @return The position of the name in the original order.
  std::size_t position(std::size_t i) const { return names_[i].position; }

  /// Finds a name by binary search.
  ///
  /// @param text  The name.
  /// @return The first position of the name, or std::nullopt if the name does not occur.
  std::optional<std::size_t> find(std::string_view text) const {
    const auto at = std::lower_bound(names_.begin(), names_.end(), text,
                                     [](const Name& name, std::string_view other) { return name.text < other; });
    if (at == names_.end() || at->text != text) return std::nullopt;
    return at->position;
  }

 private:
  // A name shorter than 8 bytes is padded with zeros. Names with equal fronts (one may itself end in zeros) are
  // compared as a whole.
  static std::uint64_t front_of(std::string_view name) {
    std::uint64_t front = 0;
    for (std::size_t i = 0; i < sizeof front; ++i)
      front = front << 8 | (i < name.size() ? static_cast<unsigned char>(name[i]) : 0);
    return front;
  }

  struct Name {
    std::uint64_t front;  // the first 8 bytes, big-endian: most names already differ here
    std::string_view text;
    std::size_t position;
  };
  std::vector<Name> names_;
};

}  // namespace regard::inline v0
