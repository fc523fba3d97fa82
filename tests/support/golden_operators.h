// SPDX-License-Identifier: Apache-2.0
//
// Every line of golden_hashes.txt: attention, linear layers, losses, norms and elementwise functions.
//
//     for (const auto& [name, hash] : golden::all_lines(table).lines()) …      operators must use this table
//
// Read next: golden_attention.h, ../golden_test.cpp.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "golden_attention.h"
#include "golden_lines.h"
#include "kernels/table.h"
#include "regard/cross_entropy.h"
#include "regard/layer_norm.h"
#include "regard/linear_backward.h"
#include "regard/rms_norm.h"

namespace regard::golden {

template <class T>
void add_linear(Lines& lines) {
  for (const auto& [R, I, O] : {std::array<Index, 3>{1, 1, 1},
                                {1, 300, 33},
                                {12, 17, 32},
                                {13, 255, 31},
                                {60, 256, 5},
                                {61, 257, 64},
                                {7, 513, 65},
                                {2, 40, 550},
                                {130, 20, 40},
                                {5, 0, 9}}) {
    Random random(static_cast<std::uint64_t>(500 + R));
    const auto input = numbers<T, 2>(random, {R, I}), parameters = numbers<T, 2>(random, {I, O});
    const auto bias = numbers<T, 1>(random, {O});
    Array<T, 2> output({R, O});
    const std::string name = "linear/" + std::to_string(R) + "x" + std::to_string(I) + "x" + std::to_string(O);
    linear_forward<T>(input.view(), parameters.view(), bias.view(), output.view());
    lines.add(name, output.values());
    linear_forward<T>(input.view(), parameters.view(), {}, output.view());
    lines.add(name + "/no_bias", output.values());
    const auto grad_output = numbers<T, 2>(random, {R, O});
    Array<T, 2> grad_input({R, I}), grad_weight({I, O});
    Array<T, 1> grad_bias({O});
    linear_backward<T>(input.view(), parameters.view(), grad_output.view(),
                       {grad_input.view(), grad_weight.view(), grad_bias.view()});
    lines.add(name + "/grad_input", grad_input.values());
    lines.add(name + "/grad_weight", grad_weight.values());
    lines.add(name + "/grad_bias", grad_bias.values());
  }
}

template <class T>
void add_cross_entropy(Lines& lines) {
  for (const Index V : {1, 5, 16, 63, 64, 65, 200, 1000}) {
    Random random(static_cast<std::uint64_t>(700 + V));
    const auto logits = numbers<T, 2>(random, {5, V});
    Array<Index, 1> targets({5});
    targets.fill([&] { return random.integer(0, V - 1); });
    Array<T, 1> row_loss({5});
    Array<T, 2> grad_logits({5, V});
    cross_entropy_forward<T>(logits.view(), targets.view(), {row_loss.view(), grad_logits.view()});
    const std::string name = "cross_entropy/" + std::to_string(V);
    lines.add(name + "/row_loss", row_loss.values());
    lines.add(name + "/grad_logits", grad_logits.values());
  }
}

template <class T>
void add_norms(Lines& lines) {
  for (const auto& [R, E, group] :
       {std::array<Index, 3>{1, 1, 0}, {3, 8, 0}, {70, 31, 0}, {130, 65, 50}, {7, 1000, 3}, {9, 2053, 0}}) {
    Random random(static_cast<std::uint64_t>(800 + R));
    const auto input = numbers<T, 2>(random, {R, E}), addend = numbers<T, 2>(random, {R, E});
    const auto grad_output = numbers<T, 2>(random, {R, E});
    const auto gain = numbers<T, 1>(random, {E}), bias = numbers<T, 1>(random, {E});
    Array<T, 2> output({R, E}), grad_input({R, E});
    Array<T, 1> grad_gain({E}), grad_bias({E});
    const std::string shape = "/" + std::to_string(R) + "x" + std::to_string(E);
    layer_norm_forward<T>(input.view(), addend.view(), gain.view(), bias.view(), output.view(), 1e-5);
    lines.add("layer_norm" + shape, output.values());
    layer_norm_backward<T>(input.view(), addend.view(), gain.view(), grad_output.view(),
                           {.grad_input = grad_input.view(),
                            .grad_gain = grad_gain.view(),
                            .grad_bias = grad_bias.view(),
                            .rows_per_group = group},
                           1e-5);
    lines.add("layer_norm" + shape + "/grad_input", grad_input.values());
    lines.add("layer_norm" + shape + "/grad_gain", grad_gain.values());
    lines.add("layer_norm" + shape + "/grad_bias", grad_bias.values());
    rms_norm_forward<T>(input.view(), {}, gain.view(), output.view(), 1e-5);
    lines.add("rms_norm" + shape, output.values());
    rms_norm_backward<T>(input.view(), {}, gain.view(), grad_output.view(),
                         {.grad_input = grad_input.view(), .grad_gain = grad_gain.view(), .rows_per_group = group},
                         1e-5);
    lines.add("rms_norm" + shape + "/grad_input", grad_input.values());
    lines.add("rms_norm" + shape + "/grad_gain", grad_gain.values());
  }
}

// Every function on values of one magnitude after another.
template <class T>
void add_elementwise(Lines& lines, const kernels::KernelTable& table) {
  const kernels::Kernels<T>& kernel = table.of<T>();
  const auto add = [&](const std::string& name, auto function, int exponent, T sign) {
    Random random(static_cast<std::uint64_t>(600 + exponent));
    std::vector<T> x(3000), y(3000);
    for (T& argument : x) argument = std::copysign(std::ldexp(number<T>(random), exponent - 2), sign);
    function(x.data(), y.data(), 3000);
    lines.add(name + "/2^" + std::to_string(exponent), y);
  };
  for (const int exponent : {-30, -10, -3, -1, 0, 1, 2, 4, 6, 7, 10}) {
    add("exp", kernel.exp, exponent, static_cast<T>(-1));
    add("tanh", kernel.tanh, exponent, static_cast<T>(1));
    add("tanh/negative", kernel.tanh, exponent, static_cast<T>(-1));
    add("log", kernel.log, exponent, static_cast<T>(1));
  }
  for (const int exponent : {-140, -125, -60, 40, 100, 127}) add("log", kernel.log, exponent, static_cast<T>(1));
}

template <class T>
void add_all(Lines& lines, const kernels::KernelTable& table) {
  add_shapes<T>(lines);
  add_backward_shapes<T>(lines);
  add_options<T>(lines);
  add_weights_of_rows<T>(lines);
  add_merge<T>(lines);
  add_linear<T>(lines);
  add_cross_entropy<T>(lines);
  add_norms<T>(lines);
  add_elementwise<T>(lines, table);
}

inline Lines all_lines(const kernels::KernelTable& table) {
  Lines lines;
  add_all<float>(lines, table);
  add_all<double>(lines, table);
  return lines;
}

}  // namespace regard::golden
