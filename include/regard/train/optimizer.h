// SPDX-License-Identifier: Apache-2.0
/// @file
/// Optimizers and learning-rate schedules as plain functions, and parameter initialization.
///
/// @verbatim
///     gradients ── global_norm, clip_factor ──▶ scale ─┐
///     step ─────── learning_rate_at ──────────▶ rate ──┴─▶ adamw_step or muon_step ──▶ parameters, moments
///                                                          all combined: optimizer_step
/// @endverbatim
///
/// - Parameters, gradients and moments are dense arrays of equal size, one arena each, in the order of
///   decoder_parameters(). No other state is kept between steps, and the moments are 0 before the first step.
/// - Results are bit-identical for any number of threads, and a step allocates no memory beyond Runtime::workspace.
///
/// Read next: src/train/optimizer/optimizer_step.cpp, decoder_training.h.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "regard/adamw.h"
#include "regard/model/decoder.h"
#include "regard/runtime.h"
#include "regard/train/settings.h"

namespace regard::inline v0 {

/// Computes the L2 norm of an array.
///
/// @tparam T       float or double.
/// @param values   The elements, for example all gradients.
/// @param runtime  Threads and cancellation.
/// @return `√Σ x²`, computed in double. It is not finite if an element is not finite or if the sum overflows.
/// @throws Cancelled  if a stop is requested.
///
/// @par Reproducibility
/// The array is divided into at most 256 blocks whose boundaries depend only on its size. Each block is summed in a
/// fixed order, and the block sums are added in order, so the result is bit-identical for any number of threads and on
/// every machine.
template <class T>
REGARD_EXPORT double global_norm(std::span<const T> values, const Runtime& runtime = {});

/// Returns the factor that limits the norm of a gradient, as torch.nn.utils.clip_grad_norm_ does.
///
/// @param norm      The norm.
/// @param max_norm  The limit; 0 means no limit.
/// @return `min(1, max_norm / (norm + 10⁻⁶))`, or 1 if there is no limit.
/// @throws InvalidArgument  if max_norm is negative or not finite.
///
/// @par Example
/// @code{.cpp}
/// const double factor = clip_factor(global_norm<float>(gradients), 1);
/// @endcode
REGARD_EXPORT double clip_factor(double norm, double max_norm);

/// Options for a Muon step.
struct MuonOptions {
  double learning_rate = 0.02;  ///< Learning rate of this step, at least 0.
  double momentum = 0.95;       ///< Momentum coefficient, in [0, 1).
  bool nesterov = true;         ///< Whether to use Nesterov momentum.
  double weight_decay = 0;      ///< Decoupled weight decay, at least 0.
  double gradient_scale = 1;    ///< Factor applied to the gradient, for example clip_factor().
  int iterations = 5;           ///< Number of Newton–Schulz iterations, 1 to 100.
};

/// Returns the size of the scratch memory for muon_step().
///
/// @param rows     R, the number of rows of the matrix.
/// @param columns  C, the number of columns of the matrix.
/// @return The number of elements, `2 · R · C + 2 · min(R, C)²`.
REGARD_EXPORT Index muon_scratch_size(Index rows, Index columns);

/// Performs a Muon step: updates a matrix with its approximately orthogonalized momentum, that is, with all singular
/// values replaced by values near 1.
///
/// @code{.unparsed}
/// g = gradient_scale · gradient
/// m = m + (1 − momentum) · (g − m)
/// u = g + momentum · (m − g)                                       with nesterov; otherwise u = m
/// X = u / (‖u‖ + 10⁻⁷)
/// X = (a · I + b · A + c · A²) · X,  A = X · Xᵀ                    in each iteration, if R ≤ C
/// X = X · (a · I + b · A + c · A²),  A = Xᵀ · X                    in each iteration, if R > C
/// p = (1 − learning_rate · weight_decay) · p − learning_rate · √max(1, R / C) · X
/// @endcode
///
/// (a, b, c) = (3.4445, −4.7750, 2.0315). The iteration increases small singular values quickly. The other singular
/// values remain between about 0.68 and 1.13, instead of converging to 1.
///
/// @tparam T        float or double. All arithmetic is in T.
/// @param matrix    Matrix p, (R, C), dense, with one row per output, as in torch.nn.Linear.
/// @param gradient  Gradient of the loss with respect to the matrix, (R, C), dense.
/// @param momentum  Momentum m, (R, C), dense.
/// @param options   Options for this step.
/// @param scratch   At least muon_scratch_size() elements. Its contents are undefined afterwards.
/// @param runtime   Threads, scratch memory for linear_forward(), and cancellation.
///
/// Updates matrix and momentum.
///
/// @throws InvalidArgument  before any work is done, if shapes differ, arrays overlap or an option is out of range.
/// @throws std::bad_alloc   if memory cannot be allocated. momentum may already have been updated.
/// @throws Cancelled        if a stop is requested. momentum and part of matrix may already have been updated.
///
/// @par Reproducibility
/// The matrix products are computed by linear_forward(), and the norm by global_norm(); see these functions.
///
/// @par Example
/// @code{.cpp}
/// std::vector<float> scratch(static_cast<std::size_t>(muon_scratch_size(matrix.shape[0], matrix.shape[1])));
/// muon_step(matrix, gradient, momentum, {.learning_rate = 0.02}, scratch);
/// @endcode
///
/// Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024. That implementation computes
/// the iterations in bfloat16.
template <class T>
REGARD_EXPORT void muon_step(TensorView<T, 2> matrix, std::type_identity_t<TensorView<const T, 2>> gradient,
                             std::type_identity_t<TensorView<T, 2>> momentum, const MuonOptions& options,
                             std::type_identity_t<std::span<T>> scratch, const Runtime& runtime = {});

/// Returns the learning rate of AdamW.
///
/// @code{.unparsed}
/// step < warmup:        learning_rate · (step + 1) / (warmup + 1)
/// step ≥ steps:         min_learning_rate; learning_rate if the schedule is constant
/// otherwise, with r = (step − warmup) / (steps − warmup):
///   constant              learning_rate
///   cosine                min_learning_rate + ½ · (1 + cos(π · r)) · (learning_rate − min_learning_rate)
///   linear                min_learning_rate + (1 − r) · (learning_rate − min_learning_rate)
///   warmup_stable_decay   learning_rate, then a linear decay from step `begin` to min_learning_rate,
///                         begin = max(warmup, steps − ⌊steps / 5⌋)
/// @endcode
///
/// The warm-up and the cosine schedule are those of nanoGPT. The cosine is computed without the math
/// library, so the bits are the same on every machine.
///
/// @param settings  The settings, of which schedule, steps, warmup and the learning rates are used.
/// @param step      Zero-based step index.
/// @return The learning rate of this step.
/// @throws InvalidArgument  if step is negative, or if a setting that the schedule uses is out of range.
///                          min_learning_rate must not exceed learning_rate.
REGARD_EXPORT double learning_rate_at(const TrainingSettings& settings, Index step);

/// Returns the learning rate of Muon.
///
/// @param settings  As for learning_rate_at().
/// @param step      Zero-based step index.
/// @return learning_rate_at() · muon_learning_rate / learning_rate, up to rounding.
/// @throws InvalidArgument  as learning_rate_at() does.
REGARD_EXPORT double muon_learning_rate_at(const TrainingSettings& settings, Index step);

/// Returns the size of the scratch memory for optimizer_step().
///
/// @param settings     The settings, of which only the optimizer is used.
/// @param description  decoder_parameters() of the model.
/// @param num_threads  Number of matrices that Muon may process simultaneously; 0 means default_num_threads(). With
///                     less scratch memory, a step on many threads is slower but gives the same bits.
/// @return The number of elements, which is 0 for OptimizerKind::adamw.
/// @throws InvalidArgument  if num_threads is negative.
REGARD_EXPORT Index optimizer_scratch_size(const TrainingSettings& settings,
                                           std::span<const DecoderParameter> description, int num_threads = 0);

/// The gradient norm and the learning rate of an optimizer step.
struct OptimizerStep {
  double gradient_norm = 0;  ///< Norm of all gradients, before clipping.
  double learning_rate = 0;  ///< Learning rate of AdamW.
};

/// Performs one optimizer step on all parameters of a model.
///
/// 1. The gradients are scaled by clip_factor() of their global_norm().
/// 2. With OptimizerKind::adamw, adamw_step() updates all parameters. With OptimizerKind::muon, muon_step() updates
///    each matrix of kind projection or residual, with its momentum in first_moment, and adamw_step() updates all
///    other parameters.
/// 3. learning_rate_at() and muon_learning_rate_at() give the learning rates. Weight decay is applied only to
///    parameters of rank 2 or more.
///
/// If the norm is not finite, nothing is written, and the parameters keep their values.
///
/// @tparam T             float or double.
/// @param settings       Optimizer, schedule, decay rates and clipping.
/// @param description    decoder_parameters() of the model.
/// @param parameters     All parameters.
/// @param gradients      Gradients of all parameters.
/// @param first_moment   First moments.
/// @param second_moment  Second moments; not used for matrices that Muon updates.
/// @param step           Zero-based step index.
/// @param scratch        At least optimizer_scratch_size() elements for one thread. Its contents are undefined
///                       afterwards.
/// @param runtime        Threads, scratch memory for linear_forward(), and cancellation.
/// @return The norm and the learning rate.
/// @throws InvalidArgument  before any work is done, if a size, a setting or the step is out of range.
/// @throws std::bad_alloc   if memory cannot be allocated. Parts of the arrays may already have been updated.
/// @throws Cancelled        if a stop is requested. Parts of the arrays may already have been updated.
///
/// @par Example
/// @code{.cpp}
/// std::vector<float> scratch(static_cast<std::size_t>(optimizer_scratch_size(settings, model.description())));
/// optimizer_step(settings, model.description(), model.parameters(), model.gradients(), first_moment, second_moment,
///                step, scratch);
/// @endcode
template <class T>
REGARD_EXPORT OptimizerStep optimizer_step(const TrainingSettings& settings,
                                           std::span<const DecoderParameter> description, std::span<T> parameters,
                                           std::type_identity_t<std::span<const T>> gradients,
                                           std::type_identity_t<std::span<T>> first_moment,
                                           std::type_identity_t<std::span<T>> second_moment, Index step,
                                           std::type_identity_t<std::span<T>> scratch, const Runtime& runtime = {});

/// Initializes the parameters of a model as in GPT-2.
///
/// @code{.unparsed}
/// table, positions, projection, output    0.02 · normal
/// residual                                0.02 / √(2N) · normal,  N: number of layers
/// gain                                    1
/// bias                                    0
/// @endcode
///
/// @tparam T           float or double.
/// @param description  decoder_parameters() of the model.
/// @param parameters   All parameters.
/// @param seed         Seed of the run.
/// @param runtime      Threads and cancellation.
///
/// Element e of parameter k is drawn by random_normal() with stream 2³² + k and index e. The values are computed in
/// double and rounded once to T. They are the same for any number of threads and on every machine.
///
/// @throws InvalidArgument  before any work is done, if the size does not match the description.
/// @throws Cancelled        if a stop is requested.
template <class T>
REGARD_EXPORT void initialize(std::span<const DecoderParameter> description, std::span<T> parameters,
                              std::uint64_t seed, const Runtime& runtime = {});

}  // namespace regard::inline v0
