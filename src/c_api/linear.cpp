// SPDX-License-Identifier: Apache-2.0
//
// Linear layers for C: forward and backward, with a weight that is packed during the call or beforehand. The type of
// the first argument, float, double or bfloat16, selects the C++ operator.
// Read next: descriptors.h, src/layers/linear.cpp.
#include "regard/linear.h"

#include <variant>

#include "descriptors.h"
#include "regard/linear_backward.h"

using namespace regard;
using namespace regard::internal;

struct regard_packed_linear {
  std::variant<PackedLinear<float>, PackedLinear<double>, PackedLinear<bfloat16>> weight;
};

namespace {

// Calls function(T{}) with the type of a linear layer's first argument.
template <class Function>
void with_type_of(const char* operator_name, const char* name, const regard_input* array, Function function) {
  if (array == nullptr || !is_given(*array)) reject(operator_name, std::string(name) + " is missing");
  if (array->dtype == REGARD_F32) return function(float{});
  if (array->dtype == REGARD_F64) return function(double{});
  if (array->dtype == REGARD_BF16) return function(bfloat16{});
  reject(operator_name, std::string(name) + " has type " + element_type_text(static_cast<ElementType>(array->dtype)) +
                            "; expected float32, float64 or bfloat16");
}

// Calls forward(view) with the output, which has type T, or float if T is bfloat16.
template <class T, class Forward>
void with_output(const char* name, const regard_output* output, Forward forward) {
  if (output == nullptr || !is_given(*output)) reject(name, "output is missing");
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (output->dtype == REGARD_F32) return forward(typed_view<float, 2>(name, "output", output));
  }
  forward(typed_view<T, 2>(name, "output", output));
}

Activation activation_of(const char* name, std::int32_t given) {
  switch (given) {
    case REGARD_NO_ACTIVATION:
      return Activation::none;
    case REGARD_RELU:
      return Activation::relu;
    case REGARD_GELU:
      return Activation::gelu;
    case REGARD_GELU_TANH:
      return Activation::gelu_tanh;
    case REGARD_SILU:
      return Activation::silu;
    default:
      reject(name, "activation is " + std::to_string(given) +
                       "; expected 0 (none), 1 (relu), 2 (gelu), 3 (gelu_tanh) or 4 (silu)");
  }
}

}  // namespace

int32_t regard_linear_forward(const regard_input* input, const regard_input* weight, const regard_input* bias,
                              const regard_output* output, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "linear_forward";
    with_type_of(name, "input", input, [=]<class T>(T) {
      if (weight == nullptr || !is_given(*weight)) reject(name, "weight is missing");
      with_output<T>(name, output, [&](const auto& y) {
        run(name, runtime, [&](const Runtime& cpp_runtime) {
          linear_forward(typed_view<T, 2>(name, "input", input), typed_view<T, 2>(name, "weight", weight),
                         typed_view<T, 1>(name, "bias", bias), y, cpp_runtime);
        });
      });
    });
  });
}

int32_t regard_linear_backward(const regard_input* input, const regard_input* weight, const regard_input* grad_output,
                               const regard_linear_gradients* gradients, const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "linear_backward";
    const regard_linear_gradients g = read_struct(name, "gradients", gradients);
    check_accumulate(name, g.accumulate, REGARD_GRAD_INPUT | REGARD_GRAD_WEIGHT | REGARD_GRAD_BIAS);
    with_type_of(name, "grad_output", grad_output, [&]<class T>(T) {
      run(name, runtime, [&](const Runtime& cpp_runtime) {
        linear_backward<T>(typed_view<T, 2>(name, "input", input), typed_view<T, 2>(name, "weight", weight),
                           typed_view<T, 2>(name, "grad_output", grad_output),
                           {.grad_input = typed_view<T, 2>(name, "grad_input", &g.grad_input),
                            .grad_weight = typed_view<T, 2>(name, "grad_weight", &g.grad_weight),
                            .grad_bias = typed_view<T, 1>(name, "grad_bias", &g.grad_bias),
                            .accumulate = {.grad_input = (g.accumulate & REGARD_GRAD_INPUT) != 0,
                                           .grad_weight = (g.accumulate & REGARD_GRAD_WEIGHT) != 0,
                                           .grad_bias = (g.accumulate & REGARD_GRAD_BIAS) != 0}},
                           cpp_runtime);
      });
    });
  });
}

int32_t regard_packed_linear_create(const regard_input* weight, const regard_runtime* runtime,
                                    regard_packed_linear** packed) {
  return status_of([=] {
    const char* name = "packed_linear_create";
    if (packed == nullptr) reject(name, "packed is NULL");
    with_type_of(name, "weight", weight, [=]<class T>(T) {
      run_unplanned(name, runtime, [&](const Runtime& cpp_runtime) {
        *packed = new regard_packed_linear{PackedLinear<T>(typed_view<T, 2>(name, "weight", weight), cpp_runtime)};
      });
    });
  });
}

void regard_packed_linear_free(regard_packed_linear* packed) { delete packed; }

int32_t regard_packed_linear_forward(const regard_input* input, const regard_packed_linear* weight,
                                     const regard_input* bias, int32_t activation, const regard_output* output,
                                     const regard_runtime* runtime) {
  return status_of([=] {
    const char* name = "linear_forward";
    if (weight == nullptr) reject(name, "weight is NULL");
    const LinearOptions options{.activation = activation_of(name, activation)};
    with_type_of(name, "input", input, [=]<class T>(T) {
      const auto* const packed = std::get_if<PackedLinear<T>>(&weight->weight);
      if (packed == nullptr)
        reject(name, "weight was packed with a different type than that of input; expected the same type");
      with_output<T>(name, output, [&](const auto& y) {
        run(name, runtime, [&](const Runtime& cpp_runtime) {
          linear_forward(typed_view<T, 2>(name, "input", input), *packed, typed_view<T, 1>(name, "bias", bias), y,
                         options, cpp_runtime);
        });
      });
    });
  });
}
