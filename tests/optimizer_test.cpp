// SPDX-License-Identifier: Apache-2.0
//
// adamw_step, muon_step and global_norm compared with plain loops in a wider type, and adamw_step with
// torch.optim.AdamW; threads do not change bits; mistakes are rejected.
// Read next: optimizer_step_test.cpp.
#include "regard/train/optimizer.h"

#include <fstream>
#include <sstream>

#include "support/arrays.h"
#include "support/data_path.h"
#include "support/instruction_sets.h"
#include "support/rejection.h"
#include "support/same_bits.h"

namespace regard::optimizer_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <class T>
class Optimizer : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Optimizer, Types);

template <class T>
std::vector<T> normal_values(Random& random, Index n, double magnitude = 1) {
  std::vector<T> values(static_cast<std::size_t>(n));
  for (T& x : values) x = static_cast<T>(magnitude * random.normal());
  return values;
}

template <class T>
struct AdamwState {
  std::vector<T> parameters, gradients, first_moment, second_moment;

  explicit AdamwState(Index n, std::uint64_t seed = 5) {
    Random random(seed);
    parameters = normal_values<T>(random, n);
    gradients = normal_values<T>(random, n, 1e-2);
    first_moment = normal_values<T>(random, n, 1e-2);
    second_moment = normal_values<T>(random, n, 1e-4);
    for (T& v : second_moment) v = std::abs(v);
  }
  void step(const AdamwOptions& options, const Runtime& runtime = {}) {
    adamw_step<T>(parameters, gradients, first_moment, second_moment, options, runtime);
  }
  std::vector<std::uint64_t> bits() const {
    std::vector<std::uint64_t> all = bits_of(parameters);
    for (const auto* values : {&first_moment, &second_moment}) {
      const auto more = bits_of(*values);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
};

constexpr AdamwOptions kOptions{.learning_rate = 0.02,
                                .beta1 = 0.85,
                                .beta2 = 0.97,
                                .epsilon = 1e-6,
                                .weight_decay = 0.3,
                                .gradient_scale = 0.7,
                                .step = 3};

// With u the unit roundoff: m and v take at most five roundings of terms whose magnitudes are summed here, and the
// change of the parameter ten more.
TYPED_TEST(Optimizer, AdamwMatchesPlainLoops) {
  using T = TypeParam;
  using W = reference::Wide<T>;
  for (const Index n : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 1000, 16383, 16384, 16385}) {
    const AdamwState<T> before(n);
    AdamwState<T> after = before;
    after.step(kOptions);
    const AdamwOptions& o = kOptions;
    const W u = reference::kUnit<T>, one = 1;
    for (std::size_t i = 0; i < before.parameters.size(); ++i) {
      const W g = W{before.gradients[i]} * static_cast<W>(o.gradient_scale);
      const W old_m = before.first_moment[i], old_v = before.second_moment[i], old_p = before.parameters[i];
      const W m = static_cast<W>(o.beta1) * old_m + (one - static_cast<W>(o.beta1)) * g;
      const W v = static_cast<W>(o.beta2) * old_v + (one - static_cast<W>(o.beta2)) * g * g;
      const W m_error = 5 * u * (std::abs(old_m) + std::abs(g)), v_error = 5 * u * v;
      EXPECT_LE(std::abs(W{after.first_moment[i]} - m), m_error) << i;
      EXPECT_LE(std::abs(W{after.second_moment[i]} - v), v_error) << i;
      const W root = std::sqrt(v / (one - std::pow(static_cast<W>(o.beta2), W{3})));
      const W rate = static_cast<W>(o.learning_rate) / (one - std::pow(static_cast<W>(o.beta1), W{3}));
      const W denominator = root + static_cast<W>(o.epsilon);
      const W kept = (one - static_cast<W>(o.learning_rate) * static_cast<W>(o.weight_decay)) * old_p;
      const W error = 3 * u * std::abs(old_p) + rate * (m_error + 10 * u * std::abs(m)) / denominator;
      EXPECT_LE(std::abs(W{after.parameters[i]} - (kept - rate * m / denominator)), error) << i << " of " << n;
    }
  }
}

double torch_input(int k, Index n) { return static_cast<double>((n * (37 + 2 * k) + 11 * k) % 101) / 50 - 1; }

TEST(AdamwInDouble, MatchesPyTorchOverFiftySteps) {
  std::ifstream file(data_path("train/torch_adamw.txt"));
  std::string line, name;
  AdamwOptions options;
  double max_norm = 0;
  AdamwState<double> state(0);
  int compared = 0;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "case") {
      words >> name >> options.learning_rate >> options.beta1 >> options.beta2 >> options.epsilon >>
          options.weight_decay >> max_norm;
      options.step = 0;
      state = AdamwState<double>(40);
      for (Index n = 0; n < 40; ++n) state.parameters[static_cast<std::size_t>(n)] = torch_input(0, n);
      std::ranges::fill(state.first_moment, 0);
      std::ranges::fill(state.second_moment, 0);
      continue;
    }
    Index last = 0;
    words >> last;
    while (options.step < last) {
      const auto k = static_cast<int>(++options.step);
      for (Index n = 0; n < 40; ++n)
        state.gradients[static_cast<std::size_t>(n)] = torch_input(k, n) / (k % 2 == 1 ? 1000 : 1);
      options.gradient_scale = clip_factor(global_norm<double>(state.gradients), max_norm);
      state.step(options);
    }
    for (const double x : state.parameters) {
      double expected = 0;
      ASSERT_TRUE(words >> expected);
      EXPECT_NEAR(x, expected, 1e-12) << name << " " << last;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 16);
}

TYPED_TEST(Optimizer, AdamwOfAnElementDependsOnItAlone) {
  using T = TypeParam;
  AdamwState<T> whole(40000);
  std::vector<std::uint64_t> expected;
  for (const int threads : {1, 2, 5}) {
    AdamwState<T> state = whole;
    state.step(kOptions, {.num_threads = threads});
    if (expected.empty()) expected = state.bits();
    EXPECT_TRUE(same_bits(state.bits(), expected)) << threads;
  }
  AdamwState<T> parts = whole;
  for (std::size_t first = 0; first < 40000;) {
    const std::size_t count = std::min<std::size_t>(1 + first / 3, 40000 - first);
    adamw_step<T>(std::span(parts.parameters).subspan(first, count), std::span(parts.gradients).subspan(first, count),
                  std::span(parts.first_moment).subspan(first, count),
                  std::span(parts.second_moment).subspan(first, count), kOptions);
    first += count;
  }
  EXPECT_TRUE(same_bits(parts.bits(), expected));
}

TYPED_TEST(Optimizer, AdamwGivesTheSameBitsOnEveryInstructionSet) {
  std::vector<std::uint64_t> expected;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    AdamwState<TypeParam> state(1003);
    state.step(kOptions);
    if (expected.empty()) expected = state.bits();
    EXPECT_TRUE(same_bits(state.bits(), expected));
  });
}

TYPED_TEST(Optimizer, AdamwScalesGradientsBeforeItUsesThem) {
  using T = TypeParam;
  AdamwState<T> scaled(100), multiplied(100);
  for (T& g : multiplied.gradients) g *= static_cast<T>(0.7);
  scaled.step(kOptions);
  AdamwOptions options = kOptions;
  options.gradient_scale = 1;
  multiplied.step(options);
  EXPECT_TRUE(same_bits(scaled.bits(), multiplied.bits()));
}

TYPED_TEST(Optimizer, AdamwStoresSubnormalMomentsAsZero) {
  using T = TypeParam;
  constexpr T kSmallest = std::numeric_limits<T>::min();
  AdamwState<T> state(70);
  std::ranges::fill(state.gradients, T{0});
  std::ranges::fill(state.first_moment, -kSmallest);
  std::ranges::fill(state.second_moment, kSmallest);
  const std::vector<T> before = state.parameters;
  AdamwOptions options = kOptions;
  options.weight_decay = 0;
  state.step(options);
  EXPECT_EQ(state.first_moment, std::vector<T>(70, 0));
  EXPECT_EQ(state.second_moment, std::vector<T>(70, 0));
  EXPECT_EQ(state.parameters, before);
}

TEST(AdamwRejections, NameTheArgument) {
  std::vector<float> four(4), other(4), third(4), fourth(4), three(3);
  const auto sizes = [&](std::span<float> p, std::span<float> g, std::span<float> m, std::span<float> v) {
    return rejection([&] { adamw_step<float>(p, g, m, v, {.step = 1}); });
  };
  EXPECT_EQ(sizes(four, other, third, fourth), "accepted");
  EXPECT_EQ(sizes({}, {}, {}, {}), "accepted");
  EXPECT_EQ(sizes(four, three, third, fourth),
            "adamw_step: gradients has 3 elements; expected 4, the size of parameters");
  EXPECT_EQ(sizes(four, other, three, fourth),
            "adamw_step: first_moment has 3 elements; expected 4, the size of parameters");
  EXPECT_EQ(sizes(four, other, third, three),
            "adamw_step: second_moment has 3 elements; expected 4, the size of parameters");
  EXPECT_EQ(sizes(four, four, third, fourth), "adamw_step: parameters overlaps gradients; expected separate memory");
  EXPECT_EQ(sizes(four, other, third, third),
            "adamw_step: first_moment overlaps second_moment; expected separate memory");
  const auto options = [&](const AdamwOptions& o) {
    return rejection([&] { adamw_step<float>(four, other, third, fourth, o); });
  };
  EXPECT_EQ(options({.learning_rate = -1}), "adamw_step: learning_rate is -1; expected a finite number of at least 0");
  EXPECT_EQ(options({.learning_rate = kInfinity}),
            "adamw_step: learning_rate is inf; expected a finite number of at least 0");
  EXPECT_EQ(options({.beta1 = 1}), "adamw_step: beta1 is 1; expected a number of at least 0 and below 1");
  EXPECT_EQ(options({.beta2 = kNaN}), "adamw_step: beta2 is nan; expected a number of at least 0 and below 1");
  EXPECT_EQ(options({.epsilon = 0}), "adamw_step: epsilon is 0; expected a finite number above 0");
  EXPECT_EQ(options({.weight_decay = -0.5}),
            "adamw_step: weight_decay is -0.5; expected a finite number of at least 0");
  EXPECT_EQ(options({.gradient_scale = kNaN}), "adamw_step: gradient_scale is nan; expected a finite number");
  EXPECT_EQ(options({.step = 0}), "adamw_step: step is 0; expected 1 or more");
  EXPECT_EQ(four, std::vector<float>(4));
}

// All sums are of positive terms, so the relative error is at most the number of roundings of a term: 512 in a lane, 32
// lanes, 256 blocks.
TYPED_TEST(Optimizer, GlobalNormIsTheRootOfTheSumOfSquares) {
  using T = TypeParam;
  Random random(6);
  EXPECT_EQ(global_norm<T>({}), 0);
  for (const Index n : {1, 31, 32, 33, 16384, 16385, 100000}) {
    const std::vector<T> values = normal_values<T>(random, n, 3);
    long double sum = 0;
    for (const T x : values) sum += static_cast<long double>(x) * static_cast<long double>(x);
    const double norm = global_norm<T>(values), expected = static_cast<double>(std::sqrt(sum));
    EXPECT_NEAR(norm, expected, 800 * 0x1p-53 * expected) << n;
    for (const int threads : {1, 2, 5}) EXPECT_EQ(global_norm<T>(values, {.num_threads = threads}), norm) << n;
  }
  std::vector<T> values = normal_values<T>(random, 50000);
  values[40000] = static_cast<T>(kInfinity);
  EXPECT_EQ(global_norm<T>(values), kInfinity);
  values[3] = static_cast<T>(kNaN);
  EXPECT_TRUE(std::isnan(global_norm<T>(values)));
}

TEST(ClipFactor, LimitsTheNormAsPyTorchDoes) {
  EXPECT_EQ(clip_factor(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_factor(0.5, 1), 1);
  EXPECT_EQ(clip_factor(1, 1), 1 / (1 + 1e-6));
  EXPECT_EQ(clip_factor(0, 1), 1);
  EXPECT_EQ(clip_factor(1e9, 0), 1);
  EXPECT_EQ(rejection([] { clip_factor(1, -1); }),
            "clip_factor: max_norm is -1; expected a finite number of at least 0");
}

using Matrix = std::vector<std::vector<double>>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.size(), std::vector<double>(b[0].size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t k = 0; k < b.size(); ++k) {
      for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    }
  }
  return c;
}

Matrix transpose(const Matrix& a) {
  Matrix t(a[0].size(), std::vector<double>(a.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  }
  return t;
}

// The published iteration: a tall matrix is transposed, and the linear term is added at the end.
Matrix newton_schulz(Matrix x, int iterations) {
  const bool tall = x.size() > x[0].size();
  if (tall) x = transpose(x);
  double square = 0;
  for (const auto& row : x) {
    for (const double value : row) square += value * value;
  }
  for (auto& row : x) {
    for (double& value : row) value /= std::sqrt(square) + 1e-7;
  }
  for (int n = 0; n < iterations; ++n) {
    const Matrix a = product(x, transpose(x)), squares = product(a, a);
    Matrix b = a;
    for (std::size_t i = 0; i < a.size(); ++i) {
      for (std::size_t j = 0; j < a.size(); ++j) b[i][j] = -4.7750 * a[i][j] + 2.0315 * squares[i][j];
    }
    const Matrix bx = product(b, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] + bx[i][j];
    }
  }
  return tall ? transpose(x) : x;
}

template <class T>
struct MuonState {
  Index rows, columns;
  std::vector<T> matrix, gradient, momentum, scratch;

  MuonState(Index R, Index C) : rows(R), columns(C) {
    Random random(7);
    matrix = normal_values<T>(random, R * C);
    gradient = normal_values<T>(random, R * C, 1e-2);
    momentum = normal_values<T>(random, R * C, 1e-2);
    scratch.resize(static_cast<std::size_t>(muon_scratch_size(R, C)));
  }
  void step(const MuonOptions& options, const Runtime& runtime = {}) {
    muon_step<T>({matrix.data(), {rows, columns}}, {gradient.data(), {rows, columns}},
                 {momentum.data(), {rows, columns}}, options, scratch, runtime);
  }
  Matrix rows_of(const std::vector<T>& values) const {
    Matrix result(static_cast<std::size_t>(rows));
    for (std::size_t r = 0; r < result.size(); ++r) {
      const auto first = values.begin() + static_cast<Index>(r) * columns;
      result[r].assign(first, first + columns);
    }
    return result;
  }
};

// Rounding errors of an iteration are relative to the largest singular value, and each later iteration multiplies them
// by at most 4, the largest slope of the polynomial on [0, 1.2]: Σ 4ᵏ < 400, with some ten roundings of size u each.
TYPED_TEST(Optimizer, MuonMatchesThePublishedIteration) {
  using T = TypeParam;
  const double error = 4000 * std::numeric_limits<T>::epsilon();
  for (const auto& [R, C] : {std::array<Index, 2>{1, 1}, {1, 40}, {24, 96}, {33, 65}, {96, 24}, {40, 1}, {130, 20}}) {
    for (const bool nesterov : {true, false}) {
      on_every_instruction_set([&](const kernels::KernelTable&) {
        const MuonState<T> before(R, C);
        MuonState<T> after = before;
        const MuonOptions options{
            .learning_rate = 0.5, .momentum = 0.9, .nesterov = nesterov, .weight_decay = 0.2, .gradient_scale = 0.7};
        after.step(options);
        Matrix update = before.rows_of(before.gradient);
        const Matrix old = before.rows_of(before.matrix), momentum = before.rows_of(before.momentum);
        const Matrix got = after.rows_of(after.matrix), got_momentum = after.rows_of(after.momentum);
        for (std::size_t r = 0; r < old.size(); ++r) {
          for (std::size_t c = 0; c < old[0].size(); ++c) {
            const double g = 0.7 * update[r][c], m = 0.9 * momentum[r][c] + 0.1 * g;
            EXPECT_NEAR(got_momentum[r][c], m, 1e-1 * std::numeric_limits<T>::epsilon());
            update[r][c] = nesterov ? 0.1 * g + 0.9 * m : m;
          }
        }
        const Matrix x = newton_schulz(update, 5);
        const double scale = std::sqrt(std::max(1.0, static_cast<double>(R) / static_cast<double>(C)));
        for (std::size_t r = 0; r < old.size(); ++r) {
          for (std::size_t c = 0; c < old[0].size(); ++c)
            EXPECT_NEAR(got[r][c], 0.9 * old[r][c] - 0.5 * scale * x[r][c], error) << R << " " << C;
        }
      });
    }
  }
}

// The eigenvalues of a symmetric matrix, by Jacobi's rotations.
std::vector<double> eigenvalues(Matrix a) {
  for (int sweep = 0; sweep < 12; ++sweep) {
    for (std::size_t p = 0; p < a.size(); ++p) {
      for (std::size_t q = p + 1; q < a.size(); ++q) {
        if (a[p][q] == 0) continue;
        const double angle = 0.5 * std::atan2(2 * a[p][q], a[q][q] - a[p][p]);
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::size_t k = 0; k < a.size(); ++k) {
          const double kp = a[k][p], kq = a[k][q];
          a[k][p] = c * kp - s * kq;
          a[k][q] = s * kp + c * kq;
        }
        for (std::size_t k = 0; k < a.size(); ++k) {
          const double pk = a[p][k], qk = a[q][k];
          a[p][k] = c * pk - s * qk;
          a[q][k] = s * pk + c * qk;
        }
      }
    }
  }
  std::vector<double> values;
  for (std::size_t i = 0; i < a.size(); ++i) values.push_back(a[i][i]);
  return values;
}

TYPED_TEST(Optimizer, MuonUpdatesHaveSingularValuesNearOne) {
  for (const auto& [R, C] : {std::array<Index, 2>{24, 96}, {96, 24}, {32, 64}}) {
    MuonState<TypeParam> state(R, C);
    std::ranges::fill(state.matrix, TypeParam{0});
    state.step({.learning_rate = 1});
    Matrix x = state.rows_of(state.matrix);
    if (R > C) x = transpose(x);
    const double scale = std::max(1.0, static_cast<double>(R) / static_cast<double>(C));
    for (const double square : eigenvalues(product(x, transpose(x)))) {
      EXPECT_GT(std::sqrt(square / scale), 0.68) << R << " " << C;
      EXPECT_LT(std::sqrt(square / scale), 1.13) << R << " " << C;
    }
  }
}

TYPED_TEST(Optimizer, MuonOnAnyNumberOfThreadsGivesTheSameBits) {
  std::vector<std::uint64_t> matrix, momentum;
  for (const int threads : {1, 2, 5}) {
    MuonState<TypeParam> state(140, 300);
    state.step({}, {.num_threads = threads});
    if (matrix.empty()) matrix = bits_of(state.matrix);
    if (momentum.empty()) momentum = bits_of(state.momentum);
    EXPECT_TRUE(same_bits(bits_of(state.matrix), matrix));
    EXPECT_TRUE(same_bits(bits_of(state.momentum), momentum));
  }
}

TYPED_TEST(Optimizer, MuonWithoutAGradientOnlyDecays) {
  using T = TypeParam;
  MuonState<T> state(8, 20);
  std::ranges::fill(state.gradient, T{0});
  std::ranges::fill(state.momentum, T{0});
  const std::vector<T> before = state.matrix;
  state.step({.learning_rate = 0.5, .weight_decay = 0.25});
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(state.matrix[i], before[i] * T{0.875});
  MuonState<T> empty(0, 20);
  empty.step({});
}

TEST(MuonRejections, NameTheArgument) {
  EXPECT_EQ(muon_scratch_size(3, 5), 48);
  EXPECT_EQ(muon_scratch_size(5, 3), 48);
  MuonState<float> state(3, 5);
  const auto options = [&](const MuonOptions& o) { return rejection([&] { state.step(o); }); };
  EXPECT_EQ(options({}), "accepted");
  EXPECT_EQ(options({.learning_rate = kNaN}),
            "muon_step: learning_rate is nan; expected a finite number of at least 0");
  EXPECT_EQ(options({.momentum = 1}), "muon_step: momentum is 1; expected a number of at least 0 and below 1");
  EXPECT_EQ(options({.weight_decay = -1}), "muon_step: weight_decay is -1; expected a finite number of at least 0");
  EXPECT_EQ(options({.gradient_scale = kInfinity}), "muon_step: gradient_scale is inf; expected a finite number");
  EXPECT_EQ(options({.iterations = 0}), "muon_step: iterations is 0; expected 1 to 100");
  const TensorView<float, 2> matrix(state.matrix.data(), {3, 5}), momentum(state.momentum.data(), {3, 5});
  const TensorView<const float, 2> gradient(state.gradient.data(), {3, 5});
  const auto views = [&](TensorView<float, 2> p, TensorView<const float, 2> g, TensorView<float, 2> m,
                         std::span<float> scratch) {
    return rejection([&] { muon_step<float>(p, g, m, {}, scratch); });
  };
  EXPECT_EQ(views(transposed(matrix), gradient, momentum, state.scratch),
            "muon_step: matrix has strides (1, 5); expected (3, 1)");
  EXPECT_EQ(views(matrix, {gradient.data, {5, 3}}, momentum, state.scratch),
            "muon_step: gradient has shape (5, 3); expected (3, 5)");
  EXPECT_EQ(views(matrix, gradient, {}, state.scratch), "muon_step: momentum has shape (0, 0); expected (3, 5)");
  EXPECT_EQ(views(matrix, matrix, momentum, state.scratch),
            "muon_step: gradient overlaps matrix; expected separate memory");
  EXPECT_EQ(views(matrix, gradient, momentum, std::span(state.scratch).first(47)),
            "muon_step: the size of scratch is 47; expected 48 or more");
}

}  // namespace
}  // namespace regard::optimizer_test
