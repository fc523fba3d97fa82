// SPDX-License-Identifier: Apache-2.0
//
// The header of a KvCache's block, written and read back, and the checks of shape and memory.
// Read next: format.h, kv_cache.cpp.
#include "format.h"

#include <algorithm>
#include <cstring>

#include "kernels/table.h"
#include "regard/error.h"

namespace regard::inline v0::internal {
namespace {

constexpr char kMagic[8] = {'R', 'E', 'G', 'A', 'R', 'D', 'K', 'V'};

// The code of a type in the header: its bytes in the low bits, and above them a number that distinguishes types of the
// same size.
struct StoredType {
  std::uint32_t number;
  ElementType type;
};
constexpr StoredType kStoredTypes[] = {{4, ElementType::float32},
                                       {8, ElementType::float64},
                                       {0x10002, ElementType::bfloat16},
                                       {2, ElementType::float16},
                                       {1, ElementType::int8}};
std::uint32_t stored_number(ElementType type) {
  return std::ranges::find(kStoredTypes, type, &StoredType::type)->number;
}
std::string type_text(std::uint32_t number) {
  for (const StoredType& type : kStoredTypes) {
    if (type.number == number) return type_name(type.type);
  }
  return "type " + std::to_string(number);
}

}  // namespace

void reject_cache_shape(const std::string& what) { throw InvalidArgument("KvCache: " + what); }

void reject_cache_bytes(Index offset, const std::string& what) {
  throw DataError("KvCache: byte " + std::to_string(offset) + ": " + what);
}

void check_cache_shape(const KvCacheShape& s) {
  const auto expect = [](const char* name, Index value, Index least) {
    if (value < least)
      reject_cache_shape(std::string(name) + " is " + std::to_string(value) + "; expected " + std::to_string(least) +
                         " or more");
  };
  expect("num_sequences", s.num_sequences, 0);
  expect("num_kv_heads", s.num_kv_heads, 1);
  expect("head_size", s.head_size, 1);
  expect("value_head_size", s.value_head_size, 1);
  expect("capacity", s.capacity, 1);
  expect("page_keys", s.page_keys, 0);
  expect("num_pages", s.num_pages, 0);
  if (s.page_keys % kernels::kPanel != 0)
    reject_cache_shape("page_keys is " + std::to_string(s.page_keys) + "; expected a multiple of " +
                       std::to_string(kernels::kPanel));
  if (s.page_keys == 0 && s.num_pages != 0)
    reject_cache_shape("num_pages is given without page_keys; a contiguous cache has one page per sequence");
  if (s.ring && s.page_keys != 0) reject_cache_shape("ring and page_keys are given; expected one of them");
}

void check_cache_alignment(std::span<const std::byte> memory) {
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % kCacheAlignment != 0)
    reject_cache_shape("memory is not aligned to " + std::to_string(kCacheAlignment) + " bytes");
}

void write_cache_header(const KvCacheShape& shape, ElementType type, std::byte* to) {
  CacheHeader header{};
  header.version = kKvCacheVersion;
  header.type = stored_number(type);
  write_fields(shape, header);
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(to, &header, sizeof header);
}

KvCacheShape read_cache_header(std::span<const std::byte> memory, ElementType type) {
  if (memory.size() < sizeof(CacheHeader)) reject_cache_bytes(0, "the header is truncated");
  check_cache_alignment(memory);
  CacheHeader header;
  std::memcpy(&header, memory.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) reject_cache_bytes(0, "not a key/value cache");
  if (header.version != kKvCacheVersion)
    reject_cache_bytes(8,
                       "version " + std::to_string(header.version) + "; expected " + std::to_string(kKvCacheVersion));
  if (header.type != stored_number(type))
    reject_cache_bytes(12, "holds " + type_text(header.type) + "; expected " + type_name(type));
  if (header.ring != 0 && header.ring != 1) reject_cache_bytes(72, "ring is neither 0 nor 1");
  return shape_of_fields(header);
}

}  // namespace regard::inline v0::internal
