// SPDX-License-Identifier: Apache-2.0
//
// Creates a KvCache, or opens and validates an existing one so that no missing panel is ever read; and implements
// append, truncate, fork and the lookup of panels. Everything is decided and checked before the first byte changes.
// Read next: format.h, block.h, block_checks.h, attention_decode.cpp.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "block.h"
#include "block_checks.h"
#include "format.h"
#include "instantiate.h"
#include "kernels/table.h"
#include "lock.h"
#include "regard/error.h"
#include "tensor/checks.h"

namespace regard::inline v0 {
namespace {

using internal::CacheHeader;
using internal::CacheWriting;
using internal::check_cache_alignment;
using internal::check_cache_shape;
using internal::checked_product;
using internal::checked_round_up;
using internal::checked_sum;
using internal::for_each_element;
using internal::kCacheAlignment;
using internal::read_cache_header;
using internal::reject_cache_bytes;
using internal::reject_cache_shape;
using internal::sequence_text;
using internal::write_cache_header;
using kernels::kPanel;

void check_sequence(const char* name, const KvCacheShape& shape, Index sequence) {
  if (sequence < 0 || sequence >= shape.num_sequences)
    internal::reject(
        name, "there is no " + sequence_text(sequence) + "; expected 0 to " + std::to_string(shape.num_sequences - 1));
}

// Fills in pieces of about a millisecond each; a stop request is checked between them.
template <class T>
void fill(T* first, Index count, T value, const std::stop_token& stop) {
  constexpr Index kPart = 1 << 20;
  for (Index at = 0; at < count; at += kPart) {
    throw_if_stopped(stop);
    std::fill_n(first + at, std::min(kPart, count - at), value);
  }
}

}  // namespace

template <class T>
KvCache<T>::KvCache() : state_(std::make_unique<State>()) {}
template <class T>
KvCache<T>::KvCache(KvCache&&) noexcept = default;
template <class T>
KvCache<T>& KvCache<T>::operator=(KvCache&&) noexcept = default;
template <class T>
KvCache<T>::~KvCache() = default;

template <class T>
typename KvCache<T>::Layout KvCache<T>::layout_of(const KvCacheShape& s) {
  Layout layout;
  const Index needed = checked_round_up(s.capacity, kPanel) / kPanel;
  // A ring's newest panel may be partially filled: the oldest whole panels must still be available.
  layout.sequence_panels = s.ring ? checked_sum(needed, 1) : needed;
  layout.page_panels = s.page_keys > 0 ? s.page_keys / kPanel : layout.sequence_panels;
  layout.num_pages = s.page_keys > 0 ? s.num_pages : s.num_sequences;
  layout.num_slots = checked_product(layout.num_pages, layout.page_panels);
  layout.padded_value_head_size = checked_round_up(s.value_head_size, kPanel);
  layout.head_elements = checked_product(checked_product(layout.page_panels, kPanel),
                                         checked_sum(s.head_size, layout.padded_value_head_size));
  Index at = checked_round_up(sizeof(CacheHeader), kCacheAlignment);
  const auto take = [&at](Index count, Index bytes_each) {
    const Index begin = at;
    at = checked_round_up(checked_sum(at, checked_product(count, bytes_each)), kCacheAlignment);
    return begin;
  };
  layout.lengths = take(s.num_sequences, sizeof(std::int64_t));
  layout.firsts = take(s.num_sequences, sizeof(std::int64_t));
  layout.table = take(checked_product(s.num_sequences, layout.sequence_panels), sizeof(std::int32_t));
  layout.panel_users = take(layout.num_slots, sizeof(std::int32_t));
  layout.page_users = take(layout.num_pages, sizeof(std::int32_t));
  layout.finite = take(checked_product(layout.num_slots, s.num_kv_heads), 1);
  layout.scales =
      take(checked_product(layout.num_slots, s.num_kv_heads), kQuantized ? 2 * kPanel * Index{sizeof(float)} : 0);
  layout.panels =
      take(checked_product(checked_product(layout.num_pages, s.num_kv_heads), layout.head_elements), sizeof(T));
  layout.bytes = at;
  return layout;
}

template <class T>
Index KvCache<T>::bytes(const KvCacheShape& shape) {
  check_cache_shape(shape);
  const Layout layout = layout_of(shape);
  // Applies even without pages, so that no extent of a panel can overflow.
  constexpr Index kMaxBytes = std::numeric_limits<Index>::max() / 1024;
  if (layout.bytes > kMaxBytes || layout.head_elements > kMaxBytes ||
      layout.num_slots > std::numeric_limits<std::int32_t>::max())
    reject_cache_shape(
        "a cache of this shape is too large for its size to be represented; expected fewer or smaller pages");
  return layout.bytes;
}

template <class T>
KvCache<T>::KvCache(const KvCacheShape& shape, const std::stop_token& stop) : KvCache() {
  state_->shape = shape;
  const std::size_t needed = static_cast<std::size_t>(bytes(shape));
  std::size_t space = needed + kCacheAlignment;
  // calloc gets zero pages from the system, which are materialized on first write. Creation is therefore fast, and
  // memory() of a saved cache does not expose earlier contents of the process.
  state_->owned.reset(static_cast<std::byte*>(std::calloc(space, 1)));
  if (state_->owned == nullptr) throw std::bad_alloc();
  void* aligned = state_->owned.get();
  std::align(kCacheAlignment, needed, aligned, space);
  format({static_cast<std::byte*>(aligned), space}, stop);
}

template <class T>
KvCache<T>::KvCache(const KvCacheShape& shape, std::span<std::byte> memory, const std::stop_token& stop) : KvCache() {
  state_->shape = shape;
  format(memory, stop);
}

template <class T>
void KvCache<T>::format(std::span<std::byte> memory, const std::stop_token& stop) {
  const KvCacheShape& shape = state_->shape;
  const Index needed = bytes(shape);
  if (static_cast<Index>(memory.size()) < needed)
    reject_cache_shape("memory has " + std::to_string(memory.size()) + " bytes; expected " + std::to_string(needed));
  check_cache_alignment(memory);
  state_->layout = layout_of(shape);
  state_->memory = memory.first(static_cast<std::size_t>(needed));
  const Block block = this->block();
  // Panels and their scales are written before they are read; only the sections before them are cleared.
  fill(state_->memory.data(), block.layout.scales, std::byte{0}, stop);
  write_cache_header(shape, kElementType<T>, state_->memory.data());
  fill(block.table(0), shape.num_sequences * block.layout.sequence_panels, std::int32_t{-1}, stop);
}

template <class T>
KvCache<T> KvCache<T>::open(std::span<std::byte> memory, const std::stop_token& stop) {
  KvCache cache;
  cache.state_->shape = read_cache_header(memory, kElementType<T>);
  Index needed = 0;
  try {
    needed = bytes(cache.state_->shape);
  } catch (const std::invalid_argument& error) {
    reject_cache_bytes(16, error.what());
  }
  if (static_cast<Index>(memory.size()) < needed)
    reject_cache_bytes(static_cast<Index>(memory.size()), "ends here; expected " + std::to_string(needed) + " bytes");
  cache.state_->layout = layout_of(cache.state_->shape);
  cache.state_->memory = memory.first(static_cast<std::size_t>(needed));

  // The records must be consistent, so that no missing panel is ever read.
  const Block block = cache.block();
  const Index num_sequences = cache.state_->shape.num_sequences;
  std::vector<std::int32_t> users(static_cast<std::size_t>(block.layout.num_slots), 0);
  for (Index s = 0; s < num_sequences; ++s) {
    internal::check_range(block, s);
    internal::check_table(block, s, users, stop);
  }
  for (Index s = 0; s < num_sequences; ++s) internal::check_unshared(block, s, users, stop);
  internal::check_users(block, users, stop);
  return cache;
}

template <class T>
const KvCacheShape& KvCache<T>::shape() const {
  return state_->shape;
}
template <class T>
std::span<const std::byte> KvCache<T>::memory() const {
  return state_->memory;
}
template <class T>
Index KvCache<T>::length(Index sequence) const {
  check_sequence("KvCache::length", state_->shape, sequence);
  return block().lengths()[sequence];
}
template <class T>
Index KvCache<T>::first_key(Index sequence) const {
  check_sequence("KvCache::first_key", state_->shape, sequence);
  return block().firsts()[sequence];
}
template <class T>
Index KvCache<T>::num_free_pages() const {
  return block().free_pages();
}

namespace {

template <class T, int Rank>
void check_view(const char* name, const InputView<Rank>& view, const typename InputView<Rank>::Shape& expected) {
  constexpr const char* kName = "KvCache::append";
  if (view.absent()) internal::reject(kName, std::string(name) + " is missing");
  if (view.shape != expected)
    internal::reject(kName, std::string(name) + " has shape " + internal::shape_text(view.shape) + "; expected " +
                                internal::shape_text(expected));
  internal::number_footprint<T>(kName, name, view);
}

// Checks for values that no scale can represent.
void check_finite(const char* name, const InputView<3>& view, const std::stop_token& stop) {
  for (Index h = 0; h < view.shape[0]; ++h) {
    for (Index i = 0; i < view.shape[1]; ++i) {
      throw_if_stopped(stop);
      for_each_element<float>(view, h, i, [&](Index d, auto element) {
        const float x(element);
        if (internal::is_finite(x)) return;
        internal::reject("KvCache::append", std::string(name) + internal::shape_text(std::array{h, i, d}) + " is " +
                                                (x > 0   ? "inf"
                                                 : x < 0 ? "-inf"
                                                         : "nan") +
                                                "; expected finite numbers in a cache of int8");
      });
    }
  }
}

// The stop token to check while a cache is written. Writes to a ring cannot be undone, so they do not check for a stop.
const std::stop_token& while_writing(const KvCacheShape& shape, const std::stop_token& stop) {
  static const std::stop_token never_stop;
  return shape.ring ? never_stop : stop;
}

// The first `count` rows of one sequence.
InputView<3> rows_of(const InputView<4>& view, Index sequence, Index count) {
  return {view.pointer(sequence, 0, 0, 0),
          view.type,
          {view.shape[1], count, view.shape[3]},
          {view.strides[1], view.strides[2], view.strides[3]}};
}

void check_pages(const char* name, Index needed, Index free) {
  if (needed > free)
    throw OutOfPages(std::string(name) + ": pages needed: " + std::to_string(needed) +
                     ", free: " + std::to_string(free) + "; truncate a sequence or create the cache with more pages");
}

void check_capacity(const KvCacheShape& shape, Index sequence, Index length, Index count) {
  const Index limit = shape.ring ? std::numeric_limits<Index>::max() / 4 : shape.capacity;
  if (count > limit - length)
    internal::reject("KvCache::append", sequence_text(sequence) + " holds " + std::to_string(length) + " keys, and " +
                                            std::to_string(count) + " more are given; its capacity is " +
                                            std::to_string(limit));
}

}  // namespace

template <class T>
void KvCache<T>::append(Index sequence, const InputView<3>& key, const InputView<3>& value,
                        const std::stop_token& stop) {
  const CacheWriting use("KvCache::append", state_->users);
  check_sequence("KvCache::append", state_->shape, sequence);
  const Index count = key.shape[1];
  check_view<ComputeType<T>>("key", key, {state_->shape.num_kv_heads, count, state_->shape.head_size});
  check_view<ComputeType<T>>("value", value, {state_->shape.num_kv_heads, count, state_->shape.value_head_size});
  if constexpr (kQuantized) {
    check_finite("key", key, stop);
    check_finite("value", value, stop);
  }
  const Block block = this->block();
  check_capacity(state_->shape, sequence, block.lengths()[sequence], count);
  const auto need = block.need(sequence, count);
  check_pages("KvCache::append", need.pages, block.free_pages());
  throw_if_stopped(stop);
  const auto before = block.take_pages(sequence, need);
  try {
    block.write(sequence, key, value, count, while_writing(state_->shape, stop));
  } catch (...) {
    block.put_back(sequence, before);
    throw;
  }
  block.grow(sequence, count);
}

template <class T>
void KvCache<T>::append(const InputView<4>& key, const InputView<4>& value, std::span<const Index> counts,
                        const std::stop_token& stop) {
  const CacheWriting use("KvCache::append", state_->users);
  const Index limit = key.shape[2];
  check_view<ComputeType<T>>("key", key,
                             {state_->shape.num_sequences, state_->shape.num_kv_heads, limit, state_->shape.head_size});
  check_view<ComputeType<T>>(
      "value", value, {state_->shape.num_sequences, state_->shape.num_kv_heads, limit, state_->shape.value_head_size});
  if (!counts.empty() && static_cast<Index>(counts.size()) != state_->shape.num_sequences)
    internal::reject("KvCache::append", "counts has " + internal::entries_text(static_cast<Index>(counts.size())) +
                                            "; expected " + std::to_string(state_->shape.num_sequences));
  const auto count_of = [&](Index s) { return counts.empty() ? limit : counts[static_cast<std::size_t>(s)]; };
  const Block block = this->block();
  Index pages = 0;
  for (Index s = 0; s < state_->shape.num_sequences; ++s) {
    if (count_of(s) < 0 || count_of(s) > limit)
      internal::reject("KvCache::append", "counts[" + std::to_string(s) + "] is " + std::to_string(count_of(s)) +
                                              "; expected 0 to " + std::to_string(limit));
    check_capacity(state_->shape, s, block.lengths()[s], count_of(s));
    // Earlier sequences that share the partially filled panel will have their own copy by then.
    Index gone = 0;
    for (Index before = 0; before < s && block.tail(s) >= 0; ++before)
      gone += count_of(before) > 0 && block.tail(before) == block.tail(s) ? 1 : 0;
    pages += block.need(s, count_of(s), gone).pages;
    if constexpr (kQuantized) {
      check_finite("key", rows_of(key, s, count_of(s)), stop);
      check_finite("value", rows_of(value, s, count_of(s)), stop);
    }
  }
  check_pages("KvCache::append", pages, block.free_pages());
  throw_if_stopped(stop);
  std::vector<typename Block::Entries> before;
  before.reserve(static_cast<std::size_t>(state_->shape.num_sequences));
  try {
    for (Index s = 0; s < state_->shape.num_sequences; ++s) {
      // need() is evaluated again: an earlier sequence may have stopped sharing a panel.
      before.push_back(block.take_pages(s, block.need(s, count_of(s))));
      block.write(s, rows_of(key, s, count_of(s)), rows_of(value, s, count_of(s)), count_of(s),
                  while_writing(state_->shape, stop));
    }
  } catch (...) {
    for (auto s = static_cast<Index>(before.size()); s-- > 0;) block.put_back(s, before[static_cast<std::size_t>(s)]);
    throw;
  }
  for (Index s = 0; s < state_->shape.num_sequences; ++s) block.grow(s, count_of(s));
}

template <class T>
void KvCache<T>::truncate(Index sequence, Index length) {
  const CacheWriting use("KvCache::truncate", state_->users);
  check_sequence("KvCache::truncate", state_->shape, sequence);
  const Block block = this->block();
  const Index first = block.firsts()[sequence];
  const Index limit = block.lengths()[sequence];
  if (length < 0 || length > limit || (length < first && length != 0))
    internal::reject("KvCache::truncate", "length is " + std::to_string(length) + "; " + sequence_text(sequence) +
                                              " has keys " + std::to_string(first) + " to " + std::to_string(limit) +
                                              (first > 0 ? ", and 0 empties it" : ""));
  std::int32_t* entries = block.table(sequence);
  block.lengths()[sequence] = length;
  if (length == 0) {
    block.firsts()[sequence] = 0;
    for (Index e = 0; e < block.layout.sequence_panels; ++e) block.leave(entries[e]);
  }
  if (state_->shape.ring) return;
  // The rest of the last page is kept if it has no other users.
  Index panel = checked_round_up(length, kPanel) / kPanel;
  const auto page_of = [&](std::int32_t slot) { return slot / block.layout.page_panels; };
  while (panel > 0 && panel < block.layout.sequence_panels && entries[panel] >= 0 &&
         page_of(entries[panel]) == page_of(entries[panel - 1]) && block.panel_users()[entries[panel]] == 1) {
    ++panel;
  }
  for (; panel < block.layout.sequence_panels; ++panel) block.leave(entries[panel]);
}

template <class T>
void KvCache<T>::fork(Index from, Index to) {
  const CacheWriting use("KvCache::fork", state_->users);
  check_sequence("KvCache::fork", state_->shape, from);
  check_sequence("KvCache::fork", state_->shape, to);
  if (state_->shape.ring)
    internal::reject("KvCache::fork", "a ring cannot share panels; expected a contiguous or paged cache");
  const Block block = this->block();
  if (from == to || block.lengths()[to] != 0)
    internal::reject("KvCache::fork", sequence_text(to) + " has " + std::to_string(block.lengths()[to]) +
                                          " keys; expected a different, empty sequence");
  const Index length = block.lengths()[from];
  const Index whole = length / kPanel;
  const bool rest = length % kPanel != 0;
  check_pages("KvCache::fork", rest ? 1 : 0, block.free_pages());
  std::int32_t* entries = block.table(to);
  // Taking pages allocates and may fail. Sharing cannot fail, so it comes last.
  if (rest) {
    block.take_pages(to, {whole, 1});
    block.copy_panel(block.table(from)[whole], entries[whole]);
  }
  for (Index panel = 0; panel < whole; ++panel) block.use(entries[panel], block.table(from)[panel]);
  block.lengths()[to] = length;
}

template <class T>
const T* KvCache<T>::key_panel(Index sequence, Index key_head, Index panel) const {
  const Block block = this->block();
  return block.keys(block.table(sequence)[block.entry(panel)], key_head);
}
template <class T>
const T* KvCache<T>::value_panel(Index sequence, Index key_head, Index panel) const {
  const Block block = this->block();
  return block.values(block.table(sequence)[block.entry(panel)], key_head);
}
template <class T>
const float* KvCache<T>::scales(Index sequence, Index key_head, Index panel) const {
  if constexpr (!kQuantized) return nullptr;
  const Block block = this->block();
  return block.scales(block.table(sequence)[block.entry(panel)], key_head);
}
template <class T>
bool KvCache<T>::values_finite(Index sequence, Index key_head, Index panel) const {
  const Block block = this->block();
  return block.finite(block.table(sequence)[block.entry(panel)])[key_head] != 0;
}

REGARD_INSTANTIATE_STORED_CLASS(class, KvCache);

}  // namespace regard::inline v0
