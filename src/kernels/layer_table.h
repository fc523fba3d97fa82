// SPDX-License-Identifier: Apache-2.0
//
// The kernels of layers other than attention and linear ones: rows of norms, activations, rotations and losses; and
// optimizers. The table of an instruction set refers to them (Kernels<T>::layers), so that a new layer does not
// recompile attention.
// Read next: layer_table.cpp.
#pragma once

#include "table.h"

namespace regard::kernels {

// Arrays of `count` elements. An output may be one of the inputs.
template <class T>
struct SwigluBackward {
  Index count;
  const T* gate;
  const T* up;
  const T* grad_output;
  T* grad_gate;
  T* grad_up;
  bool accumulate_gate;  // adds to grad_gate
  bool accumulate_up;
};

// Elements that a step of AdamW updates, and the numbers that they share (regard/adamw.h).
template <class T>
struct AdamwElements {
  T* parameters;
  const T* gradients;
  T *first_moment, *second_moment;
  T gradient_scale;
  T to_gradient;       // 1 − beta1
  T keep_square;       // beta2
  T to_square;         // 1 − beta2
  T root_scale;        // 1 / √(1 − beta2^step)
  T epsilon;           //
  T keep_parameter;    // 1 − learning_rate · weight_decay
  T along_the_moment;  // −learning_rate / (1 − beta1^step)
};

inline constexpr Index kNormRows = 8;  // rows of a call
// Columns whose gain and bias are converted to double at a time: half of a small L1.
inline constexpr Index kNormColumns = 1024;
inline constexpr Index kNormScratch = 2 * kNormColumns;

// Rows of a layer norm, or of an RMS norm. The elements of a row are contiguous.
//
//   x = input + addend        mean = Σ x / width        deviation = √(Σ (x − mean)² / width + epsilon)
template <class T>
struct NormRows {
  Index num_rows;  // ≤ kNormRows
  Index width;     // ≥ 1
  bool centered;   // false: RMS norm, mean = 0
  double epsilon;
  const T* input;
  Index input_stride;
  const T* addend;  // nullptr means 0
  Index addend_stride;
  T* x;           // [num_rows][width], written if there is an addend; may be input or addend, if their stride is width
  const T* gain;  // [width]
  double* scratch;  // [kNormScratch]
};

// output = (x − mean) / deviation · gain + bias, rounded to T once.
template <class T>
struct NormForward {
  NormRows<T> rows;
  const T* bias;  // [width]; nullptr means none
  T* output;
  Index output_stride;
};

// With g = grad_output · gain and n = (x − mean) / deviation, and Σ over the columns of a row:
//
//   grad_input = (g − Σ g / width − n · Σ (g · n) / width) / deviation            RMS norm: without Σ g / width
//   sum_gain  += grad_output · n            sum_bias += grad_output               rows in order
template <class T>
struct NormBackward {
  NormRows<T> rows;
  const T* grad_output;
  Index grad_output_stride;
  T* grad_input;  // nullptr if not needed
  Index grad_input_stride;
  bool accumulate;   // add to grad_input
  double* sum_gain;  // [width, rounded up to kLanes]; nullptr if not needed
  double* sum_bias;  // likewise; only with sum_gain
};

// Rows of any type, and where they are copied to.
struct RowCopy {
  Index num_rows;
  Index num_bytes;                   // of a row
  const unsigned char* const* from;  // [num_rows]
  unsigned char* to;
  Index to_stride;  // in bytes
};

template <class T>
struct LayerKernels {
  // sum[i] = sum[i] + x[i]
  void (*add)(const T* x, T* sum, Index count);
  // The same with a sum in double.
  void (*add_wide)(const T* x, double* sum, Index count);
  // y[i] = x[i], rounded to nearest even.
  void (*round)(const double* x, T* y, Index count);
  // Copies rows that may be anywhere in memory, and prefetches the next row while copying.
  void (*copy_rows)(const RowCopy& rows);

  // Norms.
  void (*norm_forward)(const NormForward<T>&);
  void (*norm_backward)(const NormBackward<T>&);

  // Activations. An output may be one of the inputs.
  // y = f(x)
  void (*activate)(Activation activation, const T* x, Index count, T* y);
  // grad_input = grad_output · f′(x), added to grad_input if accumulate
  void (*activate_backward)(Activation activation, const T* x, const T* grad_output, Index count, bool accumulate,
                            T* grad_input);
  // output = silu(gate) · up
  void (*swiglu)(const T* gate, const T* up, Index count, T* output);
  void (*swiglu_backward)(const SwigluBackward<T>& arrays);

  // Rotary position embedding.
  // cosines[i] = cos(position · frequencies[i]), in double, rounded to T; |position · frequencies[i]| ≤ 2³¹. The sines
  // likewise. The sines of −position are their negatives.
  void (*rotary_factors)(double position, const double* frequencies, Index count, T* cosines, T* sines);
  // Rotates pair i, (a, b), to (a · cosines[i] − b · sines[i], b · cosines[i] + a · sines[i]); adds it to y if
  // accumulate; y may be x. halves: pair i is (x[i], x[i + pairs]); neighbors: (x[2i], x[2i + 1]).
  void (*rotate_halves)(const T* x, const T* cosines, const T* sines, Index pairs, bool accumulate, T* y);
  void (*rotate_neighbors)(const T* x, const T* cosines, const T* sines, Index pairs, bool accumulate, T* y);

  // Losses.
  // sum = Σ exp(logits[v] − max) and distance = max − logits[target]: the loss is ln sum + distance. Also writes
  // factor · (softmax(logits)[v] − [v = target]) to gradient, which may be logits, or nullptr. count ≥ 1.
  void (*cross_entropy_row)(const T* logits, Index count, Index target, double factor, T* gradient, double* sum,
                            double* distance);

  // Optimizers.
  void (*adamw_elements)(const AdamwElements<T>& elements, Index first, Index count);
};

}  // namespace regard::kernels
