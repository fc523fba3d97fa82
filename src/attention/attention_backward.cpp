// SPDX-License-Identifier: Apache-2.0
//
// attention_backward: how the work is divided, and the order in which sums are formed.
//
//   delta of every row                                           one parallel phase
//   for each wave of key heads
//     for each key head and slot s = 0 … 5:                      one parallel phase
//       for key blocks s, s + 6, …:                              up to 512 keys, packed; their sums in scratch
//         for each query head of the key head, in order
//           for each 60 rows, for each 64 keys                   kernels::backward_block
//         grad_key and grad_value of the key block are written
//     for each 60 rows: grad_query = Σ over slots, in order      one parallel phase, where there are several
//
// Each slot has its own partial sum of grad_query, so one head keeps six threads busy, and the result does not depend
// on which thread runs a slot. The derivation is in docs/derivations/attention_backward.md.
// Read next: backward_tiles.h.
#include "regard/attention_backward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "backward_arguments.h"
#include "backward_tiles.h"
#include "fingerprint.h"
#include "grad_bias.h"
#include "kernels/table.h"
#include "plan.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"
#include "visibility.h"

namespace regard::inline v0 {
namespace internal {
namespace {

using kernels::kBlockKeys;
using kernels::kRows;

constexpr Index kSlots = 6;  // partial sums of grad_query: divides evenly among 1, 2, 3 and 6 threads
constexpr Index kPartialBytes = Index{16} << 20;  // per wave, unless one key head needs more

// delta = Σ context · grad_context − grad_lse, accumulated in double.
template <class T>
void fill_delta(const ResolvedAttention<T>& r, const TypedForwardState<T>& saved, T* delta, const Runtime& runtime) {
  const Index rows = r.batch * r.num_heads * r.num_queries;
  const Index pieces = (rows + kRows - 1) / kRows;
  constexpr double kElementProducts = 16;  // an element, summed in order, takes as long as this many products
  const int workers = num_workers(
      runtime, pieces, kElementProducts * static_cast<double>(rows) * static_cast<double>(r.value_head_size));
  constexpr Index kRowsAtOnce = 4;  // rows: four independent in-order sums take no longer than one
  static_assert(kRows % kRowsAtOnce == 0);
  const Index row_numbers = 2 * r.value_head_size, numbers = kRowsAtOnce * row_numbers;
  const Workspace<T> scratch(runtime, workers * numbers);
  for_each_item(runtime, workers, pieces, [&](Index piece, int worker) {
    T* const context = scratch.data() + worker * numbers;
    T* const grad = context + r.value_head_size;
    for (Index first = piece * kRows; first < std::min(rows, (piece + 1) * kRows); first += kRowsAtOnce) {
      const auto place = [&](Index row) {
        return std::array{row / r.num_queries / r.num_heads, row / r.num_queries % r.num_heads, row % r.num_queries};
      };
      for (Index n = 0; n < kRowsAtOnce; ++n) {
        const std::array<Index, 3> at = place(std::min(first + n, rows - 1));
        const auto read = [&](const InputView<4>& view, T* to) {
          read_numbers(view.type, r.value_head_size, view.pointer(at[0], at[1], at[2], 0), view.strides[3],
                       to + n * row_numbers);
        };
        read(saved.context, context);
        read(saved.grad_context, grad);
      }
      double sums[kRowsAtOnce]{};
      for (Index c = 0; c < r.value_head_size; ++c) {
        for (Index n = 0; n < kRowsAtOnce; ++n)
          sums[n] += static_cast<double>(context[n * row_numbers + c]) * static_cast<double>(grad[n * row_numbers + c]);
      }
      for (Index n = 0; n < std::min(kRowsAtOnce, rows - first); ++n) {
        const auto [b, h, i] = place(first + n);
        if (!saved.grad_lse.absent()) sums[n] -= static_cast<double>(read_element(saved.grad_lse.pointer(b, h, i)));
        delta[first + n] = static_cast<T>(sums[n]);
      }
    }
  });
}

// grad_sinks[h] = −Σ over b and i of exp(sink − row_max) / row_sum · delta, summed in order in double.
template <class T>
void write_sinks(const BackwardCall<T>& call, const TensorView<T, 1>& output, bool accumulate) {
  const ResolvedAttention<T>& r = call.r;
  const auto& kernel = kernels::active().template of<T>();
  constexpr double kRowProducts = 1000;  // an exponential and a division cost as much as this many products
  const double products = kRowProducts * static_cast<double>(r.batch * r.num_heads * r.num_queries);
  for_each_item(call.runtime, num_workers(call.runtime, r.num_heads, products), r.num_heads, [&](Index h, int) {
    const T sink = r.sinks[static_cast<std::size_t>(h)];
    double sum = 0;
    for (Index row = 0; row < r.batch * r.num_queries && sink > -std::numeric_limits<T>::infinity(); ++row) {
      const Index b = row / r.num_queries, i = row % r.num_queries;
      const T row_max = read_element(call.saved.row_max.pointer(b, h, i));
      const T x = sink == row_max ? 0 : sink - row_max;
      T weight = 0;
      kernel.exp(&x, &weight, 1);
      weight /= read_element(call.saved.row_sum.pointer(b, h, i));
      sum -= static_cast<double>(weight) * static_cast<double>(call.delta[call.row(b, h, i)]);
    }
    const T rounded = static_cast<T>(sum);
    write_or_add_numbers(accumulate, kElementType<T>, 1, &rounded, output.pointer(h), 1);
  });
}

template <class T>
class Backward {
 public:
  Backward(const BackwardCall<T>& call, const TypedGradients<T>& gradients)
      : call_(call),
        r_(call.r),
        gradients_(gradients),
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
        if (!units_.empty() && (elements + more) * static_cast<Index>(sizeof(T)) > kPartialBytes) break;
        elements += more;
        units_.push_back(unit);
      }
      run_wave(elements);
    }
  }

 private:
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
      for (Index row = 0; row < rows && unit.num_slots > 1; row += kRows) row_blocks.emplace_back(&unit, row);
      products +=
          static_cast<double>(rows) * static_cast<double>(unit.num_keys * (3 * r_.head_size + 2 * r_.value_head_size));
    }
    const Index num_slots = static_cast<Index>(slots.size());
    const int workers = num_workers(call_.runtime, num_slots, products);
    const Index bytes = tile_bytes_ + sum_elements_ * static_cast<Index>(sizeof(T));
    const Workspace<std::byte> scratch(call_.runtime, workers * bytes);
    for_each_item(call_.runtime, workers, num_slots, [&](Index item, int worker) {
      const auto& [unit, slot] = slots[static_cast<std::size_t>(item)];
      run_slot(*unit, slot, scratch.data() + worker * bytes);
    });
    const Index blocks = static_cast<Index>(row_blocks.size());
    for_each_item(call_.runtime, num_workers(call_.runtime, blocks, products), blocks, [&](Index item, int) {
      const auto& [unit, row] = row_blocks[static_cast<std::size_t>(item)];
      write_rows(*unit, row);
    });
  }

  void run_slot(const WaveUnit& unit, Index slot, std::byte* memory) {
    BackwardTiles<T> tiles(call_, block_keys_, memory);
    T* const sums = reinterpret_cast<T*>(memory + tile_bytes_);
    for (Index key = slot * block_keys_; key < unit.num_keys; key += kSlots * block_keys_)
      run_keys(unit, slot, key, std::min(block_keys_, unit.num_keys - key), tiles, sums);
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
        taken = true;
        tiles.take_rows(unit.key_head * group() + g, row, num_rows);
        run_rows(first_key, num_keys, tiles, rows, sums);
      }
    }
    write_keys(unit, first_key, num_keys, sums);
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
  Index block_keys_;
  Index tile_bytes_;
  Index sum_elements_;
  Progress progress_;
  List<WaveUnit> units_;
  T* partials_ = nullptr;
};

#ifndef NDEBUG
// Throws std::invalid_argument if row_max and row_sum give a row whose weights sum to more than 1, which means that
// they come from a different call. A sum below 1 is valid: these keys may be a subset of those in the forward pass.
template <class T>
void check_weights(const AttentionCall& call, const ResolvedAttention<T>& r, const TypedForwardState<T>& saved,
                   const AttentionOptions& options, const Runtime& runtime) {
  constexpr T kMaxWeightSum = static_cast<T>(1.0625);  // allows for rounding errors of other implementations
  const Index rows = r.batch * r.num_heads * r.num_queries;
  const Workspace<T> numbers(runtime, rows * (r.value_head_size + 2));
  const TensorView<T, 4> context(numbers.data(), {r.batch, r.num_heads, r.num_queries, r.value_head_size});
  const std::array<Index, 3> shape{r.batch, r.num_heads, r.num_queries};
  const TensorView<T, 3> row_max(numbers.data() + rows * r.value_head_size, shape), row_sum(row_max.data + rows, shape);
  const PlanSuspension unnamed;
  const Runtime aside{.executor = runtime.executor,
                      .num_threads = runtime.num_threads,
                      .workspace = runtime.workspace,
                      .stop = runtime.stop};
  attention_forward(call.query, call.key, call.value, {.context = context, .row_max = row_max, .row_sum = row_sum},
                    options, aside);
  if (is_planning()) return;
  for (Index b = 0; b < r.batch; ++b) {
    for (Index h = 0; h < r.num_heads; ++h) {
      for (Index i = 0; i < r.num_queries; ++i) {
        const T scale = std::exp(*row_max.pointer(b, h, i) - read_element(saved.row_max.pointer(b, h, i)));
        const T sum = scale * *row_sum.pointer(b, h, i) / read_element(saved.row_sum.pointer(b, h, i));
        if (sum > kMaxWeightSum) {
          reject(kBackwardName, "row_max and row_sum make the weights of row (" + std::to_string(b) + ", " +
                                    std::to_string(h) + ", " + std::to_string(i) + ") sum to " + std::to_string(sum) +
                                    "; expected the values that attention_forward wrote for the same call");
        }
      }
    }
  }
}
#endif

template <class T>
void backward_call(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                   const AttentionForwardState& given, const AttentionGradients& requested,
                   const AttentionOptions& options, const Runtime& runtime) {
  const TypedGradients<T> gradients(requested);
  const AttentionCall call{kBackwardName, query, key, value, true, gradients.type()};
  const ResolvedAttention<T> r = resolve<T>(call, options, runtime);
  const TypedForwardState<T> saved(given);
  check_gradients(r, gradients, check_saved(call, r, saved, input_footprints(call, options)));
  check_fingerprint(kBackwardName, r, given.fingerprint);
  if (is_planning()) {
    plan_backward(kBackwardName, r,
                  view_bytes(gradients.query) + view_bytes(gradients.key) + view_bytes(gradients.value) +
                      view_bytes(gradients.bias) + view_bytes(gradients.sinks));
  }
#ifndef NDEBUG
  check_weights(call, r, saved, options, runtime);
#endif
  const Workspace<T> delta(runtime, r.batch * r.num_heads * r.num_queries);
  fill_delta(r, saved, delta.data(), runtime);
  const BackwardCall<T> backward{r, saved, delta.data(), runtime};
  const AttentionAccumulation& accumulate = gradients.accumulate;
  if (!gradients.sinks.absent()) write_sinks(backward, gradients.sinks, accumulate.grad_sinks);
  if (!gradients.bias.absent()) write_bias_gradient(backward, gradients.bias, accumulate.grad_bias);
  if (gradients.query.data || gradients.key.data || gradients.value.data) Backward<T>(backward, gradients).run();
}

}  // namespace
}  // namespace internal

void attention_backward(const InputView<4>& query, const InputView<4>& key, const InputView<4>& value,
                        const AttentionForwardState& saved, const AttentionGradients& gradients,
                        const AttentionOptions& options, const Runtime& runtime) {
  const internal::FloatingPointScope scope;
  internal::with_compute_type(query.type, [&]<class T>(T) {
    internal::backward_call<T>(query, key, value, saved, gradients, options, runtime);
  });
}

}  // namespace regard::inline v0
