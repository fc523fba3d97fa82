// SPDX-License-Identifier: Apache-2.0
//
// The sections of a KvCache's memory block, and the records of which sequences use which panel.
//
//     header │ lengths │ first keys │ table │ panel users │ page users │ finite │ panels
//
//     table[sequence][panel] = slot: the panel of a page that holds these 32 keys, or −1
//     panels[page][head]     = keys [panels of a page][D][32], then values [panels of a page][⌈Dv/32⌉][32][32]
//
// A page taken by a sequence also reserves slots for its next panels: a sequence uses a slot if its table refers to it.
// Slots with several users are never written; a page without users is free.
// Read next: kv_cache.cpp, format.h (the header).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kernels/table.h"
#include "regard/kv_cache.h"
#include "runtime/parallel.h"
#include "tensor/checks.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0 {
namespace internal {

// Products and sums that saturate at the largest Index instead of overflowing.
inline Index checked_product(Index a, Index b) {
  Index product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<Index>::max() : product;
}
inline Index checked_sum(Index a, Index b) {
  Index sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<Index>::max() : sum;
}
inline Index checked_round_up(Index n, Index unit) { return checked_sum(n, unit - 1) / unit * unit; }

inline std::string sequence_text(Index sequence) { return "sequence " + std::to_string(sequence); }

// Calls use(d, element) for the elements of row i of head h, in their own type.
template <class T, class Use>
void for_each_element(const InputView<3>& view, Index h, Index i, Use use) {
  with_element_type<T>(view.type, [&]<class S>(S) {
    const S* row = static_cast<const S*>(view.pointer(h, i, 0));
    for (Index d = 0; d < view.shape[2]; ++d) use(d, read_element(row + d * view.strides[2]));
  });
}

}  // namespace internal

// The position of every section of the block, as byte offsets from its beginning.
template <class T>
struct KvCache<T>::Layout {
  Index page_panels = 0;      // panels of a page
  Index sequence_panels = 0;  // entries of a sequence in the table
  Index num_pages = 0;
  Index num_slots = 0;
  Index padded_value_head_size = 0;
  Index head_elements = 0;  // per head and page
  Index lengths = 0, firsts = 0, table = 0, panel_users = 0, page_users = 0, finite = 0, scales = 0, panels = 0,
        bytes = 0;
};

template <class T>
struct KvCache<T>::State {
  KvCacheShape shape;
  Layout layout;
  struct Free {
    void operator()(std::byte* owned_memory) const { std::free(owned_memory); }
  };
  std::unique_ptr<std::byte[], Free> owned;
  std::span<std::byte> memory;
  int users = 0;  // calls to attention_decode that are reading the cache; −1 if a thread is changing it
};

// Pointers to the sections of the block, computed from its beginning each time: a cache can be moved, so it keeps no
// pointers.
template <class T>
struct KvCache<T>::Block {
  const KvCacheShape& shape;
  const Layout& layout;
  std::byte* at;

  std::int64_t* lengths() const { return reinterpret_cast<std::int64_t*>(at + layout.lengths); }
  std::int64_t* firsts() const { return reinterpret_cast<std::int64_t*>(at + layout.firsts); }
  std::int32_t* table(Index sequence) const {
    return reinterpret_cast<std::int32_t*>(at + layout.table) + sequence * layout.sequence_panels;
  }
  std::int32_t* panel_users() const { return reinterpret_cast<std::int32_t*>(at + layout.panel_users); }
  std::int32_t* page_users() const { return reinterpret_cast<std::int32_t*>(at + layout.page_users); }
  std::uint8_t* finite(Index slot) const {
    return reinterpret_cast<std::uint8_t*>(at + layout.finite) + slot * shape.num_kv_heads;
  }
  float* scales(Index slot, Index key_head) const {
    return reinterpret_cast<float*>(at + layout.scales) + (slot * shape.num_kv_heads + key_head) * 2 * kernels::kPanel;
  }
  T* head(Index slot, Index key_head) const {
    return reinterpret_cast<T*>(at + layout.panels) +
           (slot / layout.page_panels * shape.num_kv_heads + key_head) * layout.head_elements;
  }
  T* keys(Index slot, Index key_head) const {
    return head(slot, key_head) + slot % layout.page_panels * shape.head_size * kernels::kPanel;
  }
  T* values(Index slot, Index key_head) const {
    return head(slot, key_head) + layout.page_panels * shape.head_size * kernels::kPanel +
           slot % layout.page_panels * layout.padded_value_head_size * kernels::kPanel;
  }
  // The index of a panel in the sequence's table.
  Index entry(Index panel) const { return shape.ring ? panel % layout.sequence_panels : panel; }

  void use(std::int32_t& entry_of_table, Index slot) const {
    entry_of_table = static_cast<std::int32_t>(slot);
    ++panel_users()[slot];
    ++page_users()[slot / layout.page_panels];
  }
  void leave(std::int32_t& entry_of_table) const {
    if (entry_of_table < 0) return;
    --panel_users()[entry_of_table];
    --page_users()[entry_of_table / layout.page_panels];
    entry_of_table = -1;
  }
  Index free_pages() const { return std::count(page_users(), page_users() + layout.num_pages, 0); }
  Index take_free_page() const { return std::find(page_users(), page_users() + layout.num_pages, 0) - page_users(); }

  // The first panel from `panel` on for which the sequence has no slot yet.
  Index slots_end(Index sequence, Index panel) const {
    const std::int32_t* entries = table(sequence);
    if (shape.ring) return entries[0] < 0 ? panel : std::numeric_limits<Index>::max();
    while (panel < layout.sequence_panels && entries[panel] >= 0) ++panel;
    return panel;
  }
  // The slot of the partially filled last panel, or −1.
  Index tail(Index sequence) const {
    const Index length = lengths()[sequence];
    return length % kernels::kPanel == 0 ? -1 : table(sequence)[entry(length / kernels::kPanel)];
  }
  // True if that slot has another user, so that it must be copied before it is written. gone: the number of its users
  // that will have stopped using it by then.
  bool tail_is_shared(Index sequence, Index gone = 0) const {
    const Index slot = tail(sequence);
    return slot >= 0 && panel_users()[slot] - gone > 1;
  }
  // The first panel for which `count` more keys need new pages, and the number of these pages.
  struct Need {
    Index first_panel;
    Index pages;
  };
  Need need(Index sequence, Index count, Index gone = 0) const {
    const Index length = lengths()[sequence];
    const Index first =
        tail_is_shared(sequence, gone)
            ? length / kernels::kPanel
            : slots_end(sequence, internal::checked_round_up(length, kernels::kPanel) / kernels::kPanel);
    if (count == 0) return {first, 0};
    const Index last = (length + count - 1) / kernels::kPanel;
    if (last < first) return {first, 0};
    return {first, shape.ring ? 1 : (last - first) / layout.page_panels + 1};
  }

  void copy_panel(Index from, Index to) const {
    for (Index h = 0; h < shape.num_kv_heads; ++h) {
      std::copy_n(keys(from, h), shape.head_size * kernels::kPanel, keys(to, h));
      std::copy_n(values(from, h), layout.padded_value_head_size * kernels::kPanel, values(to, h));
      if constexpr (kQuantized) std::copy_n(scales(from, h), 2 * kernels::kPanel, scales(to, h));
    }
    std::copy_n(finite(from), shape.num_kv_heads, finite(to));
  }

  // A section of a sequence's table.
  struct Entries {
    Index first_panel = 0;
    std::vector<std::int32_t> slots{};
  };
  // Gives the sequence the slots of new pages, from need().first_panel on. Returns the previous entries.
  Entries take_pages(Index sequence, const Need& wanted) const {
    std::int32_t* entries = table(sequence);
    const Index first = shape.ring ? 0 : wanted.first_panel;
    const Index end =
        std::min(internal::checked_sum(first, internal::checked_product(wanted.pages, layout.page_panels)),
                 layout.sequence_panels);
    Entries before{first, {entries + first, entries + std::max(first, end)}};
    const bool copy = wanted.pages > 0 && tail_is_shared(sequence);
    for (Index panel = first; panel < end;) {
      const Index page = take_free_page();
      for (Index i = 0; i < layout.page_panels && panel < end; ++i, ++panel) {
        leave(entries[panel]);
        use(entries[panel], page * layout.page_panels + i);
      }
    }
    if (copy) copy_panel(before.slots[0], entries[first]);
    return before;
  }
  // Undoes take_pages.
  void put_back(Index sequence, const Entries& before) const {
    std::int32_t* entry = table(sequence) + before.first_panel;
    for (const std::int32_t slot : before.slots) {
      leave(*entry);
      if (slot >= 0) use(*entry, slot);
      ++entry;
    }
  }

  // Writes `count` keys and values to the slot, starting at lane `lane`.
  void write_panel(Index slot, Index lane, Index count, const InputView<3>& key, const InputView<3>& value,
                   Index first) const {
    for (Index h = 0; h < shape.num_kv_heads; ++h) {
      T* const key_panel = keys(slot, h);
      T* const value_panel = values(slot, h);
      if constexpr (std::same_as<T, ComputeType<T>>) {
        if (lane == 0) {
          internal::with_rows<T>(batch_of(key), false, 0, h, first, [&](const auto& kernel, const auto& rows) {
            kernel.pack_keys(rows, count, shape.head_size, key_panel);
          });
          internal::with_rows<T>(batch_of(value), false, 0, h, first, [&](const auto& kernel, const auto& rows) {
            kernel.pack_values(rows, count, shape.value_head_size, value_panel, finite(slot) + h);
          });
          continue;
        }
      } else if (lane == 0) {
        std::fill_n(key_panel, shape.head_size * kernels::kPanel, T{});
        std::fill_n(value_panel, layout.padded_value_head_size * kernels::kPanel, T{});
        if constexpr (kQuantized) std::fill_n(scales(slot, h), 2 * kernels::kPanel, 0.0f);
        finite(slot)[h] = 1;
      }
      for (Index i = 0; i < count; ++i) {
        const Index row = lane + i;
        const auto key_place = [&](Index d) { return key_panel + d * kernels::kPanel + row; };
        const auto value_place = [&](Index c) {
          return value_panel + c / kernels::kPanel * kernels::kPanel * kernels::kPanel + row * kernels::kPanel +
                 c % kernels::kPanel;
        };
        if constexpr (kQuantized) {
          scales(slot, h)[row] = quantize(key, h, first + i, key_place);
          scales(slot, h)[kernels::kPanel + row] = quantize(value, h, first + i, value_place);
        } else {
          store_row(key, h, first + i, key_place);
          if (!store_row(value, h, first + i, value_place)) finite(slot)[h] = 0;
        }
      }
    }
  }
  static InputView<4> batch_of(const InputView<3>& view) {
    return {view.data,
            view.type,
            {1, view.shape[0], view.shape[1], view.shape[2]},
            {0, view.strides[0], view.strides[1], view.strides[2]}};
  }
  // Stores a row at the locations given by `place`, rounded to T if it has another type. Returns whether all of it is
  // finite.
  template <class Place>
  static bool store_row(const InputView<3>& from, Index h, Index i, const Place& place) {
    bool all_finite = true;
    internal::for_each_element<ComputeType<T>>(from, h, i, [&]<class S>(Index d, S x) {
      T stored;
      if constexpr (std::same_as<S, T>) {
        stored = x;  // preserves the bits of a NaN
      } else {
        stored = T(static_cast<ComputeType<T>>(x));
      }
      all_finite = all_finite && internal::is_finite(static_cast<ComputeType<T>>(stored));
      *place(d) = stored;
    });
    return all_finite;
  }
  // Writes round(x / scale) for a row and returns its scale. The quotient of two floats, computed in double, is never
  // rounded onto a tie; adding kShift, whose last place is one, rounds it to an integer. A subnormal scale may be too
  // small, hence the clamp.
  template <class Place>
  static float quantize(const InputView<3>& from, Index h, Index i, const Place& place) {
    float scale = 0;
    internal::for_each_element<ComputeType<T>>(from, h, i,
                                               [&](Index, auto x) { scale = std::max(scale, std::abs(float(x))); });
    scale /= 127;
    constexpr double kShift = 0x1.8p52;
    const double divisor = scale == 0 ? std::numeric_limits<double>::infinity() : static_cast<double>(scale);
    internal::for_each_element<ComputeType<T>>(from, h, i, [&](Index d, auto x) {
      const double steps = static_cast<double>(float(x)) / divisor + kShift - kShift;
      *place(d) = static_cast<std::int8_t>(static_cast<int>(std::clamp(steps, -127.0, 127.0)));
    });
    return scale;
  }

  // Writes `count` keys and values after the existing ones; grow() then makes them part of the sequence.
  void write(Index sequence, const InputView<3>& key, const InputView<3>& value, Index count,
             const std::stop_token& stop) const {
    const internal::FloatingPointScope rounds_to_nearest;
    Index length = lengths()[sequence];
    for (Index done = 0; done < count;) {
      throw_if_stopped(stop);
      const Index lane = length % kernels::kPanel;
      const Index step = std::min(kernels::kPanel - lane, count - done);
      write_panel(table(sequence)[entry(length / kernels::kPanel)], lane, step, key, value, done);
      done += step;
      length += step;
    }
  }
  void grow(Index sequence, Index count) const {
    const Index length = lengths()[sequence] + count;
    if (shape.ring && length > 0) {
      const Index gone = (length - 1) / kernels::kPanel - layout.sequence_panels + 1;
      firsts()[sequence] = std::max<Index>(firsts()[sequence], gone * kernels::kPanel);
    }
    lengths()[sequence] = length;
  }
};

template <class T>
typename KvCache<T>::Block KvCache<T>::block() const {
  return {state_->shape, state_->layout, state_->memory.data()};
}

}  // namespace regard::inline v0
