// SPDX-License-Identifier: Apache-2.0
//
// The beginning of a KvCache's block, for any element type: the header, and the checks of shapes and memory.
// Read next: format.cpp, block.h (what follows the header).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "regard/kv_cache.h"

namespace regard::inline v0::internal {

inline constexpr Index kCacheAlignment = 64;

struct CacheHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t type;
  std::int64_t num_sequences, num_kv_heads, head_size, value_head_size, capacity, page_keys, num_pages, ring;
};

// Reads a shape from the integer fields of the same names in a struct: the header, or the struct of the C interface.
template <class Fields>
KvCacheShape shape_of_fields(const Fields& fields) {
  return {.num_sequences = fields.num_sequences,
          .num_kv_heads = fields.num_kv_heads,
          .head_size = fields.head_size,
          .value_head_size = fields.value_head_size,
          .capacity = fields.capacity,
          .page_keys = fields.page_keys,
          .num_pages = fields.num_pages,
          .ring = fields.ring == 1};
}
template <class Fields>
void write_fields(const KvCacheShape& shape, Fields& to) {
  to.num_sequences = shape.num_sequences;
  to.num_kv_heads = shape.num_kv_heads;
  to.head_size = shape.head_size;
  to.value_head_size = shape.value_head_size;
  to.capacity = shape.capacity;
  to.page_keys = shape.page_keys;
  to.num_pages = shape.num_pages;
  to.ring = shape.ring ? 1 : 0;
}

[[noreturn]] void reject_cache_shape(const std::string& what);                // throws std::invalid_argument
[[noreturn]] void reject_cache_bytes(Index offset, const std::string& what);  // throws DataError

// Throws std::invalid_argument for an invalid shape.
void check_cache_shape(const KvCacheShape& shape);
// Throws std::invalid_argument for memory that is not aligned to kCacheAlignment.
void check_cache_alignment(std::span<const std::byte> memory);

void write_cache_header(const KvCacheShape& shape, ElementType type, std::byte* to);
// Throws DataError unless the memory begins with a header of this type and version.
KvCacheShape read_cache_header(std::span<const std::byte> memory, ElementType type);

}  // namespace regard::inline v0::internal
