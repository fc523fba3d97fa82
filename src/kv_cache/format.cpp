// SPDX-License-Identifier: Apache-2.0
//
// How the block of a KvCache begins and how large its parts are: made new, or read back and checked, so that a panel is
// never read that is not there. Read next: block.h.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>

#include "block.h"
#include "kernels/table.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace {

using internal::checked_product;
using internal::checked_sum;
using internal::round_up;
using internal::sequence_text;
using kernels::kPanel;

constexpr char kMagic[8] = {'R', 'E', 'G', 'A', 'R', 'D', 'K', 'V'};
constexpr Index kAlignment = 64;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t type;
  std::int64_t num_sequences, num_kv_heads, head_size, value_head_size, capacity, page_keys, num_pages, ring;
};

// What the header calls a type: its bytes, and above them a number that tells types of as many bytes apart.
struct StoredType {
  std::uint32_t number;
  ElementType type;
};
constexpr StoredType kStoredTypes[] = {{4, ElementType::float32},
                                       {8, ElementType::float64},
                                       {0x10002, ElementType::bfloat16},
                                       {2, ElementType::float16},
                                       {1, ElementType::int8}};
template <class T>
constexpr std::uint32_t stored_number() {
  return std::ranges::find(kStoredTypes, kElementType<T>, &StoredType::type)->number;
}
std::string type_text(std::uint32_t number) {
  for (const StoredType& type : kStoredTypes) {
    if (type.number == number) return type_name(type.type);
  }
  return "type " + std::to_string(number);
}

[[noreturn]] void reject_shape(const std::string& what) { throw InvalidArgument("KvCache: " + what); }

[[noreturn]] void reject_bytes(Index offset, const std::string& what) {
  throw DataError("KvCache: byte " + std::to_string(offset) + ": " + what);
}

void check_shape(const KvCacheShape& s) {
  const auto expect = [](const char* name, Index value, Index least) {
    if (value < least)
      reject_shape(std::string(name) + " is " + std::to_string(value) + "; expected " + std::to_string(least) +
                   " or more");
  };
  expect("num_sequences", s.num_sequences, 0);
  expect("num_kv_heads", s.num_kv_heads, 1);
  expect("head_size", s.head_size, 1);
  expect("value_head_size", s.value_head_size, 1);
  expect("capacity", s.capacity, 1);
  expect("page_keys", s.page_keys, 0);
  expect("num_pages", s.num_pages, 0);
  if (s.page_keys % kPanel != 0)
    reject_shape("page_keys is " + std::to_string(s.page_keys) + "; expected a multiple of " + std::to_string(kPanel));
  if (s.page_keys == 0 && s.num_pages != 0)
    reject_shape("num_pages is given without page_keys; a contiguous cache has a page for each sequence");
  if (s.ring && s.page_keys != 0) reject_shape("ring and page_keys are given; expected one of them");
}

// In parts of about a millisecond, between which a stop ends the work.
template <class T>
void fill(T* first, Index count, T value, const Runtime& runtime) {
  constexpr Index kPart = 1 << 20;
  for (Index at = 0; at < count; at += kPart) {
    throw_if_stopped(runtime.stop);
    std::fill_n(first + at, std::min(kPart, count - at), value);
  }
}

void check_aligned(std::span<const std::byte> memory) {
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment != 0)
    reject_shape("memory is not aligned to " + std::to_string(kAlignment) + " bytes");
}

}  // namespace

template <class T>
typename KvCache<T>::Layout KvCache<T>::layout_of(const KvCacheShape& s) {
  Layout layout;
  const Index needed = round_up(s.capacity, kPanel) / kPanel;
  // A ring's newest panel may be half full: the oldest whole ones must still be there.
  layout.sequence_panels = s.ring ? checked_sum(needed, 1) : needed;
  layout.page_panels = s.page_keys > 0 ? s.page_keys / kPanel : layout.sequence_panels;
  layout.num_pages = s.page_keys > 0 ? s.num_pages : s.num_sequences;
  layout.num_slots = checked_product(layout.num_pages, layout.page_panels);
  layout.padded_value_head_size = round_up(s.value_head_size, kPanel);
  layout.head_elements = checked_product(checked_product(layout.page_panels, kPanel),
                                         checked_sum(s.head_size, layout.padded_value_head_size));
  Index at = round_up(sizeof(Header), kAlignment);
  const auto take = [&at](Index count, Index bytes_each) {
    const Index begin = at;
    at = round_up(checked_sum(at, checked_product(count, bytes_each)), kAlignment);
    return begin;
  };
  layout.lengths = take(s.num_sequences, sizeof(std::int64_t));
  layout.firsts = take(s.num_sequences, sizeof(std::int64_t));
  layout.table = take(checked_product(s.num_sequences, layout.sequence_panels), sizeof(std::int32_t));
  layout.panel_users = take(layout.num_slots, sizeof(std::int32_t));
  layout.page_users = take(layout.num_pages, sizeof(std::int32_t));
  layout.finite = take(checked_product(layout.num_slots, s.num_kv_heads), 1);
  layout.scales =
      take(checked_product(layout.num_slots, s.num_kv_heads), kQuantised ? 2 * kPanel * Index{sizeof(float)} : 0);
  layout.panels =
      take(checked_product(checked_product(layout.num_pages, s.num_kv_heads), layout.head_elements), sizeof(T));
  layout.bytes = at;
  return layout;
}

template <class T>
Index KvCache<T>::bytes(const KvCacheShape& shape) {
  check_shape(shape);
  const Layout layout = layout_of(shape);
  // Also where there are no pages yet, so that no extent of a panel is beyond counting.
  constexpr Index kMaxBytes = std::numeric_limits<Index>::max() / 1024;
  if (layout.bytes > kMaxBytes || layout.head_elements > kMaxBytes ||
      layout.num_slots > std::numeric_limits<std::int32_t>::max())
    reject_shape("a cache of this shape has more bytes or panels than can be counted; expected fewer or smaller pages");
  return layout.bytes;
}

template <class T>
KvCache<T>::KvCache(const KvCacheShape& shape, const Runtime& runtime) : KvCache() {
  state_->shape = shape;
  const std::size_t needed = static_cast<std::size_t>(bytes(shape));
  std::size_t space = needed + kAlignment;
  // Zeros that the system hands out as they are written to: nobody waits for them here, and memory() of a cache that is
  // saved shows nothing of what the process held before.
  state_->owned.reset(static_cast<std::byte*>(std::calloc(space, 1)));
  if (state_->owned == nullptr) throw std::bad_alloc();
  void* aligned = state_->owned.get();
  std::align(kAlignment, needed, aligned, space);
  format({static_cast<std::byte*>(aligned), space}, runtime);
}

template <class T>
KvCache<T>::KvCache(const KvCacheShape& shape, std::span<std::byte> memory, const Runtime& runtime) : KvCache() {
  state_->shape = shape;
  format(memory, runtime);
}

template <class T>
void KvCache<T>::format(std::span<std::byte> memory, const Runtime& runtime) {
  const KvCacheShape& shape = state_->shape;
  const Index needed = bytes(shape);
  if (static_cast<Index>(memory.size()) < needed)
    reject_shape("memory has " + std::to_string(memory.size()) + " bytes; expected " + std::to_string(needed));
  check_aligned(memory);
  state_->layout = layout_of(shape);
  state_->memory = memory.first(static_cast<std::size_t>(needed));
  Header header{.magic = {},
                .version = kKvCacheVersion,
                .type = stored_number<T>(),
                .num_sequences = shape.num_sequences,
                .num_kv_heads = shape.num_kv_heads,
                .head_size = shape.head_size,
                .value_head_size = shape.value_head_size,
                .capacity = shape.capacity,
                .page_keys = shape.page_keys,
                .num_pages = shape.num_pages,
                .ring = shape.ring ? 1 : 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  const Block block = this->block();
  // Panels and their scales are written before they are read; everything before them is the book.
  fill(state_->memory.data(), block.layout.scales, std::byte{0}, runtime);
  std::memcpy(state_->memory.data(), &header, sizeof header);
  fill(block.table(0), shape.num_sequences * block.layout.sequence_panels, std::int32_t{-1}, runtime);
}

template <class T>
KvCache<T> KvCache<T>::open(std::span<std::byte> memory, const Runtime& runtime) {
  if (memory.size() < sizeof(Header)) reject_bytes(0, "ends within the header");
  check_aligned(memory);
  Header header;
  std::memcpy(&header, memory.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) reject_bytes(0, "is no key/value cache");
  if (header.version != kKvCacheVersion)
    reject_bytes(8, "version " + std::to_string(header.version) + "; expected " + std::to_string(kKvCacheVersion));
  if (header.type != stored_number<T>())
    reject_bytes(12, "holds " + type_text(header.type) + "; expected " + type_name(kElementType<T>));
  if (header.ring != 0 && header.ring != 1) reject_bytes(72, "ring is neither 0 nor 1");
  KvCache cache;
  cache.state_->shape = {.num_sequences = header.num_sequences,
                         .num_kv_heads = header.num_kv_heads,
                         .head_size = header.head_size,
                         .value_head_size = header.value_head_size,
                         .capacity = header.capacity,
                         .page_keys = header.page_keys,
                         .num_pages = header.num_pages,
                         .ring = header.ring == 1};
  Index needed = 0;
  try {
    needed = bytes(cache.state_->shape);
  } catch (const std::invalid_argument& error) {
    reject_bytes(16, error.what());
  }
  if (static_cast<Index>(memory.size()) < needed)
    reject_bytes(static_cast<Index>(memory.size()), "ends here; expected " + std::to_string(needed) + " bytes");
  cache.state_->layout = layout_of(cache.state_->shape);
  cache.state_->memory = memory.first(static_cast<std::size_t>(needed));

  // The book must agree with itself: then no panel is read that is not there.
  const Block block = cache.block();
  const Layout& layout = block.layout;
  std::vector<std::int32_t> users(static_cast<std::size_t>(layout.num_slots), 0);
  for (Index s = 0; s < cache.state_->shape.num_sequences; ++s) {
    const Index length = block.lengths()[s];
    const Index first = block.firsts()[s];
    const auto here = [&](Index offset) { return offset + s * static_cast<Index>(sizeof(std::int64_t)); };
    const bool fits = cache.state_->shape.ring ? length < std::numeric_limits<Index>::max() / 2
                                               : length <= cache.state_->shape.capacity;
    if (length < 0 || !fits) reject_bytes(here(layout.lengths), sequence_text(s) + " has an impossible length");
    const Index last = length > 0 ? (length - 1) / kPanel : -1;
    if (first < 0 || first > length || first % kPanel != 0 || (!cache.state_->shape.ring && first != 0) ||
        last - first / kPanel >= layout.sequence_panels)
      reject_bytes(here(layout.firsts), sequence_text(s) + " has an impossible first key");
    for (Index e = 0; e < layout.sequence_panels; ++e) {
      throw_if_stopped(runtime.stop);
      const std::int32_t slot = block.table(s)[e];
      const Index offset = layout.table + (s * layout.sequence_panels + e) * static_cast<Index>(sizeof(std::int32_t));
      if (slot < -1 || slot >= layout.num_slots) reject_bytes(offset, "there is no slot " + std::to_string(slot));
      if (slot >= 0) ++users[static_cast<std::size_t>(slot)];
    }
    for (Index panel = first / kPanel; panel <= last; ++panel) {
      if (block.table(s)[block.entry(panel)] < 0) reject_bytes(layout.table, sequence_text(s) + " lacks a panel");
    }
    const std::span entries(block.table(s), static_cast<std::size_t>(layout.sequence_panels));
    const auto has_slot = [](std::int32_t slot) { return slot >= 0; };
    if (length == 0 && std::ranges::any_of(entries, has_slot))
      reject_bytes(layout.table, sequence_text(s) + " is empty and has panels");
    if (cache.state_->shape.ring && length > 0 && !std::ranges::all_of(entries, has_slot))
      reject_bytes(layout.table, sequence_text(s) + " lacks a panel of its ring");
  }
  // Panels that are still to be written have one user: all of a ring, and those past the last of any other sequence.
  for (Index s = 0; s < cache.state_->shape.num_sequences; ++s) {
    const Index written = cache.state_->shape.ring ? 0 : round_up(block.lengths()[s], kPanel) / kPanel;
    for (Index e = written; e < layout.sequence_panels; ++e) {
      throw_if_stopped(runtime.stop);
      const std::int32_t slot = block.table(s)[e];
      if (slot >= 0 && users[static_cast<std::size_t>(slot)] > 1)
        reject_bytes(layout.table,
                     sequence_text(s) + " shares panel " + std::to_string(slot) + ", which it will write");
    }
  }
  for (Index page = 0; page < layout.num_pages; ++page) {
    std::int64_t all = 0;
    for (Index i = 0; i < layout.page_panels; ++i) {
      throw_if_stopped(runtime.stop);
      const Index slot = page * layout.page_panels + i;
      all += users[static_cast<std::size_t>(slot)];
      if (block.panel_users()[slot] != users[static_cast<std::size_t>(slot)])
        reject_bytes(layout.panel_users, "panel " + std::to_string(slot) + " has other users than the table says");
    }
    if (block.page_users()[page] != all)
      reject_bytes(layout.page_users, "page " + std::to_string(page) + " has other users than the table says");
  }
  return cache;
}

template Index KvCache<float>::bytes(const KvCacheShape&);
template KvCache<float>::KvCache(const KvCacheShape&, const Runtime&);
template KvCache<float>::KvCache(const KvCacheShape&, std::span<std::byte>, const Runtime&);
template KvCache<float> KvCache<float>::open(std::span<std::byte>, const Runtime&);
template Index KvCache<double>::bytes(const KvCacheShape&);
template KvCache<double>::KvCache(const KvCacheShape&, const Runtime&);
template KvCache<double>::KvCache(const KvCacheShape&, std::span<std::byte>, const Runtime&);
template KvCache<double> KvCache<double>::open(std::span<std::byte>, const Runtime&);
template Index KvCache<bfloat16>::bytes(const KvCacheShape&);
template KvCache<bfloat16>::KvCache(const KvCacheShape&, const Runtime&);
template KvCache<bfloat16>::KvCache(const KvCacheShape&, std::span<std::byte>, const Runtime&);
template KvCache<bfloat16> KvCache<bfloat16>::open(std::span<std::byte>, const Runtime&);
template Index KvCache<float16>::bytes(const KvCacheShape&);
template KvCache<float16>::KvCache(const KvCacheShape&, const Runtime&);
template KvCache<float16>::KvCache(const KvCacheShape&, std::span<std::byte>, const Runtime&);
template KvCache<float16> KvCache<float16>::open(std::span<std::byte>, const Runtime&);
template Index KvCache<std::int8_t>::bytes(const KvCacheShape&);
template KvCache<std::int8_t>::KvCache(const KvCacheShape&, const Runtime&);
template KvCache<std::int8_t>::KvCache(const KvCacheShape&, std::span<std::byte>, const Runtime&);
template KvCache<std::int8_t> KvCache<std::int8_t>::open(std::span<std::byte>, const Runtime&);

}  // namespace regard::inline v0
