// SPDX-License-Identifier: Apache-2.0
//
// The interface between the library (one function per operator: batch, heads, threads, checks) and the kernels (one
// head, one tile, no allocation, no exceptions). Each instruction set fills one constant KernelTable;
// src/runtime/isa.cpp selects one. Layouts that both sides use are defined here and are the same on every instruction
// set:
//
//   packed keys    [panel of 32 keys][D][32]                scores have one lane per key
//   packed values  [panel of 32 keys][⌈Dv/32⌉][32][32]      context has one lane per value column
//   … of pairs     [panel of 32 keys][⌈D/2⌉][32][2]  and  [panel of 32 keys][⌈Dv/32⌉][16][32][2]  of bf16
//   a task         up to kRows query rows of one KV head, which process the keys block by block, chunk by chunk
//
// All strides count elements.
// Read next: attention_tile.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace regard::kernels {

using Index = std::int64_t;

inline constexpr Index kPanel = 32;      // keys of a packed panel; columns of a packed value panel
inline constexpr Index kBlockKeys = 64;  // one step of the running maximum, one chain of products with value:
                                         // 64 equal addends drift by at most 21 u, 256 by 85 u (docs/decisions.md)
inline constexpr Index kBlockPanels = kBlockKeys / kPanel;
inline constexpr Index kChunkKeys = 1024;    // chunks start from an empty state and are merged at the end
inline constexpr Index kRows = 60;           // query rows of a task: five register tiles of 12 rows
inline constexpr Index kPaddedRows = 64;     // per-row arrays are read and written in whole vectors
inline constexpr Index kDepthSegment = 256;  // longest chain of products in a dot product
inline constexpr Index kLanes = 16;          // virtual lanes of a row sum
inline constexpr Index kAmxRows = 16;        // rows of a tile register of AMX
inline constexpr Index kAmxDepth = 32;       // bf16 elements of each of them
inline constexpr Index kAmxBlockRows = 64;   // rows of a task of a linear layer that uses AMX

// Of the sums of a linear layer. added: none, and they are added to the output.
enum class Activation { none, relu, gelu, gelu_tanh, silu, added };

// A matrix in any layout: element (r, c) is data[r * row_stride + c * column_stride].
template <class T>
struct Matrix {
  const T* data;
  Index row_stride;
  Index column_stride;
};

// 16-bit elements as stored in memory; packing converts them to float exactly.
struct Bfloat16 {
  std::uint16_t bits;
};
struct Float16 {
  std::uint16_t bits;
};

// How raw dot products become scores, for the rows of a task and the keys of a block.
template <class T>
struct ScoreRules {
  T scale;
  T soft_cap;                   // 0 means off
  const T* alibi_slopes;        // [num_rows], or nullptr
  const Index* positions;       // [num_rows]: p, with alibi_slopes or statistics
  const T* bias;                // [num_rows][kBlockKeys], or nullptr
  const Index* visible_begin;   // [num_rows]: row r attends to keys visible_begin[r] ≤ j < visible_end[r],
  const Index* visible_end;     // [num_rows]: counted like first_key
  const std::int32_t* visible;  // [num_rows][kBlockKeys]: −1, or 0 for keys that are invisible in addition; or nullptr
};

// The keys or values of a block as stored in a cache or in the caller's tensor, for tasks of few rows, which read them
// once and convert them in registers.
inline constexpr Index kFewRows = 4;
inline constexpr Index kRowStep = 8;    // divides row widths, for whole or overlapping vectors; even, for pairs
inline constexpr Index kLeastRow = 32;  // the number of 16-bit elements in the widest vector
enum class Stored { compute_type, bfloat16, float16, int8 };
struct StoredPanels {
  Stored type;
  // 0 for packed panels, otherwise the number of elements from a key's row to the next key's. Rows have row_width
  // contiguous elements (head_size or columns), a multiple of kRowStep and at least kLeastRow.
  Index row_stride;
  Index row_width;
  const void* panels[kBlockPanels];   // nullptr if there are no keys
  const void* next[kBlockPanels];     // of the next block, to be prefetched; nullptr means none
  const float* scales[kBlockPanels];  // int8: scales of the panel's 32 keys or values; otherwise unused
  const float* next_scales[kBlockPanels];
};

// Memory that a worker needs next: a few of its lines are prefetched with each register tile, so that they arrive while
// products are computed. The kernel advances through it.
struct PrefetchPlan {
  struct Rows {
    const char* next;
    Index stride;  // in bytes, from a row to the next
    Index bytes;   // of a row
    Index count;   // of rows that remain
  };
  static constexpr int kMatrices = 6;
  Rows rows[kMatrices];
  Index rows_a_tile;  // per tile, of each matrix
};

// The scores of num_rows query rows against the keys of one block.
template <class T>
struct ScoreBlock {
  Index num_rows;                     // ≤ kRows
  Index head_size;                    // D
  const T* query;                     // packed by pack_query
  const T* key_panels[kBlockPanels];  // nullptr if there are no keys
  const StoredPanels* stored_keys;    // used instead if not nullptr, for num_rows ≤ kFewRows
  Index first_key;                    // index of the block's first key in its sequence
  Index num_keys;                     // ≤ kBlockKeys; lanes from there on are invisible
  ScoreRules<T> rules;
  T* scores;                    // [kRows][kBlockKeys], written: −∞ where invisible
  PrefetchPlan* prefetch_plan;  // nullptr if there is nothing to prefetch
  bool multiplied;              // scores already hold scale · Q·Kᵀ, computed as next_score of an AttentionBlock
};

// Running state of one task within one chunk; after finish_chunk, the result of the chunk.
template <class T>
struct ChunkState {
  T* row_max;      // [kRows]
  T* row_lanes;    // [kRows][kLanes]
  T* row_sum;      // [kRows], written by finish_chunk
  T* accumulator;  // [kRows][padded columns]
};

// Index type of keys, with the width of T.
template <class T>
struct KeyOf {
  using type = std::int64_t;
};
template <>
struct KeyOf<float> {
  using type = std::int32_t;
};

// The statistics that are computed along with the softmax of a task's rows.
template <class T>
struct RowStatistics {
  using Key = typename KeyOf<T>::type;
  // Over all blocks so far: the best scores above −∞ in descending order, equal ones by key; −∞ and −1 if there are
  // fewer. Entries from num_best on are unspecified.
  Index num_best;  // 1 … kBlockKeys
  T* best_scores;  // [kRows][kBlockKeys]
  Key* best_keys;  // [kRows][kBlockKeys]
  T* least_best;   // [kRows]: score num_best − 1; +∞ if none are to be kept
  // Over the chunk, for rows with finite row_max; laid out like row_lanes.
  T* log_lanes;       // [kRows][kLanes]: Σ p · (score − row_max)
  T* distance_lanes;  // [kRows][kLanes]: Σ p · |position − key|
};

template <class T>
struct AttentionBlock {
  ScoreBlock<T> score;
  const T* value_panels[kBlockPanels];
  const StoredPanels*
      stored_values;     // used instead if not nullptr, for num_rows ≤ kFewRows; packed panels must be finite
  Index padded_columns;  // Dv rounded up to kPanel
  bool values_finite;    // false if some value of the block is NaN or ±∞
  T value_scale;         // 1; a smaller power of two if the caller repeats rows whose sums overflowed
  const T* dropout;      // [kRows][kBlockKeys]: factors of p for the values; nullptr means 1
  ChunkState<T> state;
  const RowStatistics<T>* statistics;  // nullptr means none
  // With stored_values: the next block, with stored_keys. Its scores become scale · Q·Kᵀ in the meantime, without any
  // rule applied, so that reading never pauses. nullptr means none.
  const ScoreBlock<T>* next_score;
};

// Folds the chunk results of num_rows rows and divides. Chunk c of row r is at [c * chunk_stride + r * row_stride] of
// the accumulators, and at [c * row_chunk_stride + r] of the other arrays.
template <class T>
struct FinishRows {
  Index num_chunks;
  Index num_rows;
  Index columns;  // Dv
  const T* accumulator;
  Index accumulator_chunk_stride;
  Index accumulator_row_stride;  // columns are contiguous
  const T* row_max;
  const T* row_sum;
  Index row_chunk_stride;
  const T* sinks;      // [num_rows], or nullptr
  T value_scale;       // the accumulators' value_scale
  T* context;          // [num_rows][columns], contiguous, written
  T* out_row_max;      // [num_rows], written
  T* out_row_sum;      // [num_rows], written
  T* out_lse;          // [num_rows], written; or nullptr
  T* out_sink_weight;  // [num_rows], written
};

// One row of 64 keys, for dropout: its random words depend on batch entry, query head, row of query and row of key.
template <class T>
struct DropoutRow {
  std::uint64_t seed;
  std::uint32_t batch;
  std::uint32_t head;
  std::uint32_t query;
  Index first_key;
  std::uint64_t threshold;  // 32-bit words below it are dropped
  T factor;                 // the value of the others
};

// The contributions of the rows of a task and the keys of one block to each other's gradients. "By rows": packed by
// pack_values, so that lanes run along the elements of a row. Padded: rounded up to kPanel.
template <class T>
struct BackwardBlock {
  Index num_rows;              // ≤ kRows
  Index columns;               // Dv
  Index padded_depth;          // D, padded
  Index padded_columns;        // Dv, padded
  Index first_key;             // index of the block's first key in its sequence
  Index num_keys;              // ≤ kBlockKeys
  const Index* visible_begin;  // [num_rows], as in ScoreRules
  const Index* visible_end;
  const T* row_max;  // [num_rows]
  const T* row_sum;  // [num_rows]
  const T* delta;    // [num_rows]
  const T* dropout;  // [kRows][kBlockKeys]: factors of the weights; nullptr means 1
  const T* capped;   // [kRows][kBlockKeys]: scores after the soft cap alone; nullptr means no soft cap
  T soft_cap;        // with capped
  T scale;
  const T* grad_context;                // packed by pack_query
  const T* value_panels[kBlockPanels];  // packed by pack_keys; nullptr if there are no keys
  T* scores;                            // [kRows][kBlockKeys]: of score_block; replaced by the weights, after dropout
  T* grad_scores;                       // [kRows][kBlockKeys], written: ∂loss / ∂(query · key)

  // Used by backward_block only.
  const T* grad_context_rows;       // by rows, two panels
  const T* query_rows;              // by rows, two panels
  const T* key_rows[kBlockPanels];  // by rows
  bool finite;                      // false if some element of query, key or grad_context is not finite
  // Accumulated, or nullptr. If num_rows is not a multiple of row_group, rows of sum_query beyond num_rows are read and
  // written back.
  T* sum_query;  // [num_rows][padded_depth]
  T* sum_key;    // [kBlockKeys][padded_depth]
  T* sum_value;  // [kBlockKeys][padded_columns]
};

// The kernels of layers other than attention and linear ones (layer_table.h).
template <class T>
struct LayerKernels;

template <class T>
struct Kernels {
  Index row_group;  // query rows of a register tile; pack_query pads to a multiple of it

  // (rows, depth) → [group][depth][row_group]; rows past the end are zero. Also packs the left operand of linear_tile.
  void (*pack_query)(Matrix<T> source, Index num_rows, Index depth, T* packed);
  // (keys, depth) → panels [depth][kPanel]; keys past the end are zero. Also packs the right operand of linear_tile.
  void (*pack_keys)(Matrix<T> source, Index num_keys, Index depth, T* panels);
  // (keys, columns) → panels; finite[panel] is set to whether every value of the panel is finite.
  void (*pack_values)(Matrix<T> source, Index num_keys, Index columns, T* panels, std::uint8_t* finite);

  void (*score_block)(const ScoreBlock<T>&);
  void (*attention_block)(const AttentionBlock<T>&);
  void (*finish_chunk)(Index num_rows, const ChunkState<T>&);
  // Returns whether some context is not finite although its row_sum is, because a sum overflowed or because the row
  // attends to a value that is not finite.
  bool (*finish_rows)(const FinishRows<T>&);
  // weights[r][j] = exp(score − row_max[r]) / row_sum[r], in place, for a block of scores.
  void (*weights_block)(Index num_rows, const T* row_max, const T* row_sum, T* scores);
  // Replaces scores by weights, and writes grad_scores.
  void (*grad_scores_block)(const BackwardBlock<T>&);
  // The same, and adds three products to the gradients of query, key and value.
  void (*backward_block)(const BackwardBlock<T>&);
  // sums[j] += weights[r][j], r in order, for a block of weights.
  void (*add_rows)(Index num_rows, const T* weights, double* sums);
  // output[r][c] = activation(Σ_i a(r, i) · b(i, c) + bias[c]), or output[r][c] + the sum for Activation::added, with
  // dense rows output_stride apart; ≤ kRows rows, ≤ kPanel columns; bias may be nullptr. next_panel is nullptr, or the
  // panel of the next call, of the same size, which may be prefetched.
  void (*linear_tile)(Index num_rows, Index num_columns, Index depth, const T* packed_a, const T* panel_b,
                      const T* bias, Activation activation, T* output, Index output_stride, const T* next_panel);

  void (*dropout_row)(const DropoutRow<T>&, T* factors);  // [kBlockKeys], written

  void (*exp)(const T*, T*, Index);  // x ≤ 0
  void (*tanh)(const T*, T*, Index);
  void (*log)(const T*, T*, Index);  // x > 0
  void (*gelu)(const T*, T*, Index);
  void (*gelu_tanh)(const T*, T*, Index);

  const LayerKernels<T>* layers;
};

// Packing of 16-bit elements into the layouts read by Kernels<float>: counterparts of the functions of the same names.
template <class S>
struct WideningKernels {
  void (*pack_query)(Matrix<S> source, Index num_rows, Index depth, float* packed);
  void (*pack_keys)(Matrix<S> source, Index num_keys, Index depth, float* panels);
  void (*pack_values)(Matrix<S> source, Index num_keys, Index columns, float* panels, std::uint8_t* finite);
  void (*widen)(const S* from, float* to, Index count);  // to[i] = from[i]
};

// bfloat16 values that are multiplied without conversion, two at a time. In what these functions pack, a pair takes the
// place of a float: two dimensions for query and keys, two keys for values; a missing second value is zero. The
// products treat subnormal values as zero (dot_pairs in simd.h).
struct PairKernels {
  void (*pack_query)(Matrix<Bfloat16> source, Index num_rows, Index depth, float* packed);
  void (*pack_keys)(Matrix<Bfloat16> source, Index num_keys, Index depth, float* panels);
  void (*pack_values)(Matrix<Bfloat16> source, Index num_keys, Index columns, float* panels, std::uint8_t* finite);
  // [num_lines][kPanel] → [⌈num_lines / 2⌉][kPanel][2]: a panel of a cache, whose lines are dimensions or keys.
  void (*pair_lines)(const Bfloat16* lines, Index num_lines, float* pairs);
  // The inverse, converted to float: [⌈num_lines / 2⌉][kPanel][2] → floats [num_lines][kPanel].
  void (*widen_pairs)(const float* pairs, Index num_lines, float* lines);

  // Query and keys are pairs. In attention_block, so are values, and weights are rounded to bf16 after they were added
  // to the sum. In attention_block_wide, values are floats and weights are not rounded.
  void (*score_block)(const ScoreBlock<float>&);
  void (*attention_block)(const AttentionBlock<float>&);
  void (*attention_block_wide)(const AttentionBlock<float>&);
  // All operands are pairs, including query, key and grad_context by rows. Weights and grad_scores are rounded to bf16
  // for the three accumulated products; grad_scores_block writes them unrounded, backward_block need not write them.
  void (*grad_scores_block)(const BackwardBlock<float>&);
  void (*backward_block)(const BackwardBlock<float>&);
  // Like that of Kernels<float>, with rows and panel of pairs; depth counts elements.
  void (*linear_tile)(Index num_rows, Index num_columns, Index depth, const float* packed_a, const float* panel_b,
                      const float* bias, Activation activation, float* output, Index output_stride,
                      const float* next_panel);
  // to[i] = from[i], rounded to nearest even; subnormal values are kept.
  void (*narrow)(const float* from, Bfloat16* to, Index count);
};

// bfloat16 values that linear layers multiply with AMX, whose tile registers hold 16 rows of 32 values. The right
// operand is that of PairKernels. The products treat subnormal values as zero (linear_amx.cpp).
struct AmxKernels {
  // Before the first linear_tile of a task, and after the last: the shapes of the thread's tile registers.
  void (*enter)();
  void (*leave)();
  // (rows, depth) → [⌈rows / 16⌉][⌈depth / 32⌉][16][32]; rows and elements past the end are zero.
  void (*pack_rows)(Matrix<Bfloat16> source, Index num_rows, Index depth, float* packed);
  // Like that of Kernels<float>, with ≤ kAmxBlockRows rows and without the next panel; depth counts elements.
  void (*linear_tile)(Index num_rows, Index num_columns, Index depth, const float* packed_a, const float* panel_b,
                      const float* bias, Activation activation, float* output, Index output_stride);
};

// Loops that measure the limits of the machine (used by src/runtime/peaks.cpp).
struct PeakLoop {
  Index operations;  // per iteration; a fused multiply-add counts as two
  float (*run)(Index iterations, float factor, float addend);
};
inline constexpr int kReadLoops = 3;
inline constexpr Index kReadStep = 1024;  // floats, one page: a multiple of what any read loop reads at once
struct PeakLoops {
  PeakLoop multiply_add;
  // Reads `count` floats once each, a multiple of kReadStep, and returns a value that depends on all of them.
  std::int32_t (*read[kReadLoops])(const float* data, Index count);
};

struct KernelTable {
  const char* name;
  bool fused_multiply_add;                  // the results of all tables that have it are bit-identical
  std::uint64_t (*enter_floating_point)();  // saves the state; round to nearest, subnormals kept, exceptions masked
  void (*leave_floating_point)(std::uint64_t);
  Kernels<float> f32;
  Kernels<double> f64;
  WideningKernels<Bfloat16> bf16;
  WideningKernels<Float16> f16;
  bool bf16_dot;  // dot_pairs is one instruction: operators use the pairs; tests exercise them with every table
  PairKernels pairs;
  bool bf16_amx;  // the processor has AMX: linear layers use it; tests exercise its emulation with every table
  AmxKernels amx;
  PeakLoops peak;

  template <class T>
  constexpr const Kernels<T>& of() const {
    if constexpr (sizeof(T) == sizeof(float)) {
      return f32;
    } else {
      return f64;
    }
  }
};

namespace generic {
extern const KernelTable table;
}
namespace avx2 {
extern const KernelTable table;
}
namespace avx512 {
extern const KernelTable table;
}
namespace simd128 {
extern const KernelTable table;
}
namespace neon {
extern const KernelTable table;
}
namespace avx512_bf16 {
extern const KernelTable table;
extern const PeakLoop dot_loop;
}  // namespace avx512_bf16
namespace amx_bf16 {
extern const KernelTable table;
}

// The table that operators use: the one named by REGARD_FORCE_ISA, or the fastest that the processor supports
// (src/runtime/isa.cpp).
const KernelTable& active();
int num_available();
const KernelTable& available(int index);
void set_active(const KernelTable* table);  // for tests; nullptr restores the choice

}  // namespace regard::kernels
