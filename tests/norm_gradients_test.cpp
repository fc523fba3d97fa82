// SPDX-License-Identifier: Apache-2.0
//
// layer_norm_backward and rms_norm_backward: the gradients compared with plain loops in a wider type, in every layout
// and on every instruction set, and with central differences; accumulation and groups of rows to the bit; rejections.
//
// With n = (x − mean) / deviation, g = grad_output · gain, a = Σ g / E and b = Σ (g · n) / E, an error is at most
//
//   grad_input   10 u · (|g| + |a| + (1 + |n|) · |b|) / deviation
//   grad_gain    u · |result|
//   grad_bias    u · |result|
//
// plus that of sums and of n, which matters in double only: (E + R) · u of the sum of magnitudes.
// Read next: src/layers/norm_backward.cpp.
#include <functional>
#include <limits>

#include "regard/layer_norm.h"
#include "regard/rms_norm.h"
#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/instruction_sets.h"

namespace regard::norm_gradients_test {
namespace {

constexpr double kEpsilon = 1e-5;

// Both operators have the arguments of layer norm here; RMS norm ignores those that it lacks.
enum class Kind { layer_norm, rms_norm };
constexpr std::array kKinds{Kind::layer_norm, Kind::rms_norm};

template <class T>
struct Call {
  Kind kind = Kind::layer_norm;
  bool adds = true;
  Array<T, 2> input, addend, grad_output, grad_input;
  Array<T, 1> gain, grad_gain, grad_bias;

  Call() = default;
  Call(Kind kind_, Index R, Index E, std::uint64_t seed = 7, double mean = 0) : kind(kind_) {
    Random random(seed);
    const auto normal = [&] { return static_cast<ComputeType<T>>(random.normal()); };
    input = Array<T, 2>({R, E});
    addend = Array<T, 2>({R, E});
    grad_output = Array<T, 2>({R, E});
    gain = Array<T, 1>({E});
    input.fill([&] { return static_cast<ComputeType<T>>(random.normal() + mean); });
    addend.fill(normal);
    grad_output.fill(normal);
    gain.fill(normal);
    grad_input = Array<T, 2>({R, E});
    grad_gain = Array<T, 1>({E});
    grad_bias = Array<T, 1>({E});
  }

  Index rows() const { return input.shape()[0]; }
  Index width() const { return input.shape()[1]; }

  LayerNormGradients<T> views() {
    return {.grad_input = grad_input.view(), .grad_gain = grad_gain.view(), .grad_bias = grad_bias.view()};
  }
  void run(const Runtime& runtime = {}) { run(views(), 0, rows(), runtime); }
  // The call for some rows only; gradients.grad_input has as many.
  void run(const LayerNormGradients<T>& gradients, Index first, Index count, const Runtime& runtime = {}) const {
    const auto rows_of = [&](const Array<T, 2>& array) { return sliced(array.view(), 0, first, first + count); };
    const auto added = adds ? rows_of(addend) : TensorView<const T, 2>{};
    if (kind == Kind::layer_norm) {
      layer_norm_backward<T>(rows_of(input), added, gain.view(), rows_of(grad_output), gradients, kEpsilon, runtime);
    } else {
      rms_norm_backward<T>(rows_of(input), added, gain.view(), rows_of(grad_output),
                           {.grad_input = gradients.grad_input,
                            .grad_gain = gradients.grad_gain,
                            .accumulate = {gradients.accumulate.grad_input, gradients.accumulate.grad_gain},
                            .rows_per_group = gradients.rows_per_group},
                           kEpsilon, runtime);
    }
  }
  void forward(Array<T, 2>& output) const {
    const auto added = adds ? addend.view() : TensorView<const T, 2>{};
    if (kind == Kind::layer_norm) {
      layer_norm_forward<T>(input.view(), added, gain.view(), {}, output.view(), kEpsilon);
    } else {
      rms_norm_forward<T>(input.view(), added, gain.view(), output.view(), kEpsilon);
    }
  }
};

template <class T>
struct Bounded {
  std::vector<reference::Wide<T>> value, error;
};

template <class T>
void expect_within(const std::vector<T>& got, const Bounded<T>& expected, const char* name) {
  ASSERT_EQ(got.size(), expected.value.size());
  for (std::size_t n = 0; n < got.size(); ++n) {
    EXPECT_LE(std::abs(static_cast<reference::Wide<T>>(got[n]) - expected.value[n]), expected.error[n])
        << name << " " << n << ": " << static_cast<double>(got[n]);
  }
}

template <class T>
void expect_gradients(const Call<T>& call) {
  using W = reference::Wide<T>;
  const Index R = call.rows(), E = call.width();
  const W width = static_cast<W>(E), u = reference::kUnit<T>;
  // In float, the error of what is computed in double is far below u.
  const W of_sums = sizeof(T) == sizeof(double) ? static_cast<W>(E + R + 6) * u : W{0x1p-40};
  Bounded<T> input, gain, bias;
  for (Bounded<T>* parameter : {&gain, &bias}) {
    parameter->value.assign(static_cast<std::size_t>(E), 0);
    parameter->error.assign(static_cast<std::size_t>(E), 0);
  }
  for (Index r = 0; r < R; ++r) {
    std::vector<W> x, n, g;
    W mean = 0, square = 0, a = 0, b = 0, a_size = 0, b_size = 0;
    for (Index e = 0; e < E; ++e) {
      x.push_back(static_cast<W>(call.adds ? static_cast<T>(call.input.get({r, e}) + call.addend.get({r, e}))
                                           : call.input.get({r, e})));
      g.push_back(static_cast<W>(call.grad_output.get({r, e})) * static_cast<W>(call.gain.get({e})));
      mean += x.back() / width;
    }
    if (call.kind == Kind::rms_norm) mean = 0;
    for (const W element : x) square += (element - mean) * (element - mean) / width;
    const W deviation = std::sqrt(square + W{kEpsilon});
    for (std::size_t e = 0; e < x.size(); ++e) {
      n.push_back((x[e] - mean) / deviation);
      if (call.kind == Kind::layer_norm) a += g[e] / width;
      a_size += std::abs(g[e]) / width;
      b += g[e] * n[e] / width;
      b_size += std::abs(g[e]) * (1 + std::abs(n[e])) / width;
    }
    for (std::size_t e = 0; e < x.size(); ++e) {
      const W grad = static_cast<W>(call.grad_output.get({r, static_cast<Index>(e)}));
      const W size = std::abs(g[e]) + std::abs(a) + (1 + std::abs(n[e])) * std::abs(b);
      input.value.push_back((g[e] - a - n[e] * b) / deviation);
      input.error.push_back((10 * u * size + of_sums * (a_size + (1 + std::abs(n[e])) * b_size)) / deviation);
      gain.value[e] += grad * n[e];
      gain.error[e] += of_sums * std::abs(grad) * (1 + std::abs(n[e]));
      bias.value[e] += grad;
      bias.error[e] += of_sums * std::abs(grad);
    }
  }
  for (std::size_t e = 0; e < bias.value.size(); ++e) {
    gain.error[e] += u * std::abs(gain.value[e]);
    bias.error[e] += u * std::abs(bias.value[e]);
  }
  expect_within(call.grad_input.values(), input, "grad_input");
  expect_within(call.grad_gain.values(), gain, "grad_gain");
  if (call.kind == Kind::layer_norm) expect_within(call.grad_bias.values(), bias, "grad_bias");
}

template <class T>
class NormBackward : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(NormBackward, Types);

TYPED_TEST(NormBackward, MatchesPlainLoops) {
  using T = TypeParam;
  for (const Kind kind : kKinds) {
    for (const auto& [R, E] : {std::array<Index, 2>{1, 1},
                               {3, 2},
                               {21, 7},
                               {8, 8},
                               {9, 9},
                               {17, 15},
                               {16, 16},
                               {5, 17},
                               {130, 33},
                               {70, 127},
                               {7, 300},
                               {9, 1000},
                               {2, 1024},
                               {11, 1025},
                               {1, 2100}}) {
      on_every_instruction_set([&](const kernels::KernelTable&) {
        for (const bool adds : {true, false}) {
          SCOPED_TRACE(testing::Message() << "kind " << static_cast<int>(kind) << ", " << R << " rows of " << E);
          Call<T> call(kind, R, E);
          call.adds = adds;
          call.run();
          expect_gradients(call);
        }
      });
    }
  }
}

TYPED_TEST(NormBackward, IsExactForLargeMeansAndOutliers) {
  using T = TypeParam;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const Kind kind : kKinds) {
      Call<T> shifted(kind, 5, 200, 8, 30000);
      shifted.adds = false;
      shifted.run();
      expect_gradients(shifted);
      Call<T> outlier(kind, 5, 200);
      outlier.adds = false;
      for (Index r = 0; r < 5; ++r) outlier.input.set({r, r}, 10000);  // in row 0, the origin of its sums
      outlier.run();
      expect_gradients(outlier);
    }
  });
}

// Σ weight · output, of the forward pass.
double loss(const Call<double>& call) {
  Array<double, 2> output(call.input.shape());
  call.forward(output);
  double sum = 0;
  output.for_each_index([&](const auto& at) { sum += output.get(at) * call.grad_output.get(at); });
  return sum;
}

TEST(NormBackwardInDouble, GradientsMatchCentralDifferences) {
  for (const Kind kind : kKinds) {
    for (const Index E : {2, 5, 33}) {
      Call<double> call(kind, 4, E, static_cast<std::uint64_t>(E));
      call.run();
      const auto expect = [&](auto& of, const auto& gradient, const char* name) {
        double largest = 0;
        for (const double x : gradient.values()) largest = std::max(largest, std::abs(x));
        of.for_each_index([&](const auto& at) {
          constexpr double h = 1e-4;
          const double x = of.get(at);
          const auto loss_at = [&](double moved) {
            of.set(at, moved);
            return loss(call);
          };
          // The error of the difference quotient is h⁴ / 30 of the fifth derivative.
          const double slope =
              (8 * (loss_at(x + h) - loss_at(x - h)) - (loss_at(x + 2 * h) - loss_at(x - 2 * h))) / (12 * h);
          of.set(at, x);
          EXPECT_NEAR(gradient.get(at), slope, 1e-6 * largest) << name << " of width " << E;
        });
      };
      expect(call.input, call.grad_input, "input");
      expect(call.addend, call.grad_input, "addend");
      expect(call.gain, call.grad_gain, "gain");
    }
  }
}

TYPED_TEST(NormBackward, AccumulationAddsToExistingValues) {
  using T = TypeParam;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const Kind kind : kKinds) {
      for (const Index gap : {0, 3}) {
        Layout<2> layout = Layout<2>::dense();
        layout.inner_step = 1 + gap;
        Call<T> fresh(kind, 70, 41);
        fresh.run();
        for (const int flags : {1, 2, 4, 7}) {
          Call<T> call(kind, 70, 41), old(kind, 70, 41, 9);
          call.grad_input = relaid(old.input, layout);
          call.grad_gain = relaid(old.gain, Layout<1>::dense());
          call.grad_bias = relaid(old.gain, Layout<1>::dense());
          LayerNormGradients<T> views = call.views();
          views.accumulate = {(flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0};
          call.run(views, 0, 70);
          const auto expect = [&](const auto& got, const auto& before, const auto& gradient, bool added) {
            got.for_each_index([&](const auto& at) {
              EXPECT_EQ(got.get(at), added ? before.get(at) + gradient.get(at) : gradient.get(at));
            });
          };
          expect(call.grad_input, old.input, fresh.grad_input, views.accumulate.grad_input);
          expect(call.grad_gain, old.gain, fresh.grad_gain, views.accumulate.grad_gain);
          if (kind == Kind::layer_norm) expect(call.grad_bias, old.gain, fresh.grad_bias, views.accumulate.grad_bias);
          EXPECT_TRUE(call.grad_input.surroundings_untouched());
        }
      }
    }
  });
}

TYPED_TEST(NormBackward, OneCallEqualsSeveralThatAccumulateWholeGroups) {
  using T = TypeParam;
  constexpr Index R = 300, E = 21;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const Kind kind : kKinds) {
      for (const Index group : {1, 7, 64, 100, 130, 299, 300, 1000}) {
        for (const bool accumulate : {false, true}) {
          const Call<T> call(kind, R, E);
          Array<T, 1> whole_gain({E}), whole_bias({E}), parts_gain({E}), parts_bias({E}), added_gain({E});
          for (auto* array : {&whole_gain, &whole_bias, &parts_gain, &parts_bias, &added_gain})
            *array = relaid(call.gain, Layout<1>::dense());
          const auto parameters = [&](Array<T, 1>& gain, Array<T, 1>& bias, bool adds, Index first, Index count) {
            call.run({.grad_gain = gain.view(),
                      .grad_bias = bias.view(),
                      .accumulate = {false, adds, adds},
                      .rows_per_group = group},
                     first, count);
          };
          parameters(whole_gain, whole_bias, accumulate, 0, R);
          // Two calls of several groups each, and a sum of the groups here.
          const Index middle = std::min(R, (R / 2 + group - 1) / group * group);
          parameters(parts_gain, parts_bias, accumulate, 0, middle);
          parameters(parts_gain, parts_bias, true, middle, R - middle);
          for (Index first = 0; first < R; first += group) {
            Array<T, 1> gain({E}), bias({E});
            call.run({.grad_gain = gain.view(), .grad_bias = bias.view()}, first, std::min(group, R - first));
            added_gain.for_each_index([&](const auto& at) {
              const bool adds = accumulate || first > 0;
              added_gain.set(at, adds ? added_gain.get(at) + gain.get(at) : gain.get(at));
            });
          }
          EXPECT_TRUE(same_bits(bits_of(parts_gain), bits_of(whole_gain))) << "groups of " << group;
          EXPECT_TRUE(same_bits(bits_of(parts_bias), bits_of(whole_bias))) << "groups of " << group;
          EXPECT_TRUE(same_bits(bits_of(added_gain), bits_of(whole_gain))) << "groups of " << group;
        }
      }
    }
  });
}

TYPED_TEST(NormBackward, LayoutsThreadsAndOtherRowsDoNotChangeBits) {
  using T = TypeParam;
  Random random(20270301);
  for (int n = 0; n < 60; ++n) {
    const Index R = random.integer(1, 90), E = random.integer(1, 70);
    Call<T> dense(n % 2 == 0 ? Kind::layer_norm : Kind::rms_norm, R, E, static_cast<std::uint64_t>(n));
    dense.adds = n % 3 != 0;
    Call<T> strided(dense.kind, R, E, static_cast<std::uint64_t>(n));
    strided.adds = dense.adds;
    for (auto member : {&Call<T>::input, &Call<T>::addend, &Call<T>::grad_output}) {
      strided.*member = relaid(dense.*member, random_layout<2>(random, false));
      dense.*member = relaid(strided.*member, Layout<2>::dense());  // axes of stride 0 repeat elements
    }
    strided.gain = relaid(dense.gain, random_layout<1>(random, false));
    dense.gain = relaid(strided.gain, Layout<1>::dense());
    strided.grad_input = Array<T, 2>({R, E}, random_layout<2>(random, true));
    strided.grad_gain = Array<T, 1>({E}, random_layout<1>(random, true));
    strided.grad_bias = Array<T, 1>({E}, random_layout<1>(random, true));
    dense.run();
    strided.run();
    EXPECT_TRUE(same_bits(bits_of(strided.grad_input), bits_of(dense.grad_input))) << "call " << n;
    EXPECT_TRUE(same_bits(bits_of(strided.grad_gain), bits_of(dense.grad_gain))) << "call " << n;
    EXPECT_TRUE(same_bits(bits_of(strided.grad_bias), bits_of(dense.grad_bias))) << "call " << n;
    EXPECT_TRUE(strided.grad_input.surroundings_untouched() && strided.grad_gain.surroundings_untouched() &&
                strided.grad_bias.surroundings_untouched());
  }
  for (const Kind kind : kKinds) {
    Call<T> one(kind, 700, 90), five(kind, 700, 90), row(kind, 1, 90);
    one.run({.num_threads = 1});
    five.run({.num_threads = 5});
    EXPECT_TRUE(same_bits(bits_of(five.grad_input), bits_of(one.grad_input)));
    EXPECT_TRUE(same_bits(bits_of(five.grad_gain), bits_of(one.grad_gain)));
    EXPECT_TRUE(same_bits(bits_of(five.grad_bias), bits_of(one.grad_bias)));
    // A row by itself, and each gradient by itself.
    one.run({.grad_input = row.grad_input.view()}, 517, 1);
    for (Index e = 0; e < 90; ++e) EXPECT_EQ(row.grad_input.get({0, e}), one.grad_input.get({517, e}));
    Call<T> alone(kind, 700, 90);
    one.run({.grad_gain = alone.grad_gain.view()}, 0, 700);
    EXPECT_TRUE(same_bits(bits_of(alone.grad_gain), bits_of(one.grad_gain)));
    if (kind == Kind::rms_norm) continue;
    one.run({.grad_bias = alone.grad_bias.view()}, 0, 700);
    EXPECT_TRUE(same_bits(bits_of(alone.grad_bias), bits_of(one.grad_bias)));
  }
}

TYPED_TEST(NormBackward, ManyWavesOfBlocksEqualOne) {
  using T = TypeParam;
  // 64 rows of 2 · 1500 sums are a block; few of them fit in a wave.
  Call<T> call(Kind::layer_norm, 1100, 1500);
  Array<T, 1> gain({1500}), bias({1500});
  for (Index first = 0; first < 1100; first += 64) {
    call.run({.grad_gain = gain.view(),
              .grad_bias = bias.view(),
              .accumulate = {false, first > 0, first > 0},
              .rows_per_group = 64},
             first, std::min<Index>(64, 1100 - first));
  }
  for (const int threads : {1, 5}) {
    LayerNormGradients<T> views = call.views();
    views.rows_per_group = 64;
    call.run(views, 0, 1100, {.num_threads = threads});
    EXPECT_TRUE(same_bits(bits_of(call.grad_gain), bits_of(gain)));
    EXPECT_TRUE(same_bits(bits_of(call.grad_bias), bits_of(bias)));
  }
}

TYPED_TEST(NormBackward, NaNStaysInItsRowAndReachesEverySumOverRows) {
  using T = TypeParam;
  for (const Kind kind : kKinds) {
    Call<T> clean(kind, 5, 33), call(kind, 5, 33);
    clean.run();
    call.input.set({2, 4}, std::numeric_limits<T>::quiet_NaN());
    call.run();
    for (Index e = 0; e < 33; ++e) {
      for (Index r = 0; r < 5; ++r) {
        if (r == 2) {
          EXPECT_TRUE(std::isnan(call.grad_input.get({r, e})));
        } else {
          EXPECT_EQ(call.grad_input.get({r, e}), clean.grad_input.get({r, e}));
        }
      }
      EXPECT_TRUE(std::isnan(call.grad_gain.get({e})));
      if (kind == Kind::layer_norm) {
        EXPECT_EQ(call.grad_bias.get({e}), clean.grad_bias.get({e}));
      }
    }
  }
}

TYPED_TEST(NormBackward, ConstantRowsHaveFiniteGradients) {
  using T = TypeParam;
  Call<T> call(Kind::layer_norm, 2, 40);
  call.adds = false;
  call.input.fill([] { return 1000; });
  call.run();
  expect_gradients(call);
  for (const T x : call.grad_gain.values()) EXPECT_EQ(x, 0);
}

TYPED_TEST(NormBackward, NoRowsGiveZerosOrNoChange) {
  using T = TypeParam;
  for (const Kind kind : kKinds) {
    Call<T> call(kind, 0, 5);
    for (auto* gradient : {&call.grad_gain, &call.grad_bias}) gradient->fill([] { return 3; });
    LayerNormGradients<T> views = call.views();
    views.accumulate = {true, true, true};
    call.run(views, 0, 0);
    EXPECT_EQ(call.grad_gain.values(), std::vector<T>(5, 3));
    call.run();
    EXPECT_EQ(bits_of(call.grad_gain), bits_of(std::vector<T>(5, 0)));
    EXPECT_EQ(bits_of(call.grad_bias), bits_of(std::vector<T>(5, static_cast<T>(kind == Kind::layer_norm ? 0 : 3))));
    Call<T> empty(kind, 3, 0);
    empty.run();
  }
}

TEST(NormBackwardTypes, BfloatGradientsAreThoseOfFloatRoundedOnce) {
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const Kind kind : kKinds) {
      Call<bfloat16> narrow(kind, 150, 41);
      Call<float> wide(kind, 150, 41);
      const auto widen = [](const auto& from, auto& to) {
        to.for_each_index([&](const auto& at) { to.set(at, static_cast<float>(from.get(at))); });
      };
      widen(narrow.input, wide.input);
      widen(narrow.addend, wide.addend);
      widen(narrow.grad_output, wide.grad_output);
      widen(narrow.gain, wide.gain);
      const auto expect = [](const auto& got, const auto& exact) {
        got.for_each_index([&](const auto& at) { EXPECT_EQ(got.get(at).bits, bfloat16(exact.get(at)).bits); });
      };
      const auto expect_all = [&] {
        expect(narrow.grad_input, wide.grad_input);
        expect(narrow.grad_gain, wide.grad_gain);
        if (kind == Kind::layer_norm) expect(narrow.grad_bias, wide.grad_bias);
      };
      narrow.run();
      wide.run();
      expect_all();
      // When accumulating, the sum of floats is rounded, after the last group.
      widen(narrow.grad_input, wide.grad_input);
      widen(narrow.grad_gain, wide.grad_gain);
      widen(narrow.grad_bias, wide.grad_bias);
      const auto accumulated = [](auto& call) {
        auto views = call.views();
        views.accumulate = {true, true, true};
        views.rows_per_group = 40;
        call.run(views, 0, 150);
      };
      accumulated(narrow);
      accumulated(wide);
      expect_all();
    }
  });
}

TEST(NormBackwardRejections, NameTheArgument) {
  Call<float> call(Kind::layer_norm, 3, 4);
  const auto input = std::as_const(call.input).view(), grad_output = std::as_const(call.grad_output).view();
  const auto gain = std::as_const(call.gain).view();
  LayerNormGradients<float> views = call.views();
  const auto run = [&](TensorView<const float, 2> addend, TensorView<const float, 1> factor,
                       TensorView<const float, 2> grad, double epsilon = 0) {
    return rejection([&] { layer_norm_backward<float>(input, addend, factor, grad, views, epsilon); });
  };
  EXPECT_EQ(run({}, gain, grad_output), "accepted");
  const std::vector<float> before = call.grad_input.values();
  EXPECT_EQ(run({input.data, {4, 3}}, gain, grad_output),
            "layer_norm_backward: addend has shape (4, 3); expected (3, 4)");
  EXPECT_EQ(run({}, {gain.data, {3}}, grad_output),
            "layer_norm_backward: gain has shape (3); expected (4) for input (3, 4)");
  EXPECT_EQ(run({}, {}, grad_output), "layer_norm_backward: gain has shape (0); expected (4) for input (3, 4)");
  EXPECT_EQ(run({}, gain, {}), "layer_norm_backward: grad_output has shape (0, 0); expected (3, 4)");
  EXPECT_EQ(run({}, gain, grad_output, -1).rfind("layer_norm_backward: epsilon is -1", 0), 0u);
  EXPECT_NE(run({}, gain, grad_output, std::nan("")), "accepted");
  views.rows_per_group = -1;
  EXPECT_EQ(run({}, gain, grad_output), "layer_norm_backward: rows_per_group is -1; expected at least 0");
  views.rows_per_group = 0;
  views.grad_bias.shape[0] = 3;
  EXPECT_EQ(run({}, gain, grad_output), "layer_norm_backward: grad_bias has shape (3); expected (4)");
  views.grad_bias = views.grad_gain;
  EXPECT_EQ(run({}, gain, grad_output), "layer_norm_backward: grad_gain overlaps grad_bias; expected separate memory");
  views.grad_bias = {};
  views.grad_input.data = const_cast<float*>(grad_output.data);
  EXPECT_EQ(run({}, gain, grad_output),
            "layer_norm_backward: grad_input overlaps grad_output; expected separate memory");
  views.grad_input = {views.grad_input.data, {4, 3}};
  EXPECT_EQ(run({}, gain, grad_output), "layer_norm_backward: grad_input has shape (4, 3); expected (3, 4)");
  EXPECT_EQ(call.grad_input.values(), before);
  EXPECT_EQ(rejection([&] {
              rms_norm_backward<float>(input, {}, gain, grad_output, {.grad_gain = {call.grad_gain.view().data, {5}}},
                                       0);
            }),
            "rms_norm_backward: grad_gain has shape (5); expected (4)");
}

}  // namespace
}  // namespace regard::norm_gradients_test
