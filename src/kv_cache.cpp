// SPDX-License-Identifier: Apache-2.0
//
// The block of a KvCache: its layout, and the book of who uses which panel.
//
//     header │ lengths │ first keys │ table │ panel users │ page users │ finite │ panels
//
//     table[sequence][panel] = slot: the panel of a page that holds these 32 keys, or −1
//     panels[page][head]     = keys [panels of a page][D][32], then values [panels of a page][⌈Dv/32⌉][32][32]
//
// A page taken by a sequence gives it slots for the panels to come, too: a sequence uses a slot when its table names
// it. Slots of several users are never written; a page without users is free. Everything is decided and checked
// before the first byte changes. Read next: attention_decode.cpp.
#include "regard/kv_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>

#include "attention_arguments.h"
#include "kernels/table.h"
#include "number_rows.h"
#include "parallel.h"

namespace regard {
inline namespace v0 {
namespace {

using kernels::kPanel;

constexpr char kMagic[8] = {'R', 'E', 'G', 'A', 'R', 'D', 'K', 'V'};
constexpr Index kAlignment = 64;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t type;
  std::int64_t num_sequences, num_key_heads, depth, columns, capacity, page_keys, num_pages, ring;
};

// What the header calls a type: its bytes, and above them a number that tells types of as many bytes apart.
struct StoredType {
  std::uint32_t number;
  const char* name;
};
constexpr StoredType kStoredTypes[] = {
    {4, "float32"}, {8, "float64"}, {0x10002, "bfloat16"}, {2, "float16"}, {1, "int8"}};
template <class T>
constexpr StoredType stored_type() {
  if constexpr (std::same_as<T, std::int8_t>) {
    return kStoredTypes[4];
  } else {
    return kStoredTypes[static_cast<int>(kElementType<T>)];
  }
}
std::string type_text(std::uint32_t number) {
  for (const StoredType& type : kStoredTypes) {
    if (type.number == number) return type.name;
  }
  return "type " + std::to_string(number);
}

[[noreturn]] void refuse_shape(const std::string& what) { throw std::invalid_argument("KvCache: " + what); }

// Sums and products that stop at the largest Index instead of passing it.
Index checked_product(Index a, Index b) {
  Index product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<Index>::max() : product;
}
Index checked_sum(Index a, Index b) {
  Index sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<Index>::max() : sum;
}
Index round_up(Index n, Index unit) { return checked_sum(n, unit - 1) / unit * unit; }

void check_shape(const KvCacheShape& s) {
  const auto expect = [](const char* name, Index value, Index least) {
    if (value < least)
      refuse_shape(std::string(name) + " is " + std::to_string(value) + "; expected " + std::to_string(least) +
                   " or more");
  };
  expect("num_sequences", s.num_sequences, 0);
  expect("num_key_heads", s.num_key_heads, 1);
  expect("depth", s.depth, 1);
  expect("columns", s.columns, 1);
  expect("capacity", s.capacity, 1);
  expect("page_keys", s.page_keys, 0);
  expect("num_pages", s.num_pages, 0);
  if (s.page_keys % kPanel != 0)
    refuse_shape("page_keys is " + std::to_string(s.page_keys) + "; expected a multiple of " + std::to_string(kPanel));
  if (s.page_keys == 0 && s.num_pages != 0)
    refuse_shape("num_pages is given without page_keys; a contiguous cache has a page for each sequence");
  if (s.ring && s.page_keys != 0) refuse_shape("ring and page_keys are given; expected one of them");
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
  layout.padded_columns = round_up(s.columns, kPanel);
  layout.head_elements =
      checked_product(checked_product(layout.page_panels, kPanel), checked_sum(s.depth, layout.padded_columns));
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
  layout.finite = take(checked_product(layout.num_slots, s.num_key_heads), 1);
  layout.scales =
      take(checked_product(layout.num_slots, s.num_key_heads), kQuantised ? 2 * kPanel * Index{sizeof(float)} : 0);
  layout.panels =
      take(checked_product(checked_product(layout.num_pages, s.num_key_heads), layout.head_elements), sizeof(T));
  layout.bytes = at;
  return layout;
}

namespace {

// Calls use(d, number) for the numbers of row i of head h.
template <class Use>
void for_each_number(const InputView<float, 3>& view, Index h, Index i, Use use) {
  internal::with_element_type<float>(view.type, [&]<class S>(S) {
    const S* row = static_cast<const S*>(view.pointer(h, i, 0));
    for (Index d = 0; d < view.shape[2]; ++d)
      use(d, static_cast<float>(internal::read_element(row + d * view.strides[2])));
  });
}

}  // namespace

// The parts of the block, found anew from its beginning: a cache that moves keeps no pointers.
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
    return reinterpret_cast<std::uint8_t*>(at + layout.finite) + slot * shape.num_key_heads;
  }
  float* scales(Index slot, Index key_head) const {
    return reinterpret_cast<float*>(at + layout.scales) + (slot * shape.num_key_heads + key_head) * 2 * kPanel;
  }
  T* head(Index slot, Index key_head) const {
    return reinterpret_cast<T*>(at + layout.panels) +
           (slot / layout.page_panels * shape.num_key_heads + key_head) * layout.head_elements;
  }
  T* keys(Index slot, Index key_head) const {
    return head(slot, key_head) + slot % layout.page_panels * shape.depth * kPanel;
  }
  T* values(Index slot, Index key_head) const {
    return head(slot, key_head) + layout.page_panels * shape.depth * kPanel +
           slot % layout.page_panels * layout.padded_columns * kPanel;
  }
  // The place of a panel in the table.
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
  // Whether the half-filled last panel has another user, so that it must be copied before it is written.
  bool tail_is_shared(Index sequence) const {
    const Index length = lengths()[sequence];
    return length % kPanel != 0 && panel_users()[table(sequence)[entry(length / kPanel)]] > 1;
  }
  // The panel from which on `count` more keys need new pages, and how many.
  struct Need {
    Index first_panel;
    Index pages;
  };
  Need need(Index sequence, Index count) const {
    const Index length = lengths()[sequence];
    const Index first =
        tail_is_shared(sequence) ? length / kPanel : slots_end(sequence, round_up(length, kPanel) / kPanel);
    if (count == 0) return {first, 0};
    const Index last = (length + count - 1) / kPanel;
    if (last < first) return {first, 0};
    return {first, shape.ring ? 1 : (last - first) / layout.page_panels + 1};
  }

  void copy_panel(Index from, Index to) const {
    for (Index h = 0; h < shape.num_key_heads; ++h) {
      std::copy_n(keys(from, h), shape.depth * kPanel, keys(to, h));
      std::copy_n(values(from, h), layout.padded_columns * kPanel, values(to, h));
      if constexpr (kQuantised) std::copy_n(scales(from, h), 2 * kPanel, scales(to, h));
    }
    std::copy_n(finite(from), shape.num_key_heads, finite(to));
  }

  // Gives the sequence the slots of new pages, from need().first_panel on.
  void take_pages(Index sequence, const Need& wanted) const {
    std::int32_t* entries = table(sequence);
    const bool copy = wanted.pages > 0 && tail_is_shared(sequence);
    const Index shared = copy ? entries[wanted.first_panel] : -1;
    Index panel = shape.ring ? 0 : wanted.first_panel;
    for (Index n = 0; n < wanted.pages; ++n) {
      const Index page = take_free_page();
      for (Index i = 0; i < layout.page_panels && panel < layout.sequence_panels; ++i, ++panel) {
        leave(entries[panel]);
        use(entries[panel], page * layout.page_panels + i);
      }
    }
    if (copy) copy_panel(shared, entries[wanted.first_panel]);
  }

  // Writes `count` keys and values from lane `lane` of the slot on.
  void write_panel(Index slot, Index lane, Index count, const Given<3>& key, const Given<3>& value, Index first) const {
    for (Index h = 0; h < shape.num_key_heads; ++h) {
      T* const key_panel = keys(slot, h);
      T* const value_panel = values(slot, h);
      if constexpr (std::same_as<T, float> || std::same_as<T, double>) {
        if (lane == 0) {
          const auto& kernel = kernels::active().template of<T>();
          kernel.pack_keys({key.pointer(h, first, 0), key.strides[1], key.strides[2]}, count, shape.depth, key_panel);
          kernel.pack_values({value.pointer(h, first, 0), value.strides[1], value.strides[2]}, count, shape.columns,
                             value_panel, finite(slot) + h);
          continue;
        }
      } else if (lane == 0) {
        std::fill_n(key_panel, shape.depth * kPanel, T{});
        std::fill_n(value_panel, layout.padded_columns * kPanel, T{});
        if constexpr (kQuantised) std::fill_n(scales(slot, h), 2 * kPanel, 0.0f);
        finite(slot)[h] = 1;
      }
      for (Index i = 0; i < count; ++i) {
        const Index row = lane + i;
        const auto key_place = [&](Index d) { return key_panel + d * kPanel + row; };
        const auto value_place = [&](Index c) {
          return value_panel + c / kPanel * kPanel * kPanel + row * kPanel + c % kPanel;
        };
        if constexpr (kQuantised) {
          scales(slot, h)[row] = quantise(key, h, first + i, key_place);
          scales(slot, h)[kPanel + row] = quantise(value, h, first + i, value_place);
        } else {
          copy_row(key, h, first + i, key_place);
          if (!copy_row(value, h, first + i, value_place)) finite(slot)[h] = 0;
        }
      }
    }
  }
  // Copies a row to where `place` says, and says whether it is finite.
  template <class Place>
  static bool copy_row(const Given<3>& from, Index h, Index i, const Place& place) {
    bool all_finite = true;
    for (Index d = 0; d < from.shape[2]; ++d) {
      const T x = internal::read_element(from.pointer(h, i, d));
      const auto wide = static_cast<ComputeType<T>>(x);
      all_finite = all_finite && wide - wide == 0;
      *place(d) = x;
    }
    return all_finite;
  }
  // Writes round(x / scale) for a row and returns its scale. The quotient of two floats, taken in double, is never
  // rounded onto a tie; beside kShift, whose last place is one, it is rounded to a whole number. A scale among the
  // subnormal numbers may be too small, hence the ends.
  template <class Place>
  static float quantise(const InputView<float, 3>& from, Index h, Index i, const Place& place) {
    float scale = 0;
    for_each_number(from, h, i, [&](Index, float x) { scale = std::max(scale, std::abs(x)); });
    scale /= 127;
    constexpr double kShift = 0x1.8p52;
    const double divisor = scale == 0 ? std::numeric_limits<double>::infinity() : static_cast<double>(scale);
    for_each_number(from, h, i, [&](Index d, float x) {
      const double steps = static_cast<double>(x) / divisor + kShift - kShift;
      *place(d) = static_cast<std::int8_t>(static_cast<int>(std::clamp(steps, -127.0, 127.0)));
    });
    return scale;
  }

  void write(Index sequence, const Given<3>& key, const Given<3>& value, Index count) const {
    const internal::FloatingPointScope rounds_to_nearest;
    Index length = lengths()[sequence];
    for (Index done = 0; done < count;) {
      const Index lane = length % kPanel;
      const Index step = std::min(kPanel - lane, count - done);
      write_panel(table(sequence)[entry(length / kPanel)], lane, step, key, value, done);
      done += step;
      length += step;
    }
    if (shape.ring && length > 0) {
      const Index gone = (length - 1) / kPanel - layout.sequence_panels + 1;
      firsts()[sequence] = std::max<Index>(firsts()[sequence], gone * kPanel);
    }
    lengths()[sequence] = length;
  }
};

template <class T>
typename KvCache<T>::Block KvCache<T>::block() const {
  return {shape_, layout_, memory_.data()};
}

namespace {

void check_aligned(std::span<const std::byte> memory) {
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment != 0)
    refuse_shape("memory is not aligned to " + std::to_string(kAlignment) + " bytes");
}

// One thread changes a cache at a time.
class ExclusiveUse {
 public:
  ExclusiveUse(const char* name, int& writing) : writing_(writing) {
    if (std::atomic_ref(writing_).exchange(1, std::memory_order_acquire) != 0)
      throw std::logic_error(std::string(name) + ": another thread is changing this cache");
  }
  ~ExclusiveUse() { std::atomic_ref(writing_).store(0, std::memory_order_release); }
  ExclusiveUse(const ExclusiveUse&) = delete;
  ExclusiveUse& operator=(const ExclusiveUse&) = delete;

 private:
  int& writing_;
};

std::string sequence_text(Index sequence) { return "sequence " + std::to_string(sequence); }

[[noreturn]] void refuse_bytes(Index offset, const std::string& what) {
  throw std::runtime_error("KvCache: byte " + std::to_string(offset) + ": " + what);
}

}  // namespace

template <class T>
Index KvCache<T>::bytes(const KvCacheShape& shape) {
  check_shape(shape);
  const Layout layout = layout_of(shape);
  // Also where there are no pages yet, so that no extent of a panel is beyond counting.
  constexpr Index kMost = std::numeric_limits<Index>::max() / 1024;
  if (layout.bytes > kMost || layout.head_elements > kMost ||
      layout.num_slots > std::numeric_limits<std::int32_t>::max())
    refuse_shape("a cache of this shape has more bytes or panels than can be counted; expected fewer or smaller pages");
  return layout.bytes;
}

template <class T>
KvCache<T>::KvCache(const KvCacheShape& shape)
    : shape_(shape), owned_(static_cast<std::size_t>(bytes(shape) + kAlignment)) {
  void* aligned = owned_.data();
  std::size_t space = owned_.size();
  std::align(kAlignment, static_cast<std::size_t>(bytes(shape)), aligned, space);
  format({static_cast<std::byte*>(aligned), space});
}

template <class T>
KvCache<T>::KvCache(const KvCacheShape& shape, std::span<std::byte> memory) : shape_(shape) {
  format(memory);
}

template <class T>
void KvCache<T>::format(std::span<std::byte> memory) {
  const KvCacheShape& shape = shape_;
  const Index needed = bytes(shape);
  if (static_cast<Index>(memory.size()) < needed)
    refuse_shape("memory has " + std::to_string(memory.size()) + " bytes; expected " + std::to_string(needed));
  check_aligned(memory);
  layout_ = layout_of(shape);
  memory_ = memory.first(static_cast<std::size_t>(needed));
  Header header{.magic = {},
                .version = kKvCacheVersion,
                .type = stored_type<T>().number,
                .num_sequences = shape.num_sequences,
                .num_key_heads = shape.num_key_heads,
                .depth = shape.depth,
                .columns = shape.columns,
                .capacity = shape.capacity,
                .page_keys = shape.page_keys,
                .num_pages = shape.num_pages,
                .ring = shape.ring ? 1 : 0};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  const Block block = this->block();
  // Panels are written before they are read; everything before them is the book.
  std::fill_n(memory_.data(), block.layout.panels, std::byte{0});
  std::memcpy(memory_.data(), &header, sizeof header);
  std::fill_n(block.table(0), shape.num_sequences * block.layout.sequence_panels, -1);
}

template <class T>
KvCache<T> KvCache<T>::open(std::span<std::byte> memory) {
  if (memory.size() < sizeof(Header)) refuse_bytes(0, "ends within the header");
  check_aligned(memory);
  Header header;
  std::memcpy(&header, memory.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) refuse_bytes(0, "is no key/value cache");
  if (header.version != kKvCacheVersion)
    refuse_bytes(8, "version " + std::to_string(header.version) + "; expected " + std::to_string(kKvCacheVersion));
  if (header.type != stored_type<T>().number)
    refuse_bytes(12, "holds " + type_text(header.type) + "; expected " + stored_type<T>().name);
  if (header.ring != 0 && header.ring != 1) refuse_bytes(72, "ring is neither 0 nor 1");
  KvCache cache;
  cache.shape_ = {.num_sequences = header.num_sequences,
                  .num_key_heads = header.num_key_heads,
                  .depth = header.depth,
                  .columns = header.columns,
                  .capacity = header.capacity,
                  .page_keys = header.page_keys,
                  .num_pages = header.num_pages,
                  .ring = header.ring == 1};
  Index needed = 0;
  try {
    needed = bytes(cache.shape_);
  } catch (const std::invalid_argument& error) {
    refuse_bytes(16, error.what());
  }
  if (static_cast<Index>(memory.size()) < needed)
    refuse_bytes(static_cast<Index>(memory.size()), "ends here; expected " + std::to_string(needed) + " bytes");
  cache.layout_ = layout_of(cache.shape_);
  cache.memory_ = memory.first(static_cast<std::size_t>(needed));

  // The book must agree with itself: then no panel is read that is not there.
  const Block block = cache.block();
  const Layout& layout = block.layout;
  std::vector<std::int32_t> users(static_cast<std::size_t>(layout.num_slots), 0);
  for (Index s = 0; s < cache.shape_.num_sequences; ++s) {
    const Index length = block.lengths()[s];
    const Index first = block.firsts()[s];
    const auto here = [&](Index offset) { return offset + s * static_cast<Index>(sizeof(std::int64_t)); };
    const bool fits =
        cache.shape_.ring ? length < std::numeric_limits<Index>::max() / 2 : length <= cache.shape_.capacity;
    if (length < 0 || !fits) refuse_bytes(here(layout.lengths), sequence_text(s) + " has an impossible length");
    const Index last = length > 0 ? (length - 1) / kPanel : -1;
    if (first < 0 || first > length || first % kPanel != 0 || (!cache.shape_.ring && first != 0) ||
        last - first / kPanel >= layout.sequence_panels)
      refuse_bytes(here(layout.firsts), sequence_text(s) + " has an impossible first key");
    for (Index e = 0; e < layout.sequence_panels; ++e) {
      const std::int32_t slot = block.table(s)[e];
      const Index offset = layout.table + (s * layout.sequence_panels + e) * static_cast<Index>(sizeof(std::int32_t));
      if (slot < -1 || slot >= layout.num_slots) refuse_bytes(offset, "there is no slot " + std::to_string(slot));
      if (slot >= 0) ++users[static_cast<std::size_t>(slot)];
    }
    for (Index panel = first / kPanel; panel <= last; ++panel) {
      if (block.table(s)[block.entry(panel)] < 0) refuse_bytes(layout.table, sequence_text(s) + " lacks a panel");
    }
  }
  for (Index page = 0; page < layout.num_pages; ++page) {
    std::int64_t all = 0;
    for (Index i = 0; i < layout.page_panels; ++i) {
      const Index slot = page * layout.page_panels + i;
      all += users[static_cast<std::size_t>(slot)];
      if (block.panel_users()[slot] != users[static_cast<std::size_t>(slot)])
        refuse_bytes(layout.panel_users, "panel " + std::to_string(slot) + " has other users than the table says");
    }
    if (block.page_users()[page] != all)
      refuse_bytes(layout.page_users, "page " + std::to_string(page) + " has other users than the table says");
  }
  return cache;
}

template <class T>
Index KvCache<T>::length(Index sequence) const {
  return block().lengths()[sequence];
}
template <class T>
Index KvCache<T>::first_key(Index sequence) const {
  return block().firsts()[sequence];
}
template <class T>
Index KvCache<T>::num_free_pages() const {
  return block().free_pages();
}

namespace {

void check_sequence(const char* name, const KvCacheShape& shape, Index sequence) {
  if (sequence < 0 || sequence >= shape.num_sequences)
    internal::refuse(
        name, "there is no " + sequence_text(sequence) + "; expected 0 to " + std::to_string(shape.num_sequences - 1));
}

template <class View>
void check_view(const char* name, const View& view, const typename View::Shape& expected) {
  constexpr const char* kName = "KvCache::append";
  if (view.absent()) internal::refuse(kName, std::string(name) + " is missing");
  if (view.shape != expected)
    internal::refuse(kName, std::string(name) + " has shape " + internal::shape_text(view.shape) + "; expected " +
                                internal::shape_text(expected));
  internal::footprint(kName, name, view);
}

// What no scale can hold.
void check_finite(const char* name, const InputView<float, 3>& view) {
  for (Index h = 0; h < view.shape[0]; ++h) {
    for (Index i = 0; i < view.shape[1]; ++i) {
      for_each_number(view, h, i, [&](Index d, float x) {
        if (x - x == 0) return;
        internal::refuse("KvCache::append", std::string(name) + internal::shape_text(std::array{h, i, d}) + " is " +
                                                (x > 0   ? "inf"
                                                 : x < 0 ? "-inf"
                                                         : "nan") +
                                                "; expected finite numbers in a cache of int8");
      });
    }
  }
}

// The first `count` rows of one sequence.
template <class T>
TensorView<const T, 3> rows_of(const TensorView<const T, 4>& view, Index sequence, Index count) {
  return {view.pointer(sequence, 0, 0, 0),
          {view.shape[1], count, view.shape[3]},
          {view.strides[1], view.strides[2], view.strides[3]}};
}
InputView<float, 3> rows_of(const InputView<float, 4>& view, Index sequence, Index count) {
  return {view.pointer(sequence, 0, 0, 0),
          view.type,
          {view.shape[1], count, view.shape[3]},
          {view.strides[1], view.strides[2], view.strides[3]}};
}

void check_pages(const char* name, Index needed, Index free) {
  if (needed > free)
    throw std::runtime_error(std::string(name) + ": " + std::to_string(needed) + " pages are needed and " +
                             std::to_string(free) +
                             " are free; truncate a sequence, or make the cache with more pages");
}

void check_room(const KvCacheShape& shape, Index sequence, Index length, Index count) {
  const Index most = shape.ring ? std::numeric_limits<Index>::max() / 4 : shape.capacity;
  if (count > most - length)
    internal::refuse("KvCache::append", sequence_text(sequence) + " holds " + std::to_string(length) + " keys and " +
                                            std::to_string(count) + " more are given; its capacity is " +
                                            std::to_string(most));
}

}  // namespace

template <class T>
void KvCache<T>::append(Index sequence, Given<3> key, Given<3> value) {
  const ExclusiveUse use("KvCache::append", writing_);
  check_sequence("KvCache::append", shape_, sequence);
  const Index count = key.shape[1];
  check_view("key", key, {shape_.num_key_heads, count, shape_.depth});
  check_view("value", value, {shape_.num_key_heads, count, shape_.columns});
  if constexpr (kQuantised) {
    check_finite("key", key);
    check_finite("value", value);
  }
  const Block block = this->block();
  check_room(shape_, sequence, block.lengths()[sequence], count);
  const auto need = block.need(sequence, count);
  check_pages("KvCache::append", need.pages, block.free_pages());
  block.take_pages(sequence, need);
  block.write(sequence, key, value, count);
}

template <class T>
void KvCache<T>::append(Given<4> key, Given<4> value, std::span<const Index> counts) {
  const ExclusiveUse use("KvCache::append", writing_);
  const Index most = key.shape[2];
  check_view("key", key, {shape_.num_sequences, shape_.num_key_heads, most, shape_.depth});
  check_view("value", value, {shape_.num_sequences, shape_.num_key_heads, most, shape_.columns});
  if (!counts.empty() && static_cast<Index>(counts.size()) != shape_.num_sequences)
    internal::refuse("KvCache::append", "counts has " + std::to_string(counts.size()) + " entries; expected " +
                                            std::to_string(shape_.num_sequences));
  const auto count_of = [&](Index s) { return counts.empty() ? most : counts[static_cast<std::size_t>(s)]; };
  const Block block = this->block();
  Index pages = 0;
  for (Index s = 0; s < shape_.num_sequences; ++s) {
    if (count_of(s) < 0 || count_of(s) > most)
      internal::refuse("KvCache::append", "counts[" + std::to_string(s) + "] is " + std::to_string(count_of(s)) +
                                              "; expected 0 to " + std::to_string(most));
    check_room(shape_, s, block.lengths()[s], count_of(s));
    pages += block.need(s, count_of(s)).pages;
    if constexpr (kQuantised) {
      check_finite("key", rows_of(key, s, count_of(s)));
      check_finite("value", rows_of(value, s, count_of(s)));
    }
  }
  check_pages("KvCache::append", pages, block.free_pages());
  for (Index s = 0; s < shape_.num_sequences; ++s) {
    // The need is found again: a sequence before may have left a panel that was shared.
    block.take_pages(s, block.need(s, count_of(s)));
    block.write(s, rows_of(key, s, count_of(s)), rows_of(value, s, count_of(s)), count_of(s));
  }
}

template <class T>
void KvCache<T>::truncate(Index sequence, Index length) {
  const ExclusiveUse use("KvCache::truncate", writing_);
  check_sequence("KvCache::truncate", shape_, sequence);
  const Block block = this->block();
  const Index first = block.firsts()[sequence];
  const Index most = block.lengths()[sequence];
  if (length < 0 || length > most || (length < first && length != 0))
    internal::refuse("KvCache::truncate", "length is " + std::to_string(length) + "; " + sequence_text(sequence) +
                                              " has keys " + std::to_string(first) + " to " + std::to_string(most) +
                                              (first > 0 ? ", and 0 empties it" : ""));
  std::int32_t* entries = block.table(sequence);
  block.lengths()[sequence] = length;
  if (length == 0) {
    block.firsts()[sequence] = 0;
    for (Index e = 0; e < block.layout.sequence_panels; ++e) block.leave(entries[e]);
  }
  if (shape_.ring) return;
  // What follows in the last page stays, as long as nobody else uses it.
  Index panel = round_up(length, kPanel) / kPanel;
  const auto page_of = [&](std::int32_t slot) { return slot / block.layout.page_panels; };
  while (panel > 0 && panel < block.layout.sequence_panels && entries[panel] >= 0 &&
         page_of(entries[panel]) == page_of(entries[panel - 1]) && block.panel_users()[entries[panel]] == 1) {
    ++panel;
  }
  for (; panel < block.layout.sequence_panels; ++panel) block.leave(entries[panel]);
}

template <class T>
void KvCache<T>::fork(Index from, Index to) {
  const ExclusiveUse use("KvCache::fork", writing_);
  check_sequence("KvCache::fork", shape_, from);
  check_sequence("KvCache::fork", shape_, to);
  if (shape_.ring) internal::refuse("KvCache::fork", "a ring shares no panels; expected a contiguous or paged cache");
  const Block block = this->block();
  if (from == to || block.lengths()[to] != 0)
    internal::refuse("KvCache::fork", sequence_text(to) + " has " + std::to_string(block.lengths()[to]) +
                                          " keys; expected another, empty sequence");
  const Index length = block.lengths()[from];
  const Index whole = length / kPanel;
  const bool rest = length % kPanel != 0;
  check_pages("KvCache::fork", rest ? 1 : 0, block.free_pages());
  std::int32_t* entries = block.table(to);
  for (Index panel = 0; panel < whole; ++panel) block.use(entries[panel], block.table(from)[panel]);
  if (rest) {
    block.take_pages(to, {whole, 1});
    block.copy_panel(block.table(from)[whole], entries[whole]);
  }
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
  if constexpr (!kQuantised) return nullptr;
  const Block block = this->block();
  return block.scales(block.table(sequence)[block.entry(panel)], key_head);
}
template <class T>
bool KvCache<T>::values_finite(Index sequence, Index key_head, Index panel) const {
  const Block block = this->block();
  return block.finite(block.table(sequence)[block.entry(panel)])[key_head] != 0;
}

template class KvCache<float>;
template class KvCache<double>;
template class KvCache<bfloat16>;
template class KvCache<float16>;
template class KvCache<std::int8_t>;

}  // namespace v0
}  // namespace regard
