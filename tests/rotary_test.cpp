// SPDX-License-Identifier: Apache-2.0
//
// rotary_forward and rotary_backward compared with their formula in a wider type: frequencies, cosines and sines up to
// angles of 2³¹, rotations. Every result has the same bits on every instruction set. Layouts, threads and outputs in
// place do not change bits; gradients accumulate; mistakes are rejected.
//
//   error of a rotated component ≤ 3.01 u (|a| + |b|)
//
// Read next: src/layers/rotary.cpp, src/kernels/rotary_rows.cpp.
#include "regard/rotary.h"

#include "kernels/layer_table.h"
#include "layers/rotary_frequencies.h"
#include "support/attention_cases.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"
#include "support/same_bits.h"

namespace regard::rotary_test {
namespace {

constexpr double kLargestAngle = 0x1p31;

std::vector<double> frequencies(double base, Index size) {
  std::vector<double> result(static_cast<std::size_t>(size / 2));
  internal::rotary_frequencies(base, size, result.data());
  return result;
}

TEST(RotaryFrequencies, AreWithinHalfAnUlp) {
  for (const double base : {1.0, 1.5, 2.0, 100.0, 10000.0, 500000.0, 1e6, 1e8, 12345.678, 1e30, 1e300}) {
    for (const Index size : {2, 4, 6, 64, 80, 96, 128, 256, 1000}) {
      const std::vector<double> got = frequencies(base, size);
      for (Index d = 0; d < size / 2; ++d) {
        const long double exponent = -2 * static_cast<long double>(d) / static_cast<long double>(size);
        const long double exact = std::pow(static_cast<long double>(base), exponent);
        // The error of the exact value is that of a logarithm of up to 1000 in 64 bits.
        const long double allowed =
            0.51L + 0x1p-11L * std::max(1.0L, -exponent * std::log(static_cast<long double>(base)));
        const long double ulp = std::ldexp(1.0L, std::ilogb(static_cast<double>(exact)) - 52);
        EXPECT_LE(std::abs(got[static_cast<std::size_t>(d)] - exact), allowed * ulp) << base << " " << size << " " << d;
      }
    }
  }
}

// cos and sin of angles, as frequencies of position 1.
template <class T>
void factors(const kernels::KernelTable& table, const std::vector<double>& angles, double position,
             std::vector<T>& cosines, std::vector<T>& sines) {
  cosines.assign(angles.size(), 7);
  sines.assign(angles.size(), 7);
  table.of<T>().layers->rotary_factors(position, angles.data(), static_cast<Index>(angles.size()), cosines.data(),
                                       sines.data());
}

std::vector<double> many_angles() {
  Random random(20270311);
  std::vector<double> angles{0, kLargestAngle, std::numeric_limits<double>::denorm_min(), 0x1p-30, 1};
  for (int n = 0; n < 60'000; ++n) angles.push_back(random.uniform() * kLargestAngle);
  for (int n = 0; n < 60'000; ++n) angles.push_back(kLargestAngle * std::exp(-60 * random.uniform()));
  // Around the ends and the middles of quadrants: the nearest doubles, and their neighbors.
  for (int n = 0; n < 20'000; ++n) {
    const auto eighth = static_cast<long double>(n < 2'000 ? n : random.integer(0, (Index{1} << 31) * 4 / 3));
    const auto near = static_cast<double>(eighth * std::numbers::pi_v<long double> / 4);
    for (const double angle : {std::nextafter(near, 0.0), near, std::nextafter(near, kLargestAngle)}) {
      if (angle <= kLargestAngle) angles.push_back(angle);
    }
  }
  // Integers: the first pair of every row.
  for (int n = 0; n < 20'000; ++n) angles.push_back(static_cast<double>(random.integer(0, Index{1} << 31)));
  return angles;
}

TEST(RotaryFactors, HaveErrorsBelowTheirBoundAndTheSameBitsOnEveryInstructionSet) {
  const std::vector<double> angles = many_angles();
  std::vector<long double> exact_cosines, exact_sines;
  for (const double angle : angles) {
    exact_cosines.push_back(std::cos(static_cast<long double>(angle)));
    exact_sines.push_back(std::sin(static_cast<long double>(angle)));
  }
  std::vector<double> first_cosines, first_sines, cosines, sines, negated_cosines, negated_sines;
  on_every_instruction_set([&](const kernels::KernelTable& table) {
    factors(table, angles, 1, cosines, sines);
    if (first_cosines.empty()) {
      first_cosines = cosines;
      first_sines = sines;
      long double error = 0;
      for (std::size_t i = 0; i < angles.size(); ++i) {
        error = std::max({error, std::abs(cosines[i] - exact_cosines[i]), std::abs(sines[i] - exact_sines[i])});
      }
      EXPECT_LE(error, 0x1p-53L);
    }
    EXPECT_TRUE(same_bits(bits_of(cosines), bits_of(first_cosines)));
    EXPECT_TRUE(same_bits(bits_of(sines), bits_of(first_sines)));
    factors(table, angles, -1, negated_cosines, negated_sines);
    for (double& sine : negated_sines) sine = -sine;
    EXPECT_TRUE(same_bits(bits_of(negated_cosines), bits_of(cosines)));
    EXPECT_TRUE(negated_sines == sines);
    std::vector<float> rounded_cosines, rounded_sines;
    factors(table, angles, 1, rounded_cosines, rounded_sines);
    for (std::size_t i = 0; i < angles.size(); ++i) {
      ASSERT_EQ(rounded_cosines[i], static_cast<float>(cosines[i]));
      ASSERT_EQ(rounded_sines[i], static_cast<float>(sines[i]));
    }
  });
}

// ---- the operators

template <class T>
Array<T, 4> numbers(std::uint64_t seed, const std::array<Index, 4>& shape,
                    const Layout<4>& layout = Layout<4>::dense()) {
  Random random(seed);
  Array<T, 4> array(shape, layout);
  array.fill([&] { return static_cast<ComputeType<T>>(random.normal()); });
  return array;
}

template <class T>
Array<T, 4> forward(const Array<T, 4>& input, const RotaryOptions& options, const Runtime& runtime = {},
                    const Layout<4>& layout = Layout<4>::dense()) {
  Array<T, 4> output(input.shape(), layout);
  rotary_forward<T>(input.view(), output.view(), options, runtime);
  return output;
}
template <class T>
Array<T, 4> backward(const Array<T, 4>& grad_output, const RotaryOptions& options) {
  Array<T, 4> grad_input(grad_output.shape());
  rotary_backward<T>(grad_output.view(), grad_input.view(), options);
  return grad_input;
}

template <class T>
class Rotary : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Rotary, Types);

// Rotates by `direction` times the angles, and compares.
template <class T>
void expect_rotated(const Array<T, 4>& x, const Array<T, 4>& y, const RotaryOptions& options, int direction) {
  using W = reference::Wide<T>;
  const Index size = options.size == 0 ? x.shape()[3] : options.size;
  const std::vector<double> frequency = frequencies(options.base, size);
  x.for_each_index([&](const auto& at) {
    const auto [b, h, l, d] = at;
    if (d >= size) {
      EXPECT_EQ(y.get(at), x.get(at));
      return;
    }
    const bool halves = options.layout == RotaryLayout::halves;
    const Index pair = halves ? d % (size / 2) : d / 2;
    const bool is_second = halves ? d >= size / 2 : d % 2 == 1;
    const Index first = halves ? pair : 2 * pair, second = halves ? pair + size / 2 : 2 * pair + 1;
    const Index position = options.positions.absent() ? options.first_position + l : options.positions(b, l);
    const auto angle =
        static_cast<long double>(static_cast<double>(position) * frequency[static_cast<std::size_t>(pair)]);
    const auto cosine = static_cast<W>(std::cos(angle)), sine = static_cast<W>(direction * std::sin(angle));
    const W a = x.get({b, h, l, first}), c = x.get({b, h, l, second});
    const W exact = is_second ? c * cosine + a * sine : a * cosine - c * sine;
    EXPECT_LE(std::abs(static_cast<W>(y.get(at)) - exact), W{3.01} * reference::kUnit<T> * (std::abs(a) + std::abs(c)))
        << b << " " << h << " " << l << " " << d;
  });
}

TYPED_TEST(Rotary, MatchesItsFormulaWithTheSameBitsOnEveryInstructionSet) {
  using T = TypeParam;
  const std::vector<Index> positions{0, 5, 1, Index{1} << 31, -(Index{1} << 31), 1'000'003, 77, 77};
  for (const RotaryLayout layout : {RotaryLayout::halves, RotaryLayout::interleaved}) {
    for (const auto& [D, size] :
         {std::array<Index, 2>{2, 0}, {64, 0}, {30, 0}, {34, 34}, {7, 6}, {40, 10}, {128, 66}}) {
      for (const bool given : {false, true}) {
        RotaryOptions options{.base = 500000, .layout = layout, .size = size};
        if (given) options.positions = {positions.data(), {2, 4}};
        if (!given) options.first_position = 1234;
        const Array<T, 4> x = numbers<T>(1, {2, 3, 4, D});
        std::vector<std::uint64_t> first;
        on_every_instruction_set([&](const kernels::KernelTable&) {
          const Array<T, 4> y = forward(x, options);
          if (first.empty()) {
            first = bits_of(y);
            expect_rotated(x, y, options, 1);
            expect_rotated(x, backward(x, options), options, -1);
          }
          EXPECT_TRUE(same_bits(bits_of(y), first));
        });
      }
    }
  }
}

TYPED_TEST(Rotary, BackwardMatchesCentralDifferencesAndInvertsForward) {
  if constexpr (std::is_same_v<TypeParam, double>) {
    for (const RotaryLayout layout : {RotaryLayout::halves, RotaryLayout::interleaved}) {
      const RotaryOptions options{.layout = layout, .size = 6, .first_position = 3};
      Array<double, 4> x = numbers<double>(2, {1, 2, 3, 8});
      const Array<double, 4> g = numbers<double>(3, {1, 2, 3, 8});
      const Array<double, 4> gradient = backward(g, options);
      const auto loss = [&] {
        const Array<double, 4> y = forward(x, options);
        double sum = 0;
        y.for_each_index([&](const auto& at) { sum += y.get(at) * g.get(at); });
        return sum;
      };
      x.for_each_index([&](const auto& at) {
        const double here = x.get(at), step = 1e-4;
        x.set(at, here + step);
        const double above = loss();
        x.set(at, here - step);
        const double below = loss();
        x.set(at, here);
        EXPECT_NEAR(gradient.get(at), (above - below) / (2 * step), 1e-6 * std::abs(gradient.get(at)) + 1e-10);
      });
      const Array<double, 4> back = backward(forward(x, options), options);
      x.for_each_index([&](const auto& at) { EXPECT_NEAR(back.get(at), x.get(at), 1e-14); });
    }
  }
}

TYPED_TEST(Rotary, ProductsDependOnTheDistanceOnly) {
  using T = TypeParam;
  const Array<T, 4> query = numbers<T>(4, {1, 1, 1, 64}), key = numbers<T>(5, {1, 1, 1, 64});
  const auto product = [&](Index p, Index q) {
    const Array<T, 4> a = forward(query, {.first_position = p}), b = forward(key, {.first_position = q});
    double sum = 0;
    a.for_each_index([&](const auto& at) { sum += static_cast<double>(a.get(at)) * static_cast<double>(b.get(at)); });
    return sum;
  };
  // The rounding of an angle is that of a product of up to 5096 and a frequency.
  const double bound = 64 * (20 * static_cast<double>(reference::kUnit<T>) + 3 * 5096 * 0x1p-53);
  for (const Index distance : {0, 1, 17, 1000}) {
    const double here = product(distance, 0);
    for (const Index shift : {1, 50, 4096}) EXPECT_NEAR(product(distance + shift, shift), here, bound);
  }
}

TYPED_TEST(Rotary, LayoutsThreadsAndSharedPositionsDoNotChangeBits) {
  using T = TypeParam;
  Random random(20270312);
  for (int n = 0; n < 60; ++n) {
    const std::array<Index, 4> shape{random.integer(1, 3), random.integer(1, 6),
                                     random.integer(0, n % 4 == 0 ? 300 : 20), random.integer(1, 70)};
    Array<Index, 2> positions({shape[0], shape[2]}, random_layout<2>(random, false));
    positions.fill([&] { return random.integer(-9, 5000); });
    RotaryOptions options{.layout = n % 2 == 0 ? RotaryLayout::halves : RotaryLayout::interleaved,
                          .size = std::min<Index>(random.integer(0, shape[3]), shape[3]) / 2 * 2};
    if (options.size == 0 && shape[3] % 2 == 1) continue;
    if (n % 3 == 0) {
      options.first_position = random.integer(-3, 3000);
    } else if (positions.view().data != nullptr && reinterpret_cast<std::uintptr_t>(positions.view().data) % 8 == 0) {
      options.positions = std::as_const(positions).view();
    }
    const Array<T, 4> strided = numbers<T>(6, shape, random_layout<4>(random, false));
    const Array<T, 4> dense = relaid(strided, Layout<4>::dense());
    Array<T, 4> wanted = forward(dense, options, {.num_threads = 1});
    Array<T, 4> got = forward(strided, options, {.num_threads = 5}, random_layout<4>(random, true));
    EXPECT_TRUE(same_bits(bits_of(got), bits_of(wanted))) << "call " << n;
    EXPECT_TRUE(got.surroundings_untouched());
  }
  // Many heads of one position, and positions that batch entries share.
  const std::vector<Index> row{3, 1, 4, 1, 5};
  const Array<T, 4> x = numbers<T>(7, {4, 64, 5, 32});
  const auto alone = forward(x, {.positions = {row.data(), {4, 5}, {0, 1}}}, {.num_threads = 1});
  std::vector<Index> repeated;
  for (int b = 0; b < 4; ++b) repeated.insert(repeated.end(), row.begin(), row.end());
  const auto apart = forward(x, {.positions = {repeated.data(), {4, 5}}}, {.num_threads = 5});
  EXPECT_TRUE(same_bits(bits_of(apart), bits_of(alone)));
  const Array<T, 4> tokens = numbers<T>(8, {2, 300, 1, 64});
  EXPECT_TRUE(same_bits(bits_of(forward(tokens, {.first_position = 9}, {.num_threads = 5})),
                        bits_of(forward(tokens, {.first_position = 9}, {.num_threads = 1}))));
}

TYPED_TEST(Rotary, OutputMayBeInPlaceOfInput) {
  using T = TypeParam;
  Layout<4> gaps = Layout<4>::dense();
  gaps.inner_step = 2;
  for (const RotaryLayout pairs : {RotaryLayout::halves, RotaryLayout::interleaved}) {
    for (const Layout<4>& layout : {Layout<4>::dense(), gaps}) {
      const RotaryOptions options{.layout = pairs, .size = 26};
      Array<T, 4> x = numbers<T>(9, {2, 3, 70, 37}, layout);
      const auto wanted = bits_of(forward(x, options)), wanted_gradient = bits_of(backward(x, options));
      Array<T, 4> g = numbers<T>(9, {2, 3, 70, 37}, layout);
      rotary_forward<T>(std::as_const(x).view(), x.view(), options);
      EXPECT_TRUE(same_bits(bits_of(x), wanted));
      rotary_backward<T>(std::as_const(g).view(), g.view(), options);
      EXPECT_TRUE(same_bits(bits_of(g), wanted_gradient));
    }
  }
}

TYPED_TEST(Rotary, AccumulationAddsToExistingValues) {
  using T = TypeParam;
  Layout<4> gaps = Layout<4>::dense();
  gaps.inner_step = 2;
  for (const RotaryLayout pairs : {RotaryLayout::halves, RotaryLayout::interleaved}) {
    for (const Layout<4>& layout : {Layout<4>::dense(), gaps}) {
      on_every_instruction_set([&](const kernels::KernelTable&) {
        const RotaryOptions options{.layout = pairs, .size = 22, .first_position = 2};
        const Array<T, 4> g = numbers<T>(10, {1, 2, 5, 27}), old = numbers<T>(11, {1, 2, 5, 27});
        const Array<T, 4> gradient = backward(g, options);
        Array<T, 4> sum = relaid(old, layout);
        rotary_backward<T>(g.view(), sum.view(), options, true);
        sum.for_each_index([&](const auto& at) { EXPECT_EQ(sum.get(at), old.get(at) + gradient.get(at)); });
      });
    }
  }
}

TEST(RotaryTypes, Bfloat16IsRotatedInFloatAndRoundedOnce) {
  const Array<bfloat16, 4> x = numbers<bfloat16>(12, {2, 2, 9, 40});
  Array<float, 4> wide(x.shape());
  wide.for_each_index([&](const auto& at) { wide.set(at, static_cast<float>(x.get(at))); });
  const RotaryOptions options{.size = 36, .first_position = 100};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const Array<bfloat16, 4> narrow = forward(x, options);
    const Array<float, 4> exact = forward(wide, options);
    Array<bfloat16, 4> narrow_sum = relaid(x, Layout<4>::dense());
    Array<float, 4> exact_sum = relaid(wide, Layout<4>::dense());
    rotary_backward<bfloat16>(x.view(), narrow_sum.view(), options, true);
    rotary_backward<float>(std::as_const(wide).view(), exact_sum.view(), options, true);
    x.for_each_index([&](const auto& at) {
      EXPECT_EQ(narrow.get(at).bits, bfloat16(exact.get(at)).bits);
      EXPECT_EQ(narrow_sum.get(at).bits, bfloat16(exact_sum.get(at)).bits);
    });
  });
}

TYPED_TEST(Rotary, NaNStaysInItsPairAndPositionZeroChangesNothing) {
  using T = TypeParam;
  Array<T, 4> x = numbers<T>(13, {1, 1, 2, 16});
  x.set({0, 0, 1, 3}, std::numeric_limits<T>::quiet_NaN());
  const Array<T, 4> y = forward(x, {});
  for (Index d = 0; d < 16; ++d) {
    EXPECT_EQ(y.get({0, 0, 0, d}), x.get({0, 0, 0, d}));
    EXPECT_EQ(std::isnan(y.get({0, 0, 1, d})), d == 3 || d == 11);
  }
}

TEST(RotaryRejections, NameTheArgumentBeforeAnyWork) {
  std::vector<float> memory(200, 1), out(200, 7);
  const TensorView<const float, 4> input(memory.data(), {1, 2, 3, 8});
  const TensorView<float, 4> output(out.data(), {1, 2, 3, 8});
  const auto call = [&](const RotaryOptions& options) {
    return rejection([&] { rotary_forward<float>(input, output, options); });
  };
  EXPECT_EQ(rejection([&] { rotary_forward<float>(input, TensorView<float, 4>(out.data(), {1, 2, 3, 7})); }),
            "rotary_forward: output has shape (1, 2, 3, 7); expected (1, 2, 3, 8), the shape of input");
  EXPECT_EQ(rejection([&] { rotary_backward<float>(input, TensorView<float, 4>(out.data(), {1, 3, 2, 8})); }),
            "rotary_backward: grad_input has shape (1, 3, 2, 8); expected (1, 2, 3, 8), the shape of grad_output");
  EXPECT_EQ(rejection([&] { rotary_forward<float>({out.data() + 1, {1, 2, 3, 8}}, output); }),
            "rotary_forward: output overlaps input; expected separate memory");
  EXPECT_EQ(call({.base = 0.5}), "rotary_forward: base is 0.500000; expected a finite number of at least 1");
  EXPECT_NE(call({.base = std::nan("")}), "accepted");
  EXPECT_EQ(call({.layout = static_cast<RotaryLayout>(3)}),
            "rotary_forward: layout is 3; expected halves or interleaved");
  for (const Index size : {-2, 3, 10}) {
    EXPECT_EQ(call({.size = size}), "rotary_forward: size is " + std::to_string(size) +
                                        "; expected an even number from 0 to 8, the last extent of input");
  }
  EXPECT_EQ(rejection([&] {
              rotary_forward<float>({memory.data(), {1, 2, 3, 7}}, TensorView<float, 4>(out.data(), {1, 2, 3, 7}));
            }),
            "rotary_forward: size is 7; expected an even number from 0 to 7, the last extent of input");
  const Index range = Index{1} << 31;
  EXPECT_EQ(call({.first_position = range - 1}),
            "rotary_forward: the last position is 2147483649; expected a number from -2147483648 to 2147483648");
  EXPECT_EQ(call({.first_position = -range - 1}),
            "rotary_forward: first_position is -2147483649; expected a number from -2147483648 to 2147483648");
  const std::vector<Index> positions{0, 1, range + 1};
  EXPECT_EQ(call({.positions = {positions.data(), {1, 3}}}),
            "rotary_forward: positions[0, 2] is 2147483649; expected a number from -2147483648 to 2147483648");
  EXPECT_EQ(call({.positions = {positions.data(), {3, 1}}}),
            "rotary_forward: positions has shape (3, 1); expected (1, 3)");
  EXPECT_EQ(call({.first_position = 4, .positions = {positions.data(), {1, 3}, {0, 0}}}),
            "rotary_forward: first_position is 4; expected 0 if positions are given");
  EXPECT_EQ(out, std::vector<float>(200, 7));
  EXPECT_EQ(call({.size = 4, .positions = {positions.data(), {1, 3}, {0, 0}}}), "accepted");
}

}  // namespace
}  // namespace regard::rotary_test
