// SPDX-License-Identifier: Apache-2.0
//
// The forward and backward passes of one attention layer, with the gradients checked against central differences.
//
//   query = x · W_query    key = x · W_key    value = x · W_value         x (L, E), W (E, D)
//   context = causal attention(query, key, value)                         (L, D)
//   loss = ½ Σ context²                                                   so grad_context = context
#include <regard/attention_backward.h>
#include <regard/linear.h>
#include <regard/linear_backward.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace {

using regard::Index;
using Matrix = regard::Tensor<double, 2>;

constexpr Index L = 6, E = 8, D = 4;

Matrix filled(Index rows, Index columns, double step) {
  Matrix matrix({rows, columns});
  for (Index i = 0; i < rows * columns; ++i) matrix.view().data[i] = std::sin(step * static_cast<double>(i + 1));
  return matrix;
}

struct Layer {
  Matrix query_weight = filled(E, D, 0.7), key_weight = filled(E, D, 1.3), value_weight = filled(E, D, 2.1);
};

// The results of the forward pass that the backward pass needs.
struct Activations {
  Matrix query{{L, D}}, key{{L, D}}, value{{L, D}}, context{{L, D}};
  regard::Tensor<double, 3> row_max{{1, 1, L}}, row_sum{{1, 1, L}};
  regard::AttentionFingerprint fingerprint;
};

Matrix project(const Matrix& x, const Matrix& weight) {
  Matrix result({L, D});
  regard::linear_forward<double>(x, weight, {}, result);
  return result;
}

double forward(const Layer& layer, const Matrix& x, Activations& a) {
  a.query = project(x, layer.query_weight);
  a.key = project(x, layer.key_weight);
  a.value = project(x, layer.value_weight);
  regard::attention_forward(
      a.query, a.key, a.value,
      {.context = a.context, .row_max = a.row_max, .row_sum = a.row_sum, .fingerprint = &a.fingerprint},
      {.causal = true});
  double loss = 0;
  for (Index i = 0; i < L * D; ++i) loss += 0.5 * a.context.view().data[i] * a.context.view().data[i];
  return loss;
}

// Returns the gradients with respect to the three parameter matrices, stored as a Layer.
Layer backward(const Matrix& x, const Activations& a) {
  Matrix grad_query({L, D}), grad_key({L, D}), grad_value({L, D});
  regard::attention_backward(a.query, a.key, a.value,
                             {.context = a.context,
                              .row_max = a.row_max,
                              .row_sum = a.row_sum,
                              .grad_context = a.context,
                              .fingerprint = a.fingerprint},
                             {.grad_query = grad_query, .grad_key = grad_key, .grad_value = grad_value},
                             {.causal = true});
  Layer gradients;
  regard::linear_backward<double>(x, {}, grad_query, {.grad_weight = gradients.query_weight});
  regard::linear_backward<double>(x, {}, grad_key, {.grad_weight = gradients.key_weight});
  regard::linear_backward<double>(x, {}, grad_value, {.grad_weight = gradients.value_weight});
  return gradients;
}

}  // namespace

int main() {
  Layer layer;
  const Matrix x = filled(L, E, 0.37);
  Activations activations, scratch;
  std::printf("loss %.6f\n", forward(layer, x, activations));
  const Layer gradients = backward(x, activations);

  const auto check = [&](const char* name, Matrix& weight, const Matrix& gradient) {
    double largest = 0, error = 0;
    for (Index i = 0; i < E * D; ++i) {
      double& parameter = weight.view().data[i];
      const double value = parameter, step = 1e-5;
      parameter = value + step;
      const double above = forward(layer, x, scratch);
      parameter = value - step;
      const double below = forward(layer, x, scratch);
      parameter = value;
      largest = std::max(largest, std::abs(gradient.view().data[i]));
      error = std::max(error, std::abs(gradient.view().data[i] - (above - below) / (2 * step)));
    }
    std::printf("%s: largest gradient %.4f, differs from central differences by less than 1e-8: %s\n", name, largest,
                error < 1e-8 ? "yes" : "no");
  };
  check("W_query", layer.query_weight, gradients.query_weight);
  check("W_key  ", layer.key_weight, gradients.key_weight);
  check("W_value", layer.value_weight, gradients.value_weight);

  // One step of gradient descent lowers the loss.
  const auto descend = [](Matrix& weight, const Matrix& gradient) {
    for (Index i = 0; i < E * D; ++i) weight.view().data[i] -= 0.05 * gradient.view().data[i];
  };
  descend(layer.query_weight, gradients.query_weight);
  descend(layer.key_weight, gradients.key_weight);
  descend(layer.value_weight, gradients.value_weight);
  std::printf("loss after one step %.6f\n", forward(layer, x, activations));
}

// Prints:
//   loss 0.042364
//   W_query: largest gradient 0.0135, differs from central differences by less than 1e-8: yes
//   W_key  : largest gradient 0.0056, differs from central differences by less than 1e-8: yes
//   W_value: largest gradient 0.1786, differs from central differences by less than 1e-8: yes
//   loss after one step 0.031919
