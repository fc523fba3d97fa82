// SPDX-License-Identifier: Apache-2.0
//
// The memory of a DecoderTraining: where each parameter is in its arena, and the activations of a call. Everything is
// planned and allocated once.
//
//   parameters, gradients   one arena each, in the order of decoder_parameters()
//   kept, per layer         input, normed, qkv, context, row_max, row_sum, middle, normed, up, activated
//   working                 two gradients of the residual stream, the gradients of qkv, context, up and activated
//
// With recompute there is one set of kept activations, except for the inputs of the layers.
// Read next: decoder_training.cpp.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "regard/train/decoder_training.h"
#include "zeroed_pages.h"

namespace regard::inline v0::internal {

// Zero-initialized memory that occupies pages only where it is written. Large blocks have huge pages: with small ones,
// an operator that reads columns of a large matrix would miss in the TLB at every row.
template <class T>
class ZeroedMemory {
 public:
  explicit ZeroedMemory(Index count = 0)
      : size_(static_cast<std::size_t>(count)), memory_(zeroed_pages(size_ * sizeof(T))) {}
  T* data() const { return reinterpret_cast<T*>(memory_.get()); }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  Pages memory_;
};

// A parameter and its gradient: a matrix (out, in) as stored.
template <class T>
struct TrainedMatrix {
  TensorView<T, 2> value;
  TensorView<T, 2> gradient;
};
// Absent if the model has no such vector.
template <class T>
struct TrainedVector {
  TensorView<T, 1> value;
  TensorView<T, 1> gradient;
};

template <class T>
struct TrainedNorm {
  TrainedVector<T> gain;
  TrainedVector<T> bias;
};

template <class T>
struct TrainedLinear {
  TrainedMatrix<T> weight;
  TrainedVector<T> bias;
};

template <class T>
struct TrainedLayer {
  TrainedNorm<T> attention_norm;
  TrainedLinear<T> qkv;     // query, key and value, joined
  TrainedLinear<T> output;  // of attention
  TrainedNorm<T> feed_forward_norm;
  TrainedLinear<T> up;  // swiglu: gate and up, joined
  TrainedLinear<T> down;
};

template <class T>
struct TrainedDecoder {
  TrainedMatrix<T> table;
  TrainedMatrix<T> positions;
  std::vector<TrainedLayer<T>> layers;
  TrainedNorm<T> norm;
  TrainedMatrix<T> output;  // of a tied model: table
};

// The views of all parameters. config must be completed().
template <class T>
TrainedDecoder<T> decoder_views(const DecoderConfig& config, std::span<const DecoderParameter> description,
                                T* parameters, T* gradients);

// What the backward pass needs from the forward pass of a layer, for max_sequences · max_length rows.
template <class T>
struct LayerActivations {
  T* normed;     // norm(input)
  T* qkv;        // query, key and value concatenated in a row, query and key after rotation
  T* context;    // (rows, H · D)
  T* row_max;    // (B, H, L)
  T* row_sum;    // (B, H, L)
  T* middle;     // input + attention
  T* normed_2;   // norm(middle)
  T* up;         // before the activation
  T* activated;  // after it
};

template <class T>
struct DecoderActivations {
  DecoderActivations(const DecoderConfig& config, const DecoderTrainingOptions& options);

  std::vector<T*> inputs;                   // of each layer, and of the last norm
  std::vector<LayerActivations<T>> layers;  // with recompute, all refer to the same memory
  T* normed;                                // of the last norm
  T* logits;                                // (rows, V); in backward, their gradient
  T* added;                                 // what a layer adds to the residual stream
  T* grad_residual;
  T* grad_branch;  // gradient of what a layer adds, and of a normed row
  T* grad_qkv;
  T* grad_context;
  T* grad_up;
  T* grad_activated;
  T* row_loss;
  std::vector<Index> tokens;     // of the call, one after the other
  std::vector<Index> positions;  // of each token
  std::vector<Index> targets;
  ZeroedMemory<T> memory;
  // With bf16_products: all parameters, the inputs of linear layers at their positions in `memory`, and the gradient of
  // one output.
  ZeroedMemory<bfloat16> rounded_parameters;
  ZeroedMemory<bfloat16> rounded_inputs;
  ZeroedMemory<bfloat16> rounded_gradient;
};

}  // namespace regard::inline v0::internal
