// SPDX-License-Identifier: Apache-2.0
//
// The kernels of one instruction set, as table.cpp collects them; table.h documents each one. Each is defined for float
// and double in the file named above its declaration.
#pragma once

#include "../instantiate.h"
#include "layer_table.h"

namespace regard::kernels {
template <class T>
struct AdamwElements;  // layer_table.h
template <class T>
struct SwigluBackward;
}  // namespace regard::kernels

// avx512_bf16 differs from avx512 in the kernels for pairs of bf16 values, and amx_bf16 in those of AMX; the others are
// those of avx512.
#if defined(REGARD_ISA_avx512_bf16)
#define REGARD_PAIRS_ONLY
#define REGARD_PLAIN_ISA avx512
#define REGARD_PAIR_ISA REGARD_ISA
#define REGARD_AMX_ISA avx512
#elif defined(REGARD_ISA_amx_bf16)
#define REGARD_PLAIN_ISA avx512
#define REGARD_PAIR_ISA avx512
#define REGARD_AMX_ISA REGARD_ISA
#else
#define REGARD_PLAIN_ISA REGARD_ISA
#define REGARD_PAIR_ISA REGARD_ISA
#define REGARD_AMX_ISA REGARD_ISA
#endif

namespace regard::kernels::REGARD_PLAIN_ISA {

// attention_pack.cpp; S, the type of the source, is T, or a 16-bit type if T is float
template <class T, class S = T>
struct PackKernels {
  static void pack_query(Matrix<S> source, Index num_rows, Index depth, T* packed);
  static void pack_keys(Matrix<S> source, Index num_keys, Index depth, T* panels);
  static void pack_values(Matrix<S> source, Index num_keys, Index columns, T* panels, std::uint8_t* finite);
  static void widen(const S* from, T* to, Index count)
    requires(sizeof(S) < sizeof(T));
};

// attention_tile.cpp
template <class T>
struct TileKernels {
  static void score_block(const ScoreBlock<T>& block);
  static void attention_block(const AttentionBlock<T>& block);
};

// attention_finish.cpp
template <class T>
struct FinishKernels {
  static void finish_chunk(Index num_rows, const ChunkState<T>& state);
  static bool finish_rows(const FinishRows<T>& rows);
};

// attention_weights.cpp
template <class T>
struct WeightsKernels {
  static void weights_block(Index num_rows, const T* row_max, const T* row_sum, T* scores);
  static void add_rows(Index num_rows, const T* weights, double* sums);
};

// attention_backward.cpp
template <class T>
struct BackwardKernels {
  static void grad_scores_block(const BackwardBlock<T>& block);
  static void backward_block(const BackwardBlock<T>& block);
};

// linear_tile.cpp
template <class T>
void linear_tile(Index num_rows, Index num_columns, Index depth, const T* packed_a, const T* panel_b, const T* bias,
                 Activation activation, T* output, Index output_stride, const T* next_panel);

// norm_forward.cpp, norm_backward.cpp
template <class T>
struct NormKernels {
  static void forward(const NormForward<T>& norm);
  static void backward(const NormBackward<T>& norm);
};

// dropout.cpp
template <class T>
void dropout_row(const DropoutRow<T>& row, T* to);

// elementwise.cpp
template <class T>
struct ElementwiseKernels {
  static void exp_elements(const T* x, T* y, Index count);
  static void tanh_elements(const T* x, T* y, Index count);
  static void log_elements(const T* x, T* y, Index count);
  static void gelu_elements(const T* x, T* y, Index count);
  static void gelu_tanh_elements(const T* x, T* y, Index count);
  static void add_elements(const T* x, T* sum, Index count);
  static void add_wide_elements(const T* x, double* sum, Index count);
  static void round_elements(const double* x, T* y, Index count);
};
void copy_rows(const RowCopy& rows);

// activation_rows.cpp
template <class T>
struct ActivationKernels {
  static void activate(Activation activation, const T* x, Index count, T* y);
  static void activate_backward(Activation activation, const T* x, const T* grad_output, Index count, bool accumulate,
                                T* grad_input);
  static void swiglu(const T* gate, const T* up, Index count, T* output);
  static void swiglu_backward(const SwigluBackward<T>& arrays);
};

// rotary_rows.cpp
template <class T>
struct RotaryKernels {
  static void factors(double position, const double* frequencies, Index count, T* cosines, T* sines);
  static void rotate_halves(const T* x, const T* cosines, const T* sines, Index pairs, bool accumulate, T* y);
  static void rotate_neighbors(const T* x, const T* cosines, const T* sines, Index pairs, bool accumulate, T* y);
};

// adamw.cpp
template <class T>
void adamw_elements(const AdamwElements<T>& elements, Index first, Index count);

// cross_entropy_row.cpp
template <class T>
void cross_entropy_row(const T* logits, Index count, Index target, double factor, T* gradient, double* sum,
                       double* distance);

// layer_table.cpp
template <class T>
struct LayerTable {
  static const LayerKernels<T> table;
};
extern template struct LayerTable<float>;
extern template struct LayerTable<double>;

// peak.cpp
inline constexpr int kPeakChains = 12;
float multiply_add_loop(Index iterations, float factor, float addend);
template <int kStreams>
std::int32_t read_loop(const float* data, Index count);

}  // namespace regard::kernels::REGARD_PLAIN_ISA

namespace regard::kernels::REGARD_PAIR_ISA {

// attention_pack_pairs.cpp
void pack_query_pairs(Matrix<Bfloat16> source, Index num_rows, Index depth, float* packed);
void pack_key_pairs(Matrix<Bfloat16> source, Index num_keys, Index depth, float* panels);
void pack_value_pairs(Matrix<Bfloat16> source, Index num_keys, Index columns, float* panels, std::uint8_t* finite);
void pair_lines(const Bfloat16* lines, Index num_lines, float* pairs);
void widen_pairs(const float* pairs, Index num_lines, float* lines);

// attention_tile.cpp
void score_pairs(const ScoreBlock<float>& block);
void attention_pairs(const AttentionBlock<float>& block);
void attention_pairs_wide(const AttentionBlock<float>& block);

// attention_backward.cpp
void grad_scores_pairs(const BackwardBlock<float>& block);
void backward_pairs(const BackwardBlock<float>& block);

// linear_tile.cpp
void linear_pairs(Index num_rows, Index num_columns, Index depth, const float* packed_a, const float* panel_b,
                  const float* bias, Activation activation, float* output, Index output_stride,
                  const float* next_panel);
void narrow(const float* from, Bfloat16* to, Index count);

}  // namespace regard::kernels::REGARD_PAIR_ISA

namespace regard::kernels::REGARD_AMX_ISA {

// linear_amx.cpp
void enter_amx();
void leave_amx();
void pack_amx_rows(Matrix<Bfloat16> source, Index num_rows, Index depth, float* packed);
void linear_amx(Index num_rows, Index num_columns, Index depth, const float* packed_a, const float* panel_b,
                const float* bias, Activation activation, float* output, Index output_stride);

}  // namespace regard::kernels::REGARD_AMX_ISA

#if defined(REGARD_ISA_avx512_bf16) || defined(REGARD_ISA_amx_bf16)
namespace regard::kernels::REGARD_ISA {
using namespace REGARD_PLAIN_ISA;
}
#endif
