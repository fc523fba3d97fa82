// SPDX-License-Identifier: Apache-2.0
//
// How the work of the backward pass is divided, and the order in which sums are formed.
//
//   for each wave of key heads
//     for each key head and slot s = 0 … 5:                      one parallel phase
//       for key blocks s, s + 6, …:                              up to 512 keys, packed; their sums in scratch
//         for each query head of the key head, in order
//           for each 60 rows, for each 64 keys                   kernels::backward_block
//         grad_key and grad_value of the key block are written
//     for each 60 rows: grad_query = Σ over slots, in order      one parallel phase, where there are several
//
// Each slot has its own partial sum of grad_query, so one head keeps six threads busy, and the result does not depend
// on which thread runs a slot. With ranges of keys, all key heads form one wave, and the slots run once for each range.
// The derivation is in docs/derivations/attention_backward.md.
// Read next: backward_tiles.h.
#include "backward_pass.h"

#include <algorithm>
#include <utility>

#include "kernels/table.h"
#include "runtime/parallel.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"
#include "visibility.h"

namespace regard::inline v0::internal {
namespace {

using kernels::kBlockKeys;
using kernels::kRows;

constexpr Index kSlots = 6;  // partial sums of grad_query: divides evenly among 1, 2, 3 and 6 threads
constexpr Index kPartialBytes = Index{16} << 20;  // per wave, unless one key head needs more

template <class T>
class Backward {
 public:
  Backward(const BackwardCall<T>& call, const TypedGradients<T>& gradients, const KeyRanges* ranges)
      : call_(call),
        r_(call.r),
        gradients_(gradients),
        ranges_(ranges),
        block_keys_(call.block_keys()),
        tile_bytes_(BackwardTiles<T>::bytes(call, block_keys_)),
        sum_elements_(block_keys_ * (call.padded_head_size() + call.padded_value_head_size())),
        progress_(call.runtime, call.r.batch * call.r.num_heads * call.r.num_queries),
        units_(workspace_of(call.runtime)) {}

  void run() {
    for (Index n = 0; n < num_units();) {
      units_.clear();
      Index elements = 0;
      for (; n < num_units(); ++n) {
        const WaveUnit unit = unit_at(n, elements);
        const Index more = unit.num_slots * slot_elements(unit);
        const bool full = (elements + more) * static_cast<Index>(sizeof(T)) > kPartialBytes;
        if (!units_.empty() && full && !ranges_) break;
        elements += more;
        units_.push_back(unit);
      }
      run_wave(elements);
    }
  }

 private:
  struct Range {
    Index begin, end;
  };
  // One key head of one sequence.
  struct WaveUnit {
    Index sequence;
    Index key_head;
    Index num_keys;  // that rows may attend to
    Index num_slots;
    Index first_element;  // of its partial sums
  };

  Index num_units() const { return static_cast<Index>(r_.sequences.size()) * r_.num_kv_heads; }
  static Index row_group() { return kernels::active().template of<T>().row_group; }
  Index group() const { return r_.num_heads / r_.num_kv_heads; }
  const Sequence& sequence_of(const WaveUnit& unit) const {
    return r_.sequences[static_cast<std::size_t>(unit.sequence)];
  }
  WaveUnit unit_at(Index n, Index first_element) const {
    const Sequence& sequence = r_.sequences[static_cast<std::size_t>(n / r_.num_kv_heads)];
    const Index keys = sequence.num_queries > 0 && group() > 0 ? sequence.key_limit : 0;
    const Index slots = std::min(kSlots, (keys + block_keys_ - 1) / block_keys_);
    return {n / r_.num_kv_heads, n % r_.num_kv_heads, keys, slots, first_element};
  }
  // Keys of the sequence that are in a range; all keys without ranges.
  Range keys_in(const WaveUnit& unit, Index range) const {
    if (!ranges_) return {0, unit.num_keys};
    const Index first = sequence_of(unit).first_key;
    const auto within = [&](Index start) { return std::clamp<Index>(start - first, 0, unit.num_keys); };
    return {within(ranges_->starts[static_cast<std::size_t>(range)]),
            within(ranges_->starts[static_cast<std::size_t>(range) + 1])};
  }
  // The rows of all heads, plus the rows past the last that share its register tile.
  Index slot_elements(const WaveUnit& unit) const {
    const Index rows = group() * sequence_of(unit).num_queries;
    return (rows + row_group()) * call_.padded_head_size();
  }
  T* partial(const WaveUnit& unit, Index slot) const {
    return partials_ + unit.first_element + slot * slot_elements(unit);
  }

  void run_wave(Index elements) {
    const Workspace<T> partials(call_.runtime, gradients_.query.data ? elements : 0);
    partials_ = partials.data();
    List<std::pair<const WaveUnit*, Index>> slots(workspace_of(call_.runtime)), row_blocks(slots.get_allocator());
    double products = 0;
    for (const WaveUnit& unit : units_) {
      // A key head without slots still has gradients to write: zeros.
      for (Index s = 0; s < std::max<Index>(unit.num_slots, 1); ++s) slots.emplace_back(&unit, s);
      const Index rows = group() * sequence_of(unit).num_queries;
      for (Index row = 0; row < rows && (unit.num_slots > 1 || ranges_); row += kRows)
        row_blocks.emplace_back(&unit, row);
      products +=
          static_cast<double>(rows) * static_cast<double>(unit.num_keys * (3 * r_.head_size + 2 * r_.value_head_size));
    }
    const Index num_slots = static_cast<Index>(slots.size());
    const int workers = num_workers(call_.runtime, num_slots, products);
    const Index bytes = tile_bytes_ + sum_elements_ * static_cast<Index>(sizeof(T));
    const Workspace<std::byte> scratch(call_.runtime, workers * bytes);
    const Index num_ranges = ranges_ ? static_cast<Index>(ranges_->starts.size()) - 1 : 1;
    for (Index range = 0; range < num_ranges; ++range) {
      if (ranges_) ranges_->before(range);
      for_each_item(call_.runtime, workers, num_slots, [&](Index item, int worker) {
        const auto& [unit, slot] = slots[static_cast<std::size_t>(item)];
        run_slot(*unit, slot, range, scratch.data() + worker * bytes);
      });
      if (ranges_) ranges_->after(range);
    }
    const Index blocks = static_cast<Index>(row_blocks.size());
    for_each_item(call_.runtime, num_workers(call_.runtime, blocks, products), blocks, [&](Index item, int) {
      const auto& [unit, row] = row_blocks[static_cast<std::size_t>(item)];
      write_rows(*unit, row);
    });
  }

  void run_slot(const WaveUnit& unit, Index slot, Index range, std::byte* memory) {
    BackwardTiles<T> tiles(call_, block_keys_, memory);
    T* const sums = reinterpret_cast<T*>(memory + tile_bytes_);
    const Range keys = keys_in(unit, range);
    for (Index key = keys.begin + slot * block_keys_; key < keys.end; key += kSlots * block_keys_)
      run_keys(unit, slot, key, std::min(block_keys_, unit.num_keys - key), tiles, sums);
    if (ranges_) return;
    if (slot == 0 && unit.num_keys < sequence_of(unit).num_keys) {
      // Keys that no row may attend to.
      clear_sums(block_keys_, sums);
      for (Index key = unit.num_keys; key < sequence_of(unit).num_keys; key += block_keys_)
        write_keys(unit, key, std::min(block_keys_, sequence_of(unit).num_keys - key), sums);
    }
    // With a single slot, its sum is complete and is written here.
    const Index rows = group() * sequence_of(unit).num_queries;
    for (Index row = 0; row < rows && unit.num_slots < 2; row += kRows) write_rows(unit, row);
  }

  void clear_sums(Index num_keys, T* sums) const {
    const Index keys = (num_keys + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
    std::fill_n(sums, keys * call_.padded_head_size(), static_cast<T>(0));
    std::fill_n(sums + block_keys_ * call_.padded_head_size(), keys * call_.padded_value_head_size(),
                static_cast<T>(0));
  }

  // The sums over earlier rows.
  void load_sums(const WaveUnit& unit, Index first_key, Index num_keys, T* sums) const {
    const Sequence& sequence = sequence_of(unit);
    const auto load = [&](const OutputView<4>& from, Index count, Index padded, T* to) {
      for (Index i = 0; i < num_keys && from.data; ++i) {
        read_numbers(from.type, count,
                     from.pointer(sequence.batch, unit.key_head, sequence.first_key + first_key + i, 0),
                     from.strides[3], to + i * padded);
      }
    };
    load(gradients_.key, r_.head_size, call_.padded_head_size(), sums);
    load(gradients_.value, r_.value_head_size, call_.padded_value_head_size(),
         sums + block_keys_ * call_.padded_head_size());
  }

  // All rows that attend to any of these keys.
  void run_keys(const WaveUnit& unit, Index slot, Index first_key, Index num_keys, BackwardTiles<T>& tiles, T* sums) {
    const Sequence& sequence = sequence_of(unit);
    clear_sums(num_keys, sums);
    bool taken = false;
    for (Index g = 0; g < group(); ++g) {
      for (Index row = 0; row < sequence.num_queries; row += kRows) {
        const Index num_rows = std::min(kRows, sequence.num_queries - row);
        T* const rows = gradients_.query.data
                            ? partial(unit, slot) + (g * sequence.num_queries + row) * call_.padded_head_size()
                            : nullptr;
        // A slot's partial sum is uninitialized before its first keys.
        if (rows && first_key == slot * block_keys_)
          std::fill_n(rows, (num_rows < kRows ? num_rows + row_group() : num_rows) * call_.padded_head_size(),
                      static_cast<T>(0));
        // Both ends of the interval increase with the row.
        const Index begin = visible_interval(r_, sequence, row).begin;
        const Index end = visible_interval(r_, sequence, row + num_rows - 1).end;
        if (end <= first_key || begin >= first_key + num_keys) continue;
        if (!taken) tiles.take_keys(unit.sequence, unit.key_head, first_key, num_keys);
        if (!taken && ranges_) load_sums(unit, first_key, num_keys, sums);
        taken = true;
        tiles.take_rows(unit.key_head * group() + g, row, num_rows);
        run_rows(first_key, num_keys, tiles, rows, sums);
      }
    }
    if (taken || !ranges_) write_keys(unit, first_key, num_keys, sums);
  }

  void run_rows(Index first_key, Index num_keys, BackwardTiles<T>& tiles, T* rows, T* sums) {
    kernels::BackwardBlock<T>& block = tiles.block();
    block.sum_query = rows;
    const Index begin = std::max(first_key, tiles.seen().begin / kBlockKeys * kBlockKeys);
    const Index end = std::min(first_key + num_keys, tiles.seen().end);
    for (Index key = begin; key < end; key += kBlockKeys) {
      throw_if_stopped(call_.runtime.stop);
      if (!tiles.take_block(key)) continue;
      block.sum_key = gradients_.key.data ? sums + (key - first_key) * call_.padded_head_size() : nullptr;
      block.sum_value = gradients_.value.data ? sums + block_keys_ * call_.padded_head_size() +
                                                    (key - first_key) * call_.padded_value_head_size()
                                              : nullptr;
      tiles.run_backward_block();
    }
  }

  void write_keys(const WaveUnit& unit, Index first_key, Index num_keys, const T* sums) const {
    const Sequence& sequence = sequence_of(unit);
    const auto write = [&](const OutputView<4>& output, bool accumulate, Index count, Index padded, const T* from) {
      for (Index i = 0; i < num_keys && output.data; ++i) {
        write_or_add_numbers(accumulate, output.type, count, from + i * padded,
                             output.pointer(sequence.batch, unit.key_head, sequence.first_key + first_key + i, 0),
                             output.strides[3]);
      }
    };
    write(gradients_.key, gradients_.accumulate.grad_key, r_.head_size, call_.padded_head_size(), sums);
    write(gradients_.value, gradients_.accumulate.grad_value, r_.value_head_size, call_.padded_value_head_size(),
          sums + block_keys_ * call_.padded_head_size());
  }

  // Up to 60 rows of the key head's query heads from `first` on: adds up their partial sums, in the first slot's sum.
  void write_rows(const WaveUnit& unit, Index first) {
    const Sequence& sequence = sequence_of(unit);
    const Index num_rows = std::min(kRows, group() * sequence.num_queries - first);
    progress_.add(num_rows);
    if (!gradients_.query.data) return;
    const Index padded = call_.padded_head_size();
    T* const sum = unit.num_slots > 0 ? partial(unit, 0) + first * padded : nullptr;
    for (Index slot = 1; slot < unit.num_slots; ++slot) {
      const T* more = partial(unit, slot) + first * padded;
      for (Index i = 0; i < num_rows * padded; ++i) sum[i] += more[i];
    }
    const T nothing = 0;
    const OutputView<4>& output = gradients_.query;
    const TaskRows rows{unit.key_head * group(), first, num_rows, sequence.num_queries};
    rows.for_each_head([&](Index head, Index first_row, Index begin, Index count) {
      for (Index i = 0; i < count; ++i) {
        const Index row = sequence.first_query + first_row + i;
        const auto write = [&](Index n, const T* from, Index d) {
          write_or_add_numbers(gradients_.accumulate.grad_query, output.type, n, from,
                               output.pointer(sequence.batch, head, row, d), output.strides[3]);
        };
        if (unit.num_slots > 0) {
          write(r_.head_size, sum + (begin + i) * padded, 0);
        } else {
          for (Index d = 0; d < r_.head_size; ++d) write(1, &nothing, d);
        }
      }
    });
  }

  const BackwardCall<T>& call_;
  const ResolvedAttention<T>& r_;
  const TypedGradients<T>& gradients_;
  const KeyRanges* ranges_;
  Index block_keys_;
  Index tile_bytes_;
  Index sum_elements_;
  Progress progress_;
  List<WaveUnit> units_;
  T* partials_ = nullptr;
};

}  // namespace

template <class T>
Index round_keys(const BackwardCall<T>& call) {
  return kSlots * call.block_keys();
}

template <class T>
void run_backward(const BackwardCall<T>& call, const TypedGradients<T>& gradients, const KeyRanges* ranges) {
  Backward<T>(call, gradients, ranges).run();
}

template Index round_keys(const BackwardCall<float>&);
template Index round_keys(const BackwardCall<double>&);
template void run_backward(const BackwardCall<float>&, const TypedGradients<float>&, const KeyRanges*);
template void run_backward(const BackwardCall<double>&, const TypedGradients<double>&, const KeyRanges*);

}  // namespace regard::inline v0::internal
