// SPDX-License-Identifier: Apache-2.0
//
// How the work of the backward pass is divided, and the order in which sums are formed.
//
//   for each wave of KV heads
//     for each piece of keys:                                    one parallel phase
//       for each query head of the KV head, in order            up to 512 keys, packed; their sums in scratch
//         for each 60 rows, after the piece before it            key_pieces.h
//           for each 64 keys                                     kernels::backward_block
//       grad_key and grad_value of the piece are written
//     for each 60 rows: grad_query = Σ over slots, in order      one parallel phase, where there are several pieces
//
// Block n of keys belongs to slot n mod 6, and each slot has its own partial sum of grad_query. The result depends
// neither on which thread processes a piece nor on the size of the pieces: if there are few blocks, they are divided.
// With ranges of keys, all KV heads form one wave, and there is a list of pieces for each range.
// The derivation is in docs/derivations/attention_backward.md.
// Read next: key_pieces.h, backward_tiles.h.
#include "backward_pass.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "instantiate.h"
#include "kernels/table.h"
#include "key_pieces.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"
#include "visibility.h"

namespace regard::inline v0::internal {
namespace {

using kernels::kBlockKeys;
using kernels::kRows;

constexpr Index kSlots = 6;  // partial sums of grad_query
// The maximum size of the partial sums of a wave (unless one KV head needs more), and the addition for each thread
// above two. With more KV heads in a wave, fewer threads wait; with few enough, the sums fit into the memory that is
// kept between calls (runtime/workspace.h).
constexpr Index kPartialBytes = Index{16} << 20, kThreadPartialBytes = Index{5} << 20;
constexpr Index kPiecesPerThread = 3;  // at least, if blocks are large enough to be divided

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
        wave_heads_(workspace_of(call.runtime)) {}

  void run() {
    const Index threads = num_workers(call_.runtime, std::numeric_limits<Index>::max());
    const Index most_bytes = kPartialBytes + std::max<Index>(threads - 2, 0) * kThreadPartialBytes;
    // Waves are of about the same size, so that the last one is not too small for all threads.
    Index all_elements = 0;
    for (Index n = 0; n < total_kv_heads(); ++n) all_elements += elements_of(kv_head_at(n, 0));
    const Index most_elements = ranges_ ? all_elements : most_bytes / static_cast<Index>(sizeof(T));
    const Index num_waves = std::max<Index>(1, (all_elements + most_elements - 1) / std::max<Index>(1, most_elements));
    Index done = 0;
    for (Index n = 0, wave = 1; n < total_kv_heads(); ++wave) {
      wave_heads_.clear();
      Index elements = 0;
      for (; n < total_kv_heads(); ++n) {
        const WaveHead kv_head = kv_head_at(n, elements);
        const bool full = done + elements >= all_elements / num_waves * wave && wave < num_waves;
        if (!wave_heads_.empty() && (full || elements + elements_of(kv_head) > most_elements)) break;
        elements += elements_of(kv_head);
        wave_heads_.push_back(kv_head);
      }
      done += elements;
      run_wave(elements);
    }
  }

 private:
  struct Range {
    Index begin, end;
  };
  // One KV head of one sequence.
  struct WaveHead {
    Index sequence;
    Index key_head;
    Index num_keys;  // that rows may attend to
    Index num_slots;
    Index first_element;  // of its partial sums
  };

  Index total_kv_heads() const { return static_cast<Index>(r_.sequences.size()) * r_.num_kv_heads; }
  static Index row_group() { return kernels::active().template of<T>().row_group; }
  Index group() const { return r_.num_heads / r_.num_kv_heads; }
  const Sequence& sequence_of(const WaveHead& kv_head) const {
    return r_.sequences[static_cast<std::size_t>(kv_head.sequence)];
  }
  WaveHead kv_head_at(Index n, Index first_element) const {
    const Sequence& sequence = r_.sequences[static_cast<std::size_t>(n / r_.num_kv_heads)];
    const Index keys = sequence.num_queries > 0 && group() > 0 ? sequence.key_limit : 0;
    const Index slots = std::min(kSlots, (keys + block_keys_ - 1) / block_keys_);
    return {n / r_.num_kv_heads, n % r_.num_kv_heads, keys, slots, first_element};
  }
  // The keys of the sequence that are in a range, or all keys if there are no ranges.
  Range keys_in(const WaveHead& kv_head, Index range) const {
    if (!ranges_) return {0, kv_head.num_keys};
    const Index first = sequence_of(kv_head).first_key;
    const auto within = [&](Index start) { return std::clamp<Index>(start - first, 0, kv_head.num_keys); };
    return {within(ranges_->starts[static_cast<std::size_t>(range)]),
            within(ranges_->starts[static_cast<std::size_t>(range) + 1])};
  }
  // The rows of all heads, plus the rows past the last that share its register tile.
  Index slot_elements(const WaveHead& kv_head) const {
    const Index rows = group() * sequence_of(kv_head).num_queries;
    return (rows + row_group()) * call_.padded_head_size();
  }
  Index elements_of(const WaveHead& kv_head) const { return kv_head.num_slots * slot_elements(kv_head); }
  T* partial(const WaveHead& kv_head, Index slot) const {
    return partials_ + kv_head.first_element + slot * slot_elements(kv_head);
  }

  void run_wave(Index elements) {
    const Workspace<T> partials(call_.runtime, gradients_.query.data ? elements : 0);
    partials_ = partials.data();
    double products = 0;
    for (const WaveHead& kv_head : wave_heads_) {
      products += static_cast<double>(group() * sequence_of(kv_head).num_queries) *
                  static_cast<double>(kv_head.num_keys * (3 * r_.head_size + 2 * r_.value_head_size));
    }
    const Index num_ranges = ranges_ ? static_cast<Index>(ranges_->starts.size()) - 1 : 1;
    const int most_workers = num_workers(call_.runtime, std::numeric_limits<Index>::max(), products);
    piece_keys_ = block_keys_;
    Index most_pieces = num_pieces();
    while (most_workers > 1 && most_pieces < kPiecesPerThread * most_workers && piece_keys_ > kBlockKeys) {
      piece_keys_ = (piece_keys_ / 2 + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
      most_pieces = num_pieces();
    }
    const int workers = num_workers(call_.runtime, most_pieces, products);
    const Index bytes = tile_bytes_ + sum_elements_ * static_cast<Index>(sizeof(T));
    const Workspace<std::byte> scratch(call_.runtime, workers * bytes);
    ScratchVector<KeyPiece> pieces(workspace_of(call_.runtime));
    pieces.reserve(static_cast<std::size_t>(most_pieces));
    KeyTurns turns(call_.runtime, most_pieces);
    for (Index range = 0; range < num_ranges; ++range) {
      if (ranges_) ranges_->before(range);
      list_pieces(range, pieces);
      if (!is_planning()) turns.restart(static_cast<Index>(pieces.size()));
      const auto run = [&](Index item, int worker) {
        try {
          run_piece(pieces, item, turns, scratch.data() + worker * bytes);
        } catch (...) {
          turns.fail();
          throw;
        }
      };
      for_each_item(call_.runtime, workers, static_cast<Index>(pieces.size()), run, ItemOrder::increasing);
      if (ranges_) ranges_->after(range);
    }
    add_up_rows(products);
  }

  // A block is cut into pieces of piece_keys_, the last of which may be smaller.
  Index pieces_per_block() const { return (block_keys_ + piece_keys_ - 1) / piece_keys_; }
  bool is_one_piece(const WaveHead& kv_head) const {
    return kv_head.num_slots == 1 && kv_head.num_keys <= piece_keys_ && !ranges_;
  }

  // At least the number of pieces that list_pieces() lists for a range.
  Index num_pieces() const {
    Index number = 0;
    for (const WaveHead& kv_head : wave_heads_)
      number += (kv_head.num_keys + block_keys_ - 1) / block_keys_ * pieces_per_block() + 1;
    return number;
  }

  // Lists the first pieces of all slots, then the second ones, and so on: pieces that wait for others come late.
  void list_pieces(Index range, ScratchVector<KeyPiece>& pieces) const {
    pieces.clear();
    ScratchVector<std::array<Index, kSlots>> previous(wave_heads_.size(), pieces.get_allocator());
    for (auto& of_head : previous) of_head.fill(-1);
    bool more = true;
    for (Index round = 0; more; ++round) {
      more = false;
      for (std::size_t h = 0; h < wave_heads_.size(); ++h) {
        const WaveHead& kv_head = wave_heads_[h];
        const Range keys = keys_in(kv_head, range);
        for (Index slot = 0; slot < kSlots; ++slot) {
          const Index block = keys.begin + (round / pieces_per_block() * kSlots + slot) * block_keys_;
          if (block >= keys.end) break;
          more = true;
          const Index first = block + round % pieces_per_block() * piece_keys_;
          const Index end = std::min({first + piece_keys_, block + block_keys_, keys.end});
          if (first >= end) continue;
          Index& before = previous[h][static_cast<std::size_t>(slot)];
          pieces.push_back({static_cast<Index>(h), slot, first, end - first, before});
          before = static_cast<Index>(pieces.size()) - 1;
        }
        // Keys that no row may attend to still have gradients to write: zeros.
        if (round == 0 && !ranges_ && kv_head.num_keys < sequence_of(kv_head).num_keys)
          pieces.push_back({static_cast<Index>(h), 0, kv_head.num_keys, 0, -1});
      }
    }
  }

  void run_piece(const ScratchVector<KeyPiece>& pieces, Index number, KeyTurns& turns, std::byte* memory) {
    const KeyPiece& piece = pieces[static_cast<std::size_t>(number)];
    const WaveHead& kv_head = wave_heads_[static_cast<std::size_t>(piece.kv_head)];
    T* const sums = reinterpret_cast<T*>(memory + tile_bytes_);
    if (piece.num_keys == 0) return clear_keys(kv_head, sums);
    BackwardTiles<T> tiles(call_, block_keys_, memory);
    run_keys(kv_head, piece, number, turns, tiles, sums);
    const Index rows = group() * sequence_of(kv_head).num_queries;
    for (Index row = 0; row < rows && is_one_piece(kv_head); row += kRows) write_rows(kv_head, row);
  }

  void clear_keys(const WaveHead& kv_head, T* sums) {
    clear_sums(block_keys_, sums);
    const Index end = sequence_of(kv_head).num_keys;
    for (Index key = kv_head.num_keys; key < end; key += block_keys_)
      write_keys(kv_head, key, std::min(block_keys_, end - key), sums);
  }

  // Writes grad_query of all rows except those that are written with their only piece.
  void add_up_rows(double products) {
    ScratchVector<std::pair<const WaveHead*, Index>> row_blocks(workspace_of(call_.runtime));
    for (const WaveHead& kv_head : wave_heads_) {
      const Index rows = group() * sequence_of(kv_head).num_queries;
      for (Index row = 0; row < rows && !is_one_piece(kv_head); row += kRows) row_blocks.emplace_back(&kv_head, row);
    }
    const Index blocks = static_cast<Index>(row_blocks.size());
    for_each_item(call_.runtime, num_workers(call_.runtime, blocks, products), blocks, [&](Index item, int) {
      const auto& [kv_head, row] = row_blocks[static_cast<std::size_t>(item)];
      write_rows(*kv_head, row);
    });
  }

  void clear_sums(Index num_keys, T* sums) const {
    const Index keys = (num_keys + kBlockKeys - 1) / kBlockKeys * kBlockKeys;
    std::fill_n(sums, keys * call_.padded_head_size(), static_cast<T>(0));
    std::fill_n(sums + block_keys_ * call_.padded_head_size(), keys * call_.padded_value_head_size(),
                static_cast<T>(0));
  }

  // The sums over earlier rows.
  void load_sums(const WaveHead& kv_head, Index first_key, Index num_keys, T* sums) const {
    const Sequence& sequence = sequence_of(kv_head);
    const auto load = [&](const OutputView<4>& from, Index count, Index padded, T* to) {
      for (Index i = 0; i < num_keys && from.data; ++i) {
        read_numbers(from.type, count,
                     from.pointer(sequence.batch, kv_head.key_head, sequence.first_key + first_key + i, 0),
                     from.strides[3], to + i * padded);
      }
    };
    load(gradients_.key, r_.head_size, call_.padded_head_size(), sums);
    load(gradients_.value, r_.value_head_size, call_.padded_value_head_size(),
         sums + block_keys_ * call_.padded_head_size());
  }

  // All rows that attend to any key of the piece.
  void run_keys(const WaveHead& kv_head, const KeyPiece& piece, Index number, KeyTurns& turns, BackwardTiles<T>& tiles,
                T* sums) {
    const Sequence& sequence = sequence_of(kv_head);
    const auto& [of_head, slot, first_key, num_keys, previous] = piece;
    clear_sums(num_keys, sums);
    bool taken = false;
    Index row_block = 0;
    for (Index g = 0; g < group(); ++g) {
      for (Index row = 0; row < sequence.num_queries; row += kRows, ++row_block) {
        const Index num_rows = std::min(kRows, sequence.num_queries - row);
        T* const rows = gradients_.query.data
                            ? partial(kv_head, slot) + (g * sequence.num_queries + row) * call_.padded_head_size()
                            : nullptr;
        // The register tile of a head's last rows reaches into the rows of the next head.
        const bool beyond = num_rows < kRows && g + 1 < group();
        if (rows && !turns.wait(piece, row_block + (beyond ? 1 : 0))) return;
        // A slot's partial sum is uninitialized before its first keys.
        if (rows && first_key == slot * block_keys_)
          std::fill_n(rows, (num_rows < kRows ? num_rows + row_group() : num_rows) * call_.padded_head_size(),
                      static_cast<T>(0));
        // Both ends of the interval increase with the row.
        const Index begin = visible_interval(r_, sequence, row).begin;
        const Index end = visible_interval(r_, sequence, row + num_rows - 1).end;
        if (end > first_key && begin < first_key + num_keys) {
          if (!taken) tiles.take_keys(kv_head.sequence, kv_head.key_head, first_key, num_keys);
          if (!taken && ranges_) load_sums(kv_head, first_key, num_keys, sums);
          taken = true;
          tiles.take_rows(kv_head.key_head * group() + g, row, num_rows);
          run_rows(first_key, num_keys, tiles, rows, sums);
        }
        turns.finish(number, row_block);
      }
    }
    if (taken || !ranges_) write_keys(kv_head, first_key, num_keys, sums);
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

  void write_keys(const WaveHead& kv_head, Index first_key, Index num_keys, const T* sums) const {
    const Sequence& sequence = sequence_of(kv_head);
    const auto write = [&](const OutputView<4>& output, bool accumulate, Index count, Index padded, const T* from) {
      for (Index i = 0; i < num_keys && output.data; ++i) {
        write_or_add_numbers(accumulate, output.type, count, from + i * padded,
                             output.pointer(sequence.batch, kv_head.key_head, sequence.first_key + first_key + i, 0),
                             output.strides[3]);
      }
    };
    write(gradients_.key, gradients_.accumulate.grad_key, r_.head_size, call_.padded_head_size(), sums);
    write(gradients_.value, gradients_.accumulate.grad_value, r_.value_head_size, call_.padded_value_head_size(),
          sums + block_keys_ * call_.padded_head_size());
  }

  // Adds up the partial sums of up to 60 rows of the KV head's query heads, from `first` on, in the first slot's sum.
  void write_rows(const WaveHead& kv_head, Index first) {
    const Sequence& sequence = sequence_of(kv_head);
    const Index num_rows = std::min(kRows, group() * sequence.num_queries - first);
    progress_.add(num_rows);
    if (!gradients_.query.data) return;
    const Index padded = call_.padded_head_size();
    T* const sum = kv_head.num_slots > 0 ? partial(kv_head, 0) + first * padded : nullptr;
    for (Index slot = 1; slot < kv_head.num_slots; ++slot) {
      const T* more = partial(kv_head, slot) + first * padded;
      for (Index i = 0; i < num_rows * padded; ++i) sum[i] += more[i];
    }
    const T nothing = 0;
    const OutputView<4>& output = gradients_.query;
    const TaskRows rows{kv_head.key_head * group(), first, num_rows, sequence.num_queries};
    rows.for_each_head([&](Index head, Index first_row, Index begin, Index count) {
      for (Index i = 0; i < count; ++i) {
        const Index row = sequence.first_query + first_row + i;
        const auto write = [&](Index n, const T* from, Index d) {
          write_or_add_numbers(gradients_.accumulate.grad_query, output.type, n, from,
                               output.pointer(sequence.batch, head, row, d), output.strides[3]);
        };
        if (kv_head.num_slots > 0) {
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
  Index piece_keys_ = 0;  // of this wave
  Index tile_bytes_;
  Index sum_elements_;
  Progress progress_;
  ScratchVector<WaveHead> wave_heads_;
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

REGARD_INSTANTIATE_COMPUTE(round_keys);
REGARD_INSTANTIATE_COMPUTE(run_backward);

}  // namespace regard::inline v0::internal
