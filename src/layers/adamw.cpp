// SPDX-License-Identifier: Apache-2.0
//
// adamw_step: the factors of the step, and blocks of elements that threads take in any order.
// Read next: include/regard/adamw.h, kernels/adamw.cpp.
#include "regard/adamw.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "instantiate.h"
#include "kernels/layer_table.h"
#include "kernels/table.h"
#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "tensor/checks.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kAdamwStep = "adamw_step";
constexpr Index kAdamwBlock = Index{1} << 14;  // 256 KiB of the four arrays in float

// x^n by squaring: std::pow does not have the same bits everywhere.
double power(double x, Index n) {
  double result = 1;
  for (; n > 0; n /= 2, x *= x) {
    if (n % 2 != 0) result *= x;
  }
  return result;
}

void check_option(bool valid, const char* name, double value, const char* expected) {
  if (valid) return;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  reject(kAdamwStep, name + std::string(" is ") + std::string(text, end) + "; expected " + expected);
}

void check_options(const AdamwOptions& options) {
  const auto not_negative = [](const char* name, double x) {
    check_option(std::isfinite(x) && x >= 0, name, x, "a finite number of at least 0");
  };
  const auto decay = [](const char* name, double x) {
    check_option(x >= 0 && x < 1, name, x, "a number of at least 0 and below 1");
  };
  not_negative("learning_rate", options.learning_rate);
  decay("beta1", options.beta1);
  decay("beta2", options.beta2);
  check_option(std::isfinite(options.epsilon) && options.epsilon > 0, "epsilon", options.epsilon,
               "a finite number above 0");
  not_negative("weight_decay", options.weight_decay);
  check_option(std::isfinite(options.gradient_scale), "gradient_scale", options.gradient_scale, "a finite number");
  if (options.step < 1) reject(kAdamwStep, "step is " + std::to_string(options.step) + "; expected 1 or more");
}

}  // namespace
}  // namespace internal

template <class T>
void adamw_step(std::span<T> parameters, std::type_identity_t<std::span<const T>> gradients,
                std::type_identity_t<std::span<T>> first_moment, std::type_identity_t<std::span<T>> second_moment,
                const AdamwOptions& options, const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  const auto n = static_cast<Index>(parameters.size());
  const auto memory = [n]<class E>(const char* name, std::span<E> array) {
    if (array.size() != static_cast<std::size_t>(n)) {
      reject(kAdamwStep, name + std::string(" has ") + std::to_string(array.size()) + " elements; expected " +
                             std::to_string(n) + ", the size of parameters");
    }
    return footprint(kAdamwStep, name, TensorView<E, 1>(array.data(), {n}));
  };
  const std::array<Footprint, 1> inputs{memory("gradients", gradients)};
  const std::array<Footprint, 3> written{memory("parameters", parameters), memory("first_moment", first_moment),
                                         memory("second_moment", second_moment)};
  check_options(options);
  check_overlap(kAdamwStep, inputs, written);
  if (n == 0) return;

  const kernels::AdamwElements<T> elements{
      .parameters = parameters.data(),
      .gradients = gradients.data(),
      .first_moment = first_moment.data(),
      .second_moment = second_moment.data(),
      .gradient_scale = static_cast<T>(options.gradient_scale),
      .to_gradient = static_cast<T>(1 - options.beta1),
      .keep_square = static_cast<T>(options.beta2),
      .to_square = static_cast<T>(1 - options.beta2),
      .root_scale = static_cast<T>(1 / std::sqrt(1 - power(options.beta2, options.step))),
      .epsilon = static_cast<T>(options.epsilon),
      .keep_parameter = static_cast<T>(1 - options.learning_rate * options.weight_decay),
      .along_the_moment = static_cast<T>(-options.learning_rate / (1 - power(options.beta1, options.step)))};
  const Index blocks = (n + kAdamwBlock - 1) / kAdamwBlock;
  constexpr double kElementProducts = 30;  // an element takes as long as this many products
  const int workers = num_workers(runtime, blocks, kElementProducts * static_cast<double>(n));
  if (is_planning()) {
    plan_operator({.name = kAdamwStep,
                   .strategy = std::to_string(blocks) + " blocks of elements",
                   .operations = 14 * static_cast<double>(n),
                   .bytes = 7 * static_cast<double>(n) * sizeof(T)});
  }
  const auto kernel = kernels::active().of<T>().layers->adamw_elements;
  for_each_item(runtime, workers, blocks, [&](Index block, int) {
    const Index first = block * kAdamwBlock;
    kernel(elements, first, std::min(kAdamwBlock, n - first));
  });
}

REGARD_INSTANTIATE_COMPUTE(adamw_step);

}  // namespace regard::inline v0
