// SPDX-License-Identifier: Apache-2.0
//
// Muon: the momentum of a matrix, made nearly orthogonal by Newton–Schulz iterations.
//
//     scratch:  X (R, C) | X of the next iteration (R, C) | A (S, S) | P (S, S),      S = min(R, C)
//
//     per iteration:  A = X·Xᵀ or Xᵀ·X      P = a·I + b·A + c·A·A      X = P·X or X·P
//
// The factor a is part of P, which saves a pass over X. A tall X is not transposed: Xᵀ is the same memory with its
// strides exchanged.
// Read next: linear.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "instantiate.h"
#include "optimizer_arguments.h"
#include "ranges.h"
#include "regard/error.h"
#include "regard/linear.h"
#include "regard/train/optimizer.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kMuonStep = "muon_step";
constexpr Index kMuonRange = Index{1} << 14;  // elements of a task

// They maximize the slope at 0 while the singular values stay bounded.
constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315;

// P = a·I + b·A + c·P, where P contains A·A.
template <class T>
void combine(const T* a, T* p, Index size, const Runtime& runtime) {
  for_each_range(
      size * size, kMuonRange,
      [&](Index first, Index end, const Runtime&) {
        for (Index i = first; i < end; ++i) p[i] = static_cast<T>(kCubic) * a[i] + static_cast<T>(kQuintic) * p[i];
        for (Index i = (first + size) / (size + 1); i * (size + 1) < end; ++i)
          p[i * (size + 1)] += static_cast<T>(kLinear);
      },
      runtime);
}

std::string pair_text(const std::array<Index, 2>& pair) {
  return "(" + std::to_string(pair[0]) + ", " + std::to_string(pair[1]) + ")";
}

// Throws InvalidArgument unless the view is dense and has this shape.
template <class T>
void expect_dense(const char* name, const TensorView<T, 2>& view, const std::array<Index, 2>& shape) {
  const auto reject = [&](const char* what, const std::array<Index, 2>& got, const std::array<Index, 2>& expected) {
    throw InvalidArgument(std::string(kMuonStep) + ": " + name + " has " + what + " " + pair_text(got) + "; expected " +
                          pair_text(expected));
  };
  if (view.shape != shape) reject("shape", view.shape, shape);
  if (view.size() > 0 && view.strides != dense_strides(shape)) reject("strides", view.strides, dense_strides(shape));
}

template <class T>
std::span<T> elements(const TensorView<T, 2>& view) {
  return {view.data, static_cast<std::size_t>(view.size())};
}

// Replaces the singular values of x by values near 1. Returns x or other: the one that contains the result. The norm of
// x is at most 1. squares has room for 2 · min(R, C)² elements.
template <class T>
T* orthogonalize(T* x, T* other, T* squares, const std::array<Index, 2>& shape, int iterations,
                 const Runtime& runtime) {
  const auto [rows, columns] = shape;
  const Index size = std::min(rows, columns);
  const TensorView<T, 2> a(squares, {size, size}), p(squares + size * size, {size, size});
  for (int n = 0; n < iterations; ++n, std::swap(x, other)) {
    const TensorView<const T, 2> from(x, shape);
    const TensorView<T, 2> to(other, shape);
    if (rows <= columns) {
      linear_forward<T>(from, transposed(from), {}, a, runtime);
    } else {
      linear_forward<T>(transposed(from), from, {}, a, runtime);
    }
    linear_forward<T>(a, a, {}, p, runtime);
    combine(a.data, p.data, size, runtime);
    if (rows <= columns) {
      linear_forward<T>(p, from, {}, to, runtime);
    } else {
      linear_forward<T>(from, p, {}, to, runtime);
    }
  }
  return x;
}

}  // namespace
}  // namespace internal

Index muon_scratch_size(Index rows, Index columns) {
  const Index size = std::min(rows, columns);
  return 2 * rows * columns + 2 * size * size;
}

template <class T>
void muon_step(TensorView<T, 2> matrix, std::type_identity_t<TensorView<const T, 2>> gradient,
               std::type_identity_t<TensorView<T, 2>> momentum, const MuonOptions& options,
               std::type_identity_t<std::span<T>> scratch, const Runtime& runtime) {
  using namespace internal;
  const auto [rows, columns] = matrix.shape;
  expect_dense("matrix", matrix, matrix.shape);
  expect_dense("gradient", gradient, matrix.shape);
  expect_dense("momentum", momentum, matrix.shape);
  expect_not_negative(kMuonStep, "learning_rate", options.learning_rate);
  expect_decay(kMuonStep, "momentum", options.momentum);
  expect_not_negative(kMuonStep, "weight_decay", options.weight_decay);
  expect_finite(kMuonStep, "gradient_scale", options.gradient_scale);
  expect_between(kMuonStep, "iterations", options.iterations, 1, 100);
  expect_at_least(kMuonStep, "the size of scratch", static_cast<Index>(scratch.size()),
                  muon_scratch_size(rows, columns));
  expect_separate(kMuonStep, {{"matrix", std::as_bytes(elements(matrix))},
                              {"gradient", std::as_bytes(elements(gradient))},
                              {"momentum", std::as_bytes(elements(momentum))},
                              {"scratch", std::as_bytes(scratch)}});
  const Index n = matrix.size();
  T* const update = scratch.data();
  const auto gradient_scale = static_cast<T>(options.gradient_scale),
             to_gradient = static_cast<T>(1 - options.momentum);
  const auto look_ahead = static_cast<T>(options.nesterov ? options.momentum : 1);
  for_each_range(
      n, kMuonRange,
      [&](Index first, Index end, const Runtime&) {
        for (Index i = first; i < end; ++i) {
          const T g = gradient.data[i] * gradient_scale;
          momentum.data[i] += to_gradient * (g - momentum.data[i]);
          update[i] = g + look_ahead * (momentum.data[i] - g);
        }
      },
      runtime);
  const double norm = global_norm<T>({update, static_cast<std::size_t>(n)}, runtime);
  const auto to_unit = static_cast<T>(1 / (norm + 1e-7));
  for_each_range(
      n, kMuonRange,
      [&](Index first, Index end, const Runtime&) {
        for (Index i = first; i < end; ++i) update[i] *= to_unit;
      },
      runtime);
  const T* const x = orthogonalize(update, update + n, update + 2 * n, matrix.shape, options.iterations, runtime);
  const auto keep = static_cast<T>(1 - options.learning_rate * options.weight_decay);
  const double ratio = static_cast<double>(rows) / static_cast<double>(std::max<Index>(1, columns));
  const auto along = static_cast<T>(-options.learning_rate * std::sqrt(std::max(1.0, ratio)));
  for_each_range(
      n, kMuonRange,
      [&](Index first, Index end, const Runtime&) {
        for (Index i = first; i < end; ++i) matrix.data[i] = matrix.data[i] * keep + along * x[i];
      },
      runtime);
}

REGARD_INSTANTIATE_COMPUTE(muon_step);

}  // namespace regard::inline v0
