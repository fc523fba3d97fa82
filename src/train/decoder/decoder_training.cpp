// SPDX-License-Identifier: Apache-2.0
//
// Forward and backward of a decoder. Activations of layer i, and the gradients that pass through it:
//
//   inputs[i] ─ norm ─ qkv ─ rotary ─ attention ─ output ─(+)─▶ middle ─ norm ─ up ─ activation ─ down ─(+)─▶
//   inputs[i + 1]
//       └──────────────────────────────────────────────────┘       └──────────────────────────────────────┘
//   grad_residual moves from right to left; every branch adds its gradient to it.
//
// Sums over rows are formed sequence by sequence (rows_per_group = L), so that micro-batches give the same bits as the
// whole batch. In a chain of ranks, each group of gradients is received before it is added to, and then sent.
// Read next: decoder_memory.h.
#include "regard/train/decoder_training.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>

#include "decoder_memory.h"
#include "instantiate.h"
#include "regard/activation.h"
#include "regard/attention_backward.h"
#include "regard/convert.h"
#include "regard/cross_entropy.h"
#include "regard/embedding.h"
#include "regard/error.h"
#include "regard/layer_norm.h"
#include "regard/linear_backward.h"
#include "regard/rms_norm.h"
#include "regard/rotary.h"
#include "residual.h"
#include "scratch_memory.h"

namespace regard::inline v0 {
namespace internal {
namespace {

[[noreturn]] void reject(const std::string& what) { throw InvalidArgument("decoder: " + what); }

// Adds its lifetime to one of the times of a profile.
class Timer {
 public:
  explicit Timer(double& seconds) : seconds_(seconds) {}
  ~Timer() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  double& seconds_;
  Clock::time_point begin_ = Clock::now();
};

DecoderTrainingOptions completed(DecoderTrainingOptions options, const DecoderConfig& config, bool is_float) {
  if (options.max_length == 0) options.max_length = config.max_positions;
  if (options.max_sequences < 1 || options.max_sequences > (1 << 24))
    reject("max_sequences is " + std::to_string(options.max_sequences) + "; expected 1 to 16777216");
  if (options.max_length < 1 || options.max_length > config.max_positions)
    reject("max_length is " + std::to_string(options.max_length) + "; expected 1 to max_positions, " +
           std::to_string(config.max_positions));
  if (options.bf16_products && !is_float) reject("bf16_products is true; expected false for double");
  return options;
}

}  // namespace
}  // namespace internal

template <class T>
struct DecoderTraining<T>::State {
  State(const DecoderConfig& given, const DecoderTrainingOptions& given_options)
      : config(completed(given)),
        options(internal::completed(given_options, config, std::is_same_v<T, float>)),
        description(decoder_parameters(config)),
        parameters(decoder_size(config)),
        gradients(decoder_size(config)),
        model(internal::decoder_views(config, std::span<const DecoderParameter>(description), parameters.data(),
                                      gradients.data())),
        now(config, options),
        token_gradient(config.tied ? model.table.value.size() : 0),
        output_gradient(config.tied ? model.table.value.size() : 0),
        table_rows(static_cast<std::size_t>(config.tied ? config.vocabulary : 0)) {
    // Groups are contiguous in the arena, starting from its end.
    T* end = gradients.data() + gradients.size();
    const auto add_group = [&](T* begin) {
      groups.push_back({begin, end});
      end = begin;
    };
    add_group(model.norm.gain.gradient.data);
    for (auto layer = model.layers.rbegin(); layer != model.layers.rend(); ++layer) {
      if (config.feed_forward_kind != FeedForwardKind::none) add_group(layer->feed_forward_norm.gain.gradient.data);
      add_group(layer->attention_norm.gain.gradient.data);
    }
    add_group(gradients.data());
  }

  // ---- Views of the rows of a call.
  Index rows() const { return batch * length; }
  TensorView<T, 2> matrix(T* data, Index columns) const { return {data, {rows(), columns}}; }
  TensorView<T, 2> residual(T* data) const { return matrix(data, config.width); }
  Index qkv_width() const { return (config.num_heads + 2 * config.num_kv_heads) * config.head_size; }
  // Heads first … first + count − 1 of rows of qkv, as (B, count, L, D).
  TensorView<T, 4> heads(T* data, Index row_width, Index first, Index count) const {
    return {data + first * config.head_size,
            {batch, count, length, config.head_size},
            {length * row_width, config.head_size, row_width, 1}};
  }
  struct Heads {
    TensorView<T, 4> query, key, value;
  };
  Heads split(T* qkv) const {
    const Index width = qkv_width();
    return {heads(qkv, width, 0, config.num_heads), heads(qkv, width, config.num_heads, config.num_kv_heads),
            heads(qkv, width, config.num_heads + config.num_kv_heads, config.num_kv_heads)};
  }
  TensorView<T, 4> contexts(T* context) const {
    return heads(context, config.num_heads * config.head_size, 0, config.num_heads);
  }
  TensorView<T, 3> row_states(T* state) const { return {state, {batch, config.num_heads, length}}; }
  AttentionRecord<T> record(Index layer) const {
    const auto& of = now.layers[static_cast<std::size_t>(layer)];
    const Heads h = split(of.qkv);
    return {h.query, h.key, h.value, contexts(of.context), row_states(of.row_max), row_states(of.row_sum)};
  }

  // ---- Operators with this model's choices.
  void norm(const internal::TrainedNorm<T>& of, T* input, T* output, const Runtime& runtime) const {
    const internal::Timer timer(profile.norms);
    if (config.norm == NormKind::layer) {
      layer_norm_forward<T>(residual(input), {}, of.gain.value, of.bias.value, residual(output), config.norm_epsilon,
                            runtime);
    } else {
      rms_norm_forward<T>(residual(input), {}, of.gain.value, residual(output), config.norm_epsilon, runtime);
    }
  }
  // Adds to grad_residual.
  void norm_backward(const internal::TrainedNorm<T>& of, T* input, T* grad_output, const Runtime& runtime) const {
    const internal::Timer timer(profile.norms);
    if (config.norm == NormKind::layer) {
      layer_norm_backward<T>(residual(input), {}, of.gain.value, residual(grad_output),
                             {.grad_input = residual(now.grad_residual),
                              .grad_gain = of.gain.gradient,
                              .grad_bias = of.bias.gradient,
                              .accumulate = {true, accumulate, accumulate},
                              .rows_per_group = length},
                             config.norm_epsilon, runtime);
    } else {
      rms_norm_backward<T>(residual(input), {}, of.gain.value, residual(grad_output),
                           {.grad_input = residual(now.grad_residual),
                            .grad_gain = of.gain.gradient,
                            .accumulate = {true, accumulate},
                            .rows_per_group = length},
                           config.norm_epsilon, runtime);
    }
  }
  void linear(const internal::TrainedLinear<T>& of, T* input, T* output, const Runtime& runtime) const {
    const internal::Timer timer(profile.products);
    const auto [out, in] = of.weight.value.shape;
    if constexpr (std::is_same_v<T, float>) {
      if (options.bf16_products) {
        linear_forward(rounded_rows(input, in, rounded_input(input), runtime), transposed(rounded(of.weight)), {},
                       matrix(output, out), runtime);
        if (!of.bias.value.absent()) internal::add_bias<T>(matrix(output, out), of.bias.value, runtime);
        return;
      }
    }
    linear_forward<T>(matrix(input, in), transposed(of.weight.value), of.bias.value, matrix(output, out), runtime);
  }
  // ---- Operands of products in bfloat16. The parameters are rounded once in each call.
  TensorView<const bfloat16, 2> rounded(const internal::TrainedMatrix<T>& of) const {
    return {now.rounded_parameters.data() + (of.value.data - parameters.data()), of.value.shape};
  }
  bfloat16* rounded_input(const T* input) const { return now.rounded_inputs.data() + (input - now.memory.data()); }
  TensorView<const bfloat16, 2> rounded_rows(T* rows_of, Index columns, bfloat16* memory,
                                             const Runtime& runtime) const {
    const TensorView<bfloat16, 2> to(memory, {rows(), columns});
    convert(matrix(rows_of, columns), to, runtime);
    return to;
  }
  void round_parameters(const Runtime& runtime) const {
    const internal::Timer timer(profile.products);
    if (!options.bf16_products) return;
    const std::array<Index, 2> shape{1, static_cast<Index>(parameters.size())};
    convert(TensorView<T, 2>(parameters.data(), shape), TensorView<bfloat16, 2>(now.rounded_parameters.data(), shape),
            runtime);
  }
  void linear_gradients(const internal::TrainedLinear<T>& of, T* input, T* grad_output, T* grad_input,
                        const Runtime& runtime) const {
    const internal::Timer timer(profile.products);
    const auto [out, in] = of.weight.value.shape;
    const LinearGradients<T> gradients_of{.grad_input = matrix(grad_input, in),
                                          .grad_weight = transposed(of.weight.gradient),
                                          .grad_bias = of.bias.gradient,
                                          .accumulate = {false, accumulate, accumulate},
                                          .rows_per_group = length};
    if constexpr (std::is_same_v<T, float>) {
      if (options.bf16_products) {
        // Recomputed inputs have not all been multiplied again, so some of them have not been rounded.
        bfloat16* const place = rounded_input(input);
        const auto rounded_forward = options.recompute ? rounded_rows(input, in, place, runtime)
                                                       : TensorView<const bfloat16, 2>(place, {rows(), in});
        linear_backward(rounded_forward, transposed(rounded(of.weight)),
                        rounded_rows(grad_output, out, now.rounded_gradient.data(), runtime), gradients_of, runtime);
        return;
      }
    }
    linear_backward<T>(matrix(input, in), transposed(of.weight.value), matrix(grad_output, out), gradients_of, runtime);
  }
  AttentionOptions attention_options(Index layer) const {
    AttentionOptions attention;
    attention.causal = true;
    attention.dropout = dropout;
    attention.dropout_seed = internal::dropout_seed(dropout_seed, 3 * layer);
    attention.dropout_first = {first_sequence, 0, 0};
    return attention;
  }
  RotaryOptions rotary_options() const { return {.base = config.rotary_base, .layout = RotaryLayout::halves}; }
  internal::ResidualDropout residual_dropout(Index layer, Index branch) const {
    return {dropout, internal::dropout_seed(dropout_seed, 3 * layer + 1 + branch), first_sequence * length};
  }

  // ---- Forward.
  void load(const TrainingBatch& given) {
    const auto [b, l] = given.tokens.shape;
    using internal::reject;
    if (b < 1 || l < 1 || b > options.max_sequences || l > options.max_length) {
      reject("tokens has shape (" + std::to_string(b) + ", " + std::to_string(l) + "); expected at most (" +
             std::to_string(options.max_sequences) + ", " + std::to_string(options.max_length) +
             ") and at least (1, 1)");
    }
    if (given.targets.shape != given.tokens.shape) {
      reject("targets has shape (" + std::to_string(given.targets.shape[0]) + ", " +
             std::to_string(given.targets.shape[1]) + "); expected that of tokens, (" + std::to_string(b) + ", " +
             std::to_string(l) + ")");
    }
    if (given.num_targets < 0 || given.first_sequence < 0)
      reject("num_targets or first_sequence is negative; expected at least 0");
    if (!(given.dropout >= 0 && given.dropout < 1))
      reject("dropout is " + std::to_string(given.dropout) + "; expected at least 0 and below 1");
    for (Index i = 0; i < b; ++i) {
      for (Index j = 0; j < l; ++j) {
        const Index token = given.tokens(i, j), target = given.targets(i, j);
        const auto reject_id = [&](std::string what, Index id, const char* first) {
          what.append("[").append(std::to_string(i)).append(", ").append(std::to_string(j)).append("] is ");
          what.append(std::to_string(id)).append("; expected ").append(first).append(" to ");
          internal::reject(what.append(std::to_string(config.vocabulary - 1)));
        };
        if (token < 0 || token >= config.vocabulary) reject_id("tokens", token, "0");
        if (target < -1 || target >= config.vocabulary) reject_id("targets", target, "-1");
        const auto row = static_cast<std::size_t>(i * l + j);
        now.tokens[row] = token;
        now.targets[row] = target;
        now.positions[row] = j;
      }
    }
    batch = b;
    length = l;
    num_targets = given.num_targets;
    first_sequence = given.first_sequence;
    dropout = given.dropout;
    dropout_seed = given.dropout_seed;
  }
  TensorView<const Index, 1> of_rows(const std::vector<Index>& values) const { return {values.data(), {rows()}}; }

  void embed(const Runtime& runtime) const {
    const internal::Timer timer(profile.embedding);
    T* const x = now.inputs[0];
    embedding_forward<T>(model.table.value, of_rows(now.tokens), residual(x), {}, runtime);
    if (config.positions == PositionKind::learned)
      embedding_forward<T>(model.positions.value, of_rows(now.positions), residual(x), {.accumulate = true}, runtime);
    if (dropout > 0) internal::drop(residual(x), residual_dropout(-1, 0), runtime);
  }
  // sum = x + added, with dropout of added.
  void add(T* x, Index layer, Index branch, T* sum, const Runtime& runtime) const {
    const internal::Timer timer(profile.residual);
    if (dropout > 0) internal::drop(residual(now.added), residual_dropout(layer, branch), runtime);
    internal::add<T>(rows() * config.width, x, now.added, sum, runtime);
  }
  void attention_branch(Index layer, const AblatedHead& ablated, const Runtime& runtime) const {
    const auto index = static_cast<std::size_t>(layer);
    const auto& of = model.layers[index];
    const auto& kept = now.layers[index];
    norm(of.attention_norm, now.inputs[index], kept.normed, runtime);
    linear(of.qkv, kept.normed, kept.qkv, runtime);
    const Heads h = split(kept.qkv);
    if (config.positions == PositionKind::rotary) {
      const internal::Timer timer(profile.rotation);
      rotary_forward<T>(h.query, h.query, rotary_options(), runtime);
      rotary_forward<T>(h.key, h.key, rotary_options(), runtime);
    }
    const internal::Timer timer(profile.attention);
    const TensorView<T, 4> context = contexts(kept.context);
    attention_forward(h.query, h.key, h.value,
                      {.context = context, .row_max = row_states(kept.row_max), .row_sum = row_states(kept.row_sum)},
                      attention_options(layer), runtime);
    if (ablated.layer == layer) {
      for (Index row = 0; row < rows(); ++row) {
        T* const head = kept.context + (row * config.num_heads + ablated.head) * config.head_size;
        std::fill_n(head, config.head_size, T{});
      }
    }
  }
  void activate(const internal::LayerActivations<T>& kept, const Runtime& runtime) const {
    const internal::Timer timer(profile.activations);
    const Index width = config.feed_forward;
    if (config.feed_forward_kind == FeedForwardKind::swiglu) {
      const TensorView<T, 2> both = matrix(kept.up, 2 * width);
      swiglu_forward<T>(sliced(both, 1, 0, width), sliced(both, 1, width, 2 * width), matrix(kept.activated, width),
                        runtime);
    } else {
      activation_forward<T>(matrix(kept.up, width), matrix(kept.activated, width),
                            activation_of(config.feed_forward_kind), runtime);
    }
  }
  // The backward pass needs only `kept`, so the result of the layer is not written again.
  void layer_forward(Index layer, const AblatedHead& ablated, bool again, const Runtime& runtime) const {
    const auto index = static_cast<std::size_t>(layer);
    const auto& of = model.layers[index];
    const auto& kept = now.layers[index];
    const bool feeds = config.feed_forward_kind != FeedForwardKind::none;
    attention_branch(layer, ablated, runtime);
    if (again && !feeds) return;
    linear(of.output, kept.context, now.added, runtime);
    add(now.inputs[index], layer, 0, feeds ? kept.middle : now.inputs[index + 1], runtime);
    if (!feeds) return;
    norm(of.feed_forward_norm, kept.middle, kept.normed_2, runtime);
    linear(of.up, kept.normed_2, kept.up, runtime);
    activate(kept, runtime);
    if (again) return;
    linear(of.down, kept.activated, now.added, runtime);
    add(kept.middle, layer, 1, now.inputs[index + 1], runtime);
  }
  void forward(const AblatedHead& ablated, const Runtime& runtime) const {
    round_parameters(runtime);
    embed(runtime);
    for (Index layer = 0; layer < config.num_layers; ++layer) layer_forward(layer, ablated, false, runtime);
    norm(model.norm, now.inputs.back(), now.normed, runtime);
    linear({model.output, {}}, now.normed, now.logits, runtime);
  }
  double loss(TensorView<T, 1> row_loss, TensorView<T, 2> grad_logits, const Runtime& runtime) const {
    const internal::Timer timer(profile.loss);
    const CrossEntropyResult result = cross_entropy_forward<T>(
        matrix(now.logits, config.vocabulary), of_rows(now.targets), {.row_loss = row_loss, .grad_logits = grad_logits},
        {.ignored_target = -1, .count = num_targets}, runtime);
    return result.loss;
  }

  // ---- Backward.
  void attention_gradients(Index layer, const AttentionObserver<T>& observer, const Runtime& runtime) const {
    const auto index = static_cast<std::size_t>(layer);
    const auto& of = model.layers[index];
    const auto& kept = now.layers[index];
    T* const grad = branch_gradient(layer, 0, runtime);
    linear_gradients(of.output, kept.context, grad, now.grad_context, runtime);
    const AttentionRecord<T> forward_pass = record(layer);
    const TensorView<T, 4> grad_context = contexts(now.grad_context);
    if (observer) observer(layer, forward_pass, grad_context);
    const Heads grads = split(now.grad_qkv);
    {
      const internal::Timer timer(profile.attention);
      attention_backward(forward_pass.query, forward_pass.key, forward_pass.value,
                         {.context = forward_pass.context,
                          .row_max = forward_pass.row_max,
                          .row_sum = forward_pass.row_sum,
                          .grad_context = grad_context,
                          .fingerprint = kUncheckedFingerprint},
                         {.grad_query = grads.query, .grad_key = grads.key, .grad_value = grads.value},
                         attention_options(layer), runtime);
    }
    if (config.positions == PositionKind::rotary) {
      const internal::Timer timer(profile.rotation);
      rotary_backward<T>(grads.query, grads.query, rotary_options(), false, runtime);
      rotary_backward<T>(grads.key, grads.key, rotary_options(), false, runtime);
    }
    linear_gradients(of.qkv, kept.normed, now.grad_qkv, now.grad_branch, runtime);
    norm_backward(of.attention_norm, now.inputs[index], now.grad_branch, runtime);
  }
  void feed_forward_gradients(Index layer, const Runtime& runtime) const {
    const auto index = static_cast<std::size_t>(layer);
    const auto& of = model.layers[index];
    const auto& kept = now.layers[index];
    const Index width = config.feed_forward;
    linear_gradients(of.down, kept.activated, branch_gradient(layer, 1, runtime), now.grad_activated, runtime);
    const TensorView<T, 2> grad = matrix(now.grad_activated, width);
    activation_gradients(kept, grad, runtime);
    linear_gradients(of.up, kept.normed_2, now.grad_up, now.grad_branch, runtime);
    norm_backward(of.feed_forward_norm, kept.middle, now.grad_branch, runtime);
  }
  void activation_gradients(const internal::LayerActivations<T>& kept, const TensorView<T, 2>& grad,
                            const Runtime& runtime) const {
    const internal::Timer timer(profile.activations);
    const Index width = config.feed_forward;
    if (config.feed_forward_kind == FeedForwardKind::swiglu) {
      const TensorView<T, 2> both = matrix(kept.up, 2 * width), grad_both = matrix(now.grad_up, 2 * width);
      swiglu_backward<T>(
          sliced(both, 1, 0, width), sliced(both, 1, width, 2 * width), grad,
          {.grad_gate = sliced(grad_both, 1, 0, width), .grad_up = sliced(grad_both, 1, width, 2 * width)}, runtime);
    } else {
      activation_backward<T>(matrix(kept.up, width), grad, {.grad_input = matrix(now.grad_up, width)},
                             activation_of(config.feed_forward_kind), runtime);
    }
  }
  // The gradient of what a branch adds: grad_residual, with the dropout of the forward pass.
  T* branch_gradient(Index layer, Index branch, const Runtime& runtime) const {
    if (dropout == 0) return now.grad_residual;
    const internal::Timer timer(profile.residual);
    std::copy_n(now.grad_residual, rows() * config.width, now.grad_branch);
    internal::drop(residual(now.grad_branch), residual_dropout(layer, branch), runtime);
    return now.grad_branch;
  }
  void backward(const AttentionObserver<T>& observer, const Runtime& runtime) {
    auto group = groups.begin();
    if (!receives()) restore_output_gradient();
    add_to_group(*group++, [&] {
      if (config.tied) receive(elements(model.table.gradient));
      linear_gradients({model.output, {}}, now.normed, now.logits, now.grad_branch, runtime);
      std::fill_n(now.grad_residual, rows() * config.width, T{});
      norm_backward(model.norm, now.inputs.back(), now.grad_branch, runtime);
    });
    if (config.tied && !is_last()) send(elements(model.table.gradient));
    for (Index layer = config.num_layers - 1; layer >= 0; --layer) {
      if (options.recompute && layer + 1 < config.num_layers) layer_forward(layer, {}, true, runtime);
      if (config.feed_forward_kind != FeedForwardKind::none)
        add_to_group(*group++, [&] { feed_forward_gradients(layer, runtime); });
      add_to_group(*group++, [&] { attention_gradients(layer, observer, runtime); });
    }
    if (config.tied) {
      tied_embedding_gradients(*group, runtime);
    } else {
      add_to_group(*group, [&] { embedding_gradients(model.table.gradient, accumulate, runtime); });
    }
  }
  void embedding_gradients(const TensorView<T, 2>& grad_table, bool accumulates, const Runtime& runtime) {
    const internal::Timer timer(profile.embedding);
    if (dropout > 0) internal::drop(residual(now.grad_residual), residual_dropout(-1, 0), runtime);
    if (config.positions == PositionKind::learned) {
      embedding_backward<T>(
          of_rows(now.positions), residual(now.grad_residual),
          {.grad_table = model.positions.gradient, .accumulate = accumulate, .rows_per_group = length}, runtime);
    }
    embedding_backward<T>(of_rows(now.tokens), residual(now.grad_residual),
                          {.grad_table = grad_table, .accumulate = accumulates, .rows_per_group = length}, runtime);
  }

  // ---- Sums over the pieces of a chain. Without a chain, nothing is received or sent.
  bool receives() const { return piece.chain != nullptr && !piece.is_first; }
  bool is_last() const { return piece.chain == nullptr || piece.is_last; }
  static std::span<T> elements(const TensorView<T, 2>& matrix) {
    return {matrix.data, static_cast<std::size_t>(matrix.size())};
  }
  // Announces what backward() will receive, in the same order.
  void expect_sums() {
    if (!receives()) return;
    const auto expect = [&](auto sum) {
      if (!sum.empty()) piece.chain->expect(std::as_writable_bytes(sum));
    };
    for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
      expect(groups[i]);
      if (i == 0 && config.tied) expect(elements(model.table.gradient));
    }
    if (!config.tied) return expect(groups.back());
    expect(elements(model.positions.gradient));
    expect(std::span(token_gradient.data(), token_gradient.size()));
    expect(std::span(table_rows));
  }
  template <class Element>
  void receive(std::span<Element> sum) const {
    if (!receives() || sum.empty()) return;
    const internal::Timer timer(profile.messages);
    piece.chain->receive(std::as_writable_bytes(sum));
  }
  template <class Element>
  void send(std::span<Element> sum) const {
    if (piece.chain == nullptr || sum.empty()) return;
    const internal::Timer timer(profile.messages);
    piece.chain->send(std::as_bytes(sum));
  }
  // add() adds the gradients of the call to those of a group. After the last piece they are the total.
  template <class Add>
  void add_to_group(std::span<T> group, const Add& add) const {
    receive(group);
    add();
    send(group);
  }

  // The gradient of a tied table is the sum of those of the output and of the embedded tokens. Each is summed
  // separately over accumulating calls, and they are added at the end of each call, only for the rows that occurred as
  // tokens. In a chain, they are added after the last piece, because the gradient of the output is being sent until
  // then.
  void restore_output_gradient() {
    if (!config.tied) return;
    const Index width = config.width;
    for (Index row = 0; row < config.vocabulary; ++row) {
      if (table_rows[static_cast<std::size_t>(row)] == 0) continue;
      if (accumulate) {
        std::copy_n(output_gradient.data() + row * width, width, model.table.gradient.pointer(row, 0));
      } else {
        std::fill_n(token_gradient.data() + row * width, width, T{});
        table_rows[static_cast<std::size_t>(row)] = 0;
      }
    }
  }
  // `group` has the table and the positions.
  void tied_embedding_gradients(std::span<T> group, const Runtime& runtime) {
    const std::span<T> positions = elements(model.positions.gradient);
    const TensorView<T, 2> sums(token_gradient.data(), model.table.value.shape);
    const std::span<char> occurred(table_rows);
    receive(positions);
    receive(elements(sums));
    receive(occurred);
    embedding_gradients(sums, true, runtime);
    for (Index row = 0; row < rows(); ++row)
      table_rows[static_cast<std::size_t>(now.tokens[static_cast<std::size_t>(row)])] = 1;
    if (!is_last()) {
      send(positions);
      send(elements(sums));
      send(occurred);
      return;
    }
    add_token_gradient();
    send(group);
  }
  void add_token_gradient() {
    const internal::Timer timer(profile.embedding);
    const Index width = config.width;
    for (Index row = 0; row < config.vocabulary; ++row) {
      if (table_rows[static_cast<std::size_t>(row)] == 0) continue;
      T* const gradient = model.table.gradient.pointer(row, 0);
      const T* const sum = token_gradient.data() + row * width;
      std::copy_n(gradient, width, output_gradient.data() + row * width);
      for (Index e = 0; e < width; ++e) gradient[e] += sum[e];
    }
  }

  double forward_backward(const TrainingBatch& given, bool accumulates, const ChainedPiece& of_chain,
                          const AttentionObserver<T>& observer, const Runtime& given_runtime) {
    const Runtime runtime = internal::with_scratch(given_runtime, scratch);
    load(given);
    accumulate = accumulates;
    piece = of_chain;
    expect_sums();
    forward({}, runtime);
    const double result = loss({now.row_loss, {rows()}}, matrix(now.logits, config.vocabulary), runtime);
    backward(observer, runtime);
    return result;
  }

  DecoderConfig config;
  DecoderTrainingOptions options;
  std::vector<DecoderParameter> description;
  internal::ZeroedMemory<T> parameters;
  internal::ZeroedMemory<T> gradients;
  internal::TrainedDecoder<T> model;
  internal::DecoderActivations<T> now;
  // The parts of a tied table's gradient: Σ over the embedded tokens, and that of the output where table_rows is 1.
  internal::ZeroedMemory<T> token_gradient;
  internal::ZeroedMemory<T> output_gradient;
  std::vector<char> table_rows;
  // The gradients that are computed together, in the order of the backward pass: output and last norm, feed-forward and
  // attention of each layer, tables.
  std::vector<std::span<T>> groups;

  // Of the call.
  Index batch = 0;
  Index length = 0;
  Index num_targets = 0;
  Index first_sequence = 0;
  double dropout = 0;
  std::uint64_t dropout_seed = 0;
  bool accumulate = false;
  ChainedPiece piece;

  mutable TrainingProfile profile;
  internal::ScratchMemory scratch;
};

template <class T>
DecoderTraining<T>::DecoderTraining(const DecoderConfig& config, const DecoderTrainingOptions& options)
    : state_(std::make_unique<State>(config, options)) {}
template <class T>
DecoderTraining<T>::~DecoderTraining() = default;
template <class T>
DecoderTraining<T>::DecoderTraining(DecoderTraining&&) noexcept = default;
template <class T>
DecoderTraining<T>& DecoderTraining<T>::operator=(DecoderTraining&&) noexcept = default;

template <class T>
const DecoderConfig& DecoderTraining<T>::config() const {
  return state_->config;
}
template <class T>
std::span<const DecoderParameter> DecoderTraining<T>::description() const {
  return state_->description;
}
template <class T>
std::span<T> DecoderTraining<T>::parameters() {
  return {state_->parameters.data(), state_->parameters.size()};
}
template <class T>
std::span<const T> DecoderTraining<T>::parameters() const {
  return {state_->parameters.data(), state_->parameters.size()};
}
template <class T>
std::span<T> DecoderTraining<T>::gradients() {
  return {state_->gradients.data(), state_->gradients.size()};
}
template <class T>
std::size_t DecoderTraining<T>::num_bytes() const {
  const State& s = *state_;
  const auto& now = s.now;
  return (s.parameters.size() + s.gradients.size() + now.memory.size() + s.token_gradient.size() +
          s.output_gradient.size()) *
             sizeof(T) +
         (now.rounded_parameters.size() + now.rounded_inputs.size() + now.rounded_gradient.size()) * sizeof(bfloat16);
}

template <class T>
const TrainingProfile& DecoderTraining<T>::profile() const {
  return state_->profile;
}

template <class T>
double DecoderTraining<T>::forward_backward(const TrainingBatch& batch, bool accumulate,
                                            const AttentionObserver<T>& observer, const Runtime& runtime) {
  return state_->forward_backward(batch, accumulate, {}, observer, runtime);
}

template <class T>
double DecoderTraining<T>::forward_backward_in_chain(const TrainingBatch& batch, const ChainedPiece& piece,
                                                     const Runtime& runtime) {
  if (piece.chain == nullptr) internal::reject("chain is null; expected the ranks of the piece");
  return state_->forward_backward(batch, !piece.is_first, piece, {}, runtime);
}

template <class T>
void DecoderTraining<T>::receive_gradients(GradientChain& chain, bool passes_on) {
  const internal::Timer timer(state_->profile.messages);
  for (const std::span<T> group : state_->groups) chain.expect(std::as_writable_bytes(group));
  for (const std::span<T> group : state_->groups) {
    chain.receive(std::as_writable_bytes(group));
    if (passes_on) chain.send(std::as_bytes(group));
  }
}

template <class T>
double DecoderTraining<T>::evaluate(const TrainingBatch& batch, const AblatedHead& ablated, TensorView<T, 2> row_loss,
                                    Index* correct, const Runtime& given) {
  State& s = *state_;
  const Runtime runtime = internal::with_scratch(given, s.scratch);
  if (ablated.layer >= s.config.num_layers || (ablated.layer >= 0 && ablated.head >= s.config.num_heads) ||
      ablated.head < 0) {
    internal::reject("ablated is layer " + std::to_string(ablated.layer) + ", head " + std::to_string(ablated.head) +
                     "; expected a layer below " + std::to_string(s.config.num_layers) + " and a head from 0 to " +
                     std::to_string(s.config.num_heads - 1));
  }
  if (!row_loss.absent() && row_loss.shape != batch.tokens.shape)
    internal::reject("row_loss does not have the shape of tokens; expected (" + std::to_string(batch.tokens.shape[0]) +
                     ", " + std::to_string(batch.tokens.shape[1]) + ")");
  s.load(batch);
  s.forward(ablated, runtime);
  const double loss = s.loss({s.now.row_loss, {s.rows()}}, {}, runtime);
  for (Index row = 0; row < (row_loss.absent() ? 0 : s.rows()); ++row)
    row_loss(row / s.length, row % s.length) = s.now.row_loss[row];
  if (correct != nullptr) {
    *correct = 0;
    for (Index row = 0; row < s.rows(); ++row) {
      const Index target = s.now.targets[static_cast<std::size_t>(row)];
      const T* const logits = s.now.logits + row * s.config.vocabulary;
      if (target >= 0 && std::max_element(logits, logits + s.config.vocabulary) == logits + target) ++*correct;
    }
  }
  return loss;
}

template <class T>
TensorView<const T, 2> DecoderTraining<T>::logits() const {
  return state_->matrix(state_->now.logits, state_->config.vocabulary);
}

template <class T>
TensorView<const T, 2> DecoderTraining<T>::row_losses() const {
  return {state_->now.row_loss, {state_->batch, state_->length}};
}

template <class T>
void DecoderTraining<T>::visit_activations(const std::function<void(Index layer, std::string_view operation,
                                                                    const TensorView<const T, 2>& rows)>& visit) const {
  const State& s = *state_;
  const Index last = s.config.num_layers - 1;
  const bool feeds = s.config.feed_forward_kind != FeedForwardKind::none;
  visit(-1, "embedding", s.residual(s.now.inputs[0]));
  for (Index layer = 0; layer <= last; ++layer) {
    const auto& kept = s.now.layers[static_cast<std::size_t>(layer)];
    if (!s.options.recompute || layer == last) {
      visit(layer, "attention norm", s.residual(kept.normed));
      visit(layer, "query, key and value", s.matrix(kept.qkv, s.qkv_width()));
      visit(layer, "attention", s.matrix(kept.context, s.config.num_heads * s.config.head_size));
      if (feeds) {
        const Index up = s.model.layers[static_cast<std::size_t>(layer)].up.weight.value.shape[0];
        visit(layer, "attention output", s.residual(kept.middle));
        visit(layer, "feed-forward norm", s.residual(kept.normed_2));
        visit(layer, "feed-forward up", s.matrix(kept.up, up));
        visit(layer, "activation", s.matrix(kept.activated, s.config.feed_forward));
      }
    }
    visit(layer, feeds ? "feed-forward output" : "attention output",
          s.residual(s.now.inputs[static_cast<std::size_t>(layer + 1)]));
  }
  visit(-1, "output norm", s.residual(s.now.normed));
  visit(-1, "output", s.matrix(s.now.logits, s.config.vocabulary));
}

template <class T>
AttentionRecord<T> DecoderTraining<T>::attention(Index layer) const {
  const State& s = *state_;
  const Index first = s.options.recompute ? s.config.num_layers - 1 : 0;
  if (layer < first || layer >= s.config.num_layers) {
    internal::reject("attention of layer " + std::to_string(layer) + "; expected " + std::to_string(first) + " to " +
                     std::to_string(s.config.num_layers - 1) + (s.options.recompute ? " with recompute" : ""));
  }
  return s.record(layer);
}

REGARD_INSTANTIATE_COMPUTE_CLASS(class, DecoderTraining);

}  // namespace regard::inline v0
