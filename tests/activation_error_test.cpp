// SPDX-License-Identifier: Apache-2.0
//
// gelu, gelu_tanh, silu and their derivatives of every instruction set, within the bounds stated in
// include/regard/activation.h.
// Read next: support/function_error.h, src/kernels/simd_activation.h.
#include "kernels/layer_table.h"
#include "support/activation_reference.h"
#include "support/function_error.h"

namespace regard::activation_error_test {
namespace {

using KernelActivation = kernels::Activation;

template <KernelActivation activation, class T>
void function_elements(const kernels::KernelTable& table, const T* x, T* y, Index count) {
  table.of<T>().layers->activate(activation, x, count, y);
}
template <KernelActivation activation, class T>
void derivative_elements(const kernels::KernelTable& table, const T* x, T* y, Index count) {
  const std::vector<T> ones(static_cast<std::size_t>(count), 1);
  table.of<T>().layers->activate_backward(activation, x, ones.data(), count, false, y);
}

// ---- the functions, with their bounds

template <class T>
Function<T> gelu_function() {
  return {"gelu", function_elements<KernelActivation::gelu, T>, reference::gelu<Wide<T>>, 6};
}
template <class T>
Function<T> gelu_derivative_function() {
  return {"gelu'", derivative_elements<KernelActivation::gelu, T>, reference::gelu_derivative<Wide<T>>,
          sizeof(T) == 4 ? 6.0 : 10.0};
}
template <class T>
Function<T> gelu_tanh_function() {
  return {"gelu_tanh", function_elements<KernelActivation::gelu_tanh, T>, reference::gelu_tanh<Wide<T>>, 7};
}
template <class T>
Function<T> silu_function() {
  return {"silu", function_elements<KernelActivation::silu, T>, reference::silu<Wide<T>>, 6};
}
// `units` · u between low / 2 and high / 2, where the derivative passes through 0.
template <class T, int low, int high, int units>
Wide<T> units_between(Wide<T> x) {
  return x > low / Wide<T>{2} && x < high / Wide<T>{2} ? units * reference::kUnit<T> : 0;
}
template <class T>
Function<T> gelu_tanh_derivative_function() {
  return {"gelu_tanh'",
          derivative_elements<KernelActivation::gelu_tanh, T>,
          reference::gelu_tanh_derivative<Wide<T>>,
          9,
          false,
          units_between<T, -2, -1, 2>};
}
template <class T>
Function<T> silu_derivative_function() {
  return {"silu'",
          derivative_elements<KernelActivation::silu, T>,
          reference::silu_derivative<Wide<T>>,
          9,
          false,
          units_between<T, -4, -2, 1>};
}

template <class T>
std::vector<Function<T>> functions() {
  return {gelu_function<T>(), gelu_tanh_function<T>(), silu_function<T>()};
}
template <class T>
std::vector<Function<T>> derivatives() {
  return {gelu_derivative_function<T>(), gelu_tanh_derivative_function<T>(), silu_derivative_function<T>()};
}

template <class T>
class ActivationError : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(ActivationError, Types);

TYPED_TEST(ActivationError, FunctionsOfZeroTinyLargeInfiniteAndNaNValues) {
  using T = TypeParam;
  const T tiny = std::numeric_limits<T>::denorm_min();
  const T largest = std::numeric_limits<T>::max();
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    for (const Function<T>& function : functions<T>()) {
      SCOPED_TRACE(function.name);
      const std::vector<T> y = apply<T>(table, function,
                                        {static_cast<T>(0.0), static_cast<T>(-0.0), kInfinity<T>, -kInfinity<T>,
                                         largest, -largest, 800, -800, 8 * tiny, -8 * tiny, kNaN<T>, -kNaN<T>});
      const std::vector<T> expected{0, 0, kInfinity<T>, 0, largest, 0, 800, 0, 4 * tiny, -4 * tiny};
      for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(y[i], expected[i]) << i;
      for (std::size_t i = 8; i < expected.size(); ++i) EXPECT_LE(std::abs(y[i] - expected[i]), tiny) << i;
      EXPECT_TRUE(std::isnan(y[10]));
      EXPECT_TRUE(std::isnan(y[11]));
    }
  });
}

TYPED_TEST(ActivationError, DerivativesOfZeroTinyLargeInfiniteAndNaNValues) {
  using T = TypeParam;
  const T tiny = std::numeric_limits<T>::denorm_min();
  const T largest = std::numeric_limits<T>::max();
  const T half = static_cast<T>(0.5);
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    for (const Function<T>& function : derivatives<T>()) {
      SCOPED_TRACE(function.name);
      const std::vector<T> y = apply<T>(table, function,
                                        {static_cast<T>(0.0), static_cast<T>(-0.0), tiny, -tiny, kInfinity<T>,
                                         -kInfinity<T>, largest, -largest, 800, -800, kNaN<T>, -kNaN<T>});
      const std::vector<T> expected{half, half, half, half, 1, 0, 1, 0, 1, 0};
      for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], half, std::numeric_limits<T>::epsilon()) << i;
      for (std::size_t i = 4; i < expected.size(); ++i) EXPECT_EQ(y[i], expected[i]) << i;
      EXPECT_TRUE(std::isnan(y[10]));
      EXPECT_TRUE(std::isnan(y[11]));
    }
  });
}

TYPED_TEST(ActivationError, BitsDoNotDependOnThePositionInAnArray) {
  using T = TypeParam;
  Random random(20270101);
  std::vector<T> x(70);
  for (T& number : x) number = static_cast<T>(random.normal() * 5);
  for (const Function<T>& function : functions<T>()) expect_bits_independent_of_position(function, x);
  for (const Function<T>& function : derivatives<T>()) expect_bits_independent_of_position(function, x);
}

TYPED_TEST(ActivationError, GeluAroundPowersOfTwoAndTheEndsOfItsExponential) {
  using T = TypeParam;
  std::vector<Wide<T>> below, above;
  for (int n = -30; n <= 5; ++n) above.push_back(std::ldexp(Wide<T>{1}, n));
  for (int n = 1; n <= (sizeof(T) == 4 ? 290 : 2140); ++n) above.push_back(std::sqrt(std::numbers::ln2_v<Wide<T>> * n));
  for (const Wide<T> x : above) below.push_back(-x);
  for (const Function<T>& function : {gelu_function<T>(), gelu_derivative_function<T>()}) {
    check_neighborhoods<T>(function, above, 0, kInfinity<T>);
    check_neighborhoods<T>(function, below, -kInfinity<T>, static_cast<T>(-0.0));
  }
}

TYPED_TEST(ActivationError, DerivativesAroundTheirZeros) {
  using T = TypeParam;
  std::vector<Wide<T>> centers;
  for (int n = -50; n <= -3; ++n) {
    for (const int sign : {-1, 1}) centers.push_back(Wide<T>{-0x1.80ead197f00b4p-1} + sign * std::ldexp(Wide<T>{1}, n));
  }
  check_neighborhoods<T>(gelu_derivative_function<T>(), centers, -2, static_cast<T>(-0.25));
  check_neighborhoods<T>(gelu_tanh_derivative_function<T>(), {Wide<T>{-0.7524614220710163}}, -2, static_cast<T>(-0.25));
  check_neighborhoods<T>(silu_derivative_function<T>(), {Wide<T>{-1.2784645427610738}}, -2, static_cast<T>(-0.25));
}

// ---- float: every number, or a sample; double: samples

void check_float(const Function<float>& function, float last) {
  check_range<float>(function, 0, kInfinity<float>, sampled<float>(1999));
  check_range<float>(function, -kInfinity<float>, -0.0f, sampled<float>(1999));
  check_range<float>(function, -last, -0.01f, test_size(61U, 613U));
  check_range<float>(function, 0.01f, last, test_size(113U, 1009U));
}
void check_double(const Function<double>& function, double last) {
  check_range<double>(function, 0, kInfinity<double>, sampled<double>(0x0010'0123'4567'89ab >> 3));
  check_range<double>(function, 0.01, last, sampled<double>(0x0123'4567'89ab >> 3));
  check_range<double>(function, -kInfinity<double>, -0.0, sampled<double>(0x0010'0123'4567'89ab >> 3));
  check_range<double>(function, -last, -0.01, sampled<double>(0x0123'4567'89ab >> 4));
}

TEST(ActivationErrorFloat, Gelu) { check_float(gelu_function<float>(), 15); }
TEST(ActivationErrorFloat, GeluDerivative) { check_float(gelu_derivative_function<float>(), 15); }
TEST(ActivationErrorFloat, GeluTanh) { check_float(gelu_tanh_function<float>(), 11); }
TEST(ActivationErrorFloat, GeluTanhDerivative) { check_float(gelu_tanh_derivative_function<float>(), 11); }
TEST(ActivationErrorFloat, Silu) { check_float(silu_function<float>(), 112); }
TEST(ActivationErrorFloat, SiluDerivative) { check_float(silu_derivative_function<float>(), 112); }

TEST(ActivationErrorDouble, Gelu) { check_double(gelu_function<double>(), 39); }
TEST(ActivationErrorDouble, GeluDerivative) { check_double(gelu_derivative_function<double>(), 39); }
TEST(ActivationErrorDouble, GeluTanh) { check_double(gelu_tanh_function<double>(), 22); }
TEST(ActivationErrorDouble, GeluTanhDerivative) { check_double(gelu_tanh_derivative_function<double>(), 22); }
TEST(ActivationErrorDouble, Silu) { check_double(silu_function<double>(), 755); }
TEST(ActivationErrorDouble, SiluDerivative) { check_double(silu_derivative_function<double>(), 755); }

}  // namespace
}  // namespace regard::activation_error_test
