// SPDX-License-Identifier: Apache-2.0
//
// Schedules compared with their formulas at every corner; initial values; and optimizer_step compared with the steps
// that it consists of, on any number of threads, without an allocation.
// Read next: optimizer_test.cpp.
#include <numbers>
#include <numeric>

#include "regard/random.h"
#include "regard/train/optimizer.h"
#include "support/arrays.h"
#include "support/counted_news.h"
#include "support/counting_memory.h"
#include "support/rejection.h"
#include "support/same_bits.h"

namespace regard::optimizer_step_test {
namespace {

TrainingSettings settings_of(ScheduleKind schedule) {
  TrainingSettings settings;
  settings.steps = 2000;
  settings.warmup = 100;
  settings.schedule = schedule;
  return settings;
}

// Values of nanoGPT's get_lr with learning_rate 1e-3, min_lr 1e-4, warmup_iters 100 and lr_decay_iters 2000.
TEST(Schedule, CosineEqualsThatOfNanoGpt) {
  const TrainingSettings settings = settings_of(ScheduleKind::cosine);
  const std::array<std::pair<Index, double>, 10> expected{{{0, 9.900990099009901e-06},
                                                           {1, 1.9801980198019803e-05},
                                                           {99, 0.0009900990099009901},
                                                           {100, 0.001},
                                                           {101, 0.0009999993848585915},
                                                           {575, 0.0008681980515339464},
                                                           {1050, 0.00055},
                                                           {1525, 0.00023180194846605365},
                                                           {1999, 0.00010000061514140841},
                                                           {2000, 0.0001}}};
  for (const auto& [step, rate] : expected) EXPECT_NEAR(learning_rate_at(settings, step), rate, 4e-19) << step;
  for (Index step = 100; step < 2000; ++step) {
    const double ratio = static_cast<double>(step - 100) / 1900;
    const double rate = 1e-4 + 0.5 * (1 + std::cos(std::numbers::pi * ratio)) * (1e-3 - 1e-4);
    EXPECT_NEAR(learning_rate_at(settings, step), rate, 4e-19) << step;
  }
}

TEST(Schedule, EveryKindIsExactAtItsCorners) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::warmup_stable_decay}) {
    const TrainingSettings settings = settings_of(kind);
    EXPECT_EQ(learning_rate_at(settings, 0), 1e-3 / 101);
    EXPECT_EQ(learning_rate_at(settings, 99), 1e-3 * 100 / 101);
    EXPECT_EQ(learning_rate_at(settings, 100), 1e-3);
    const double end = kind == ScheduleKind::constant ? 1e-3 : 1e-4;
    for (const Index step : {2000, 2001, 1000000}) EXPECT_EQ(learning_rate_at(settings, step), end);
    for (Index step = 100; step < 2000; ++step)
      EXPECT_LE(learning_rate_at(settings, step + 1), learning_rate_at(settings, step)) << step;
  }
}

TEST(Schedule, LinearAndStableDecayAreStraightLines) {
  const TrainingSettings linear = settings_of(ScheduleKind::linear);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 1050), 0.00055);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 1810), 0.00019);
  const TrainingSettings stable = settings_of(ScheduleKind::warmup_stable_decay);
  EXPECT_EQ(learning_rate_at(stable, 1599), 1e-3);
  EXPECT_EQ(learning_rate_at(stable, 1600), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate_at(stable, 1601), 1e-3 - 9e-4 / 400);
  EXPECT_DOUBLE_EQ(learning_rate_at(stable, 1800), 0.00055);
  EXPECT_DOUBLE_EQ(learning_rate_at(stable, 1999), 1e-4 + 9e-4 / 400);
}

TEST(Schedule, MayHaveNoWarmupOrOnlyWarmup) {
  for (const ScheduleKind kind : {ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::warmup_stable_decay}) {
    TrainingSettings settings = settings_of(kind);
    settings.warmup = 0;
    EXPECT_EQ(learning_rate_at(settings, 0), 1e-3);
    settings.warmup = settings.steps;
    EXPECT_EQ(learning_rate_at(settings, 1999), 1e-3 * 2000 / 2001);
    EXPECT_EQ(learning_rate_at(settings, 2000), 1e-4);
    settings.warmup = 1900;  // later than the last fifth
    EXPECT_EQ(learning_rate_at(settings, 1900), 1e-3);
    settings.steps = 1;
    settings.warmup = 0;
    EXPECT_EQ(learning_rate_at(settings, 0), 1e-3);
    EXPECT_EQ(learning_rate_at(settings, 1), 1e-4);
  }
}

TEST(Schedule, MuonFollowsAdamwInProportion) {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::linear, ScheduleKind::warmup_stable_decay}) {
    const TrainingSettings settings = settings_of(kind);
    for (const Index step : {0, 50, 99, 100, 700, 1650, 1999, 2000, 3000})
      EXPECT_NEAR(muon_learning_rate_at(settings, step), 20 * learning_rate_at(settings, step), 1e-17) << step;
  }
}

TEST(ScheduleRejections, NameTheSetting) {
  const auto with = [](auto change, Index step = 0) {
    TrainingSettings settings;
    change(settings);
    return rejection([&] { muon_learning_rate_at(settings, step); });
  };
  const auto nothing = [](TrainingSettings&) {};
  EXPECT_EQ(with(nothing), "accepted");
  EXPECT_EQ(with(nothing, -1), "learning_rate_at: step is -1; expected 0 or more");
  EXPECT_EQ(with([](auto& s) { s.steps = 0; }), "learning_rate_at: steps is 0; expected 1 or more");
  EXPECT_EQ(with([](auto& s) { s.warmup = -2; }), "learning_rate_at: warmup is -2; expected 0 or more");
  EXPECT_EQ(with([](auto& s) { s.learning_rate = 0; }),
            "learning_rate_at: learning_rate is 0; expected a finite number above 0");
  EXPECT_EQ(with([](auto& s) { s.muon_learning_rate = -1; }),
            "learning_rate_at: muon_learning_rate is -1; expected a finite number above 0");
  EXPECT_EQ(with([](auto& s) { s.min_learning_rate = 0.01; }),
            "learning_rate_at: min_learning_rate is 0.01; expected 0 to learning_rate, which is 0.001");
  EXPECT_EQ(with([](auto& s) {
              s.min_learning_rate = 0.01;
              s.schedule = ScheduleKind::constant;
            }),
            "accepted");
  EXPECT_EQ(with([](auto& s) { s.schedule = static_cast<ScheduleKind>(9); }, 1),
            "learning_rate_at: schedule is 9; expected a ScheduleKind");
}

DecoderConfig small_decoder() {
  return {.vocabulary = 60,
          .num_layers = 3,
          .num_heads = 2,
          .width = 48,
          .max_positions = 40,
          .feed_forward_kind = FeedForwardKind::gelu,
          .tied = false,
          .biases = true};
}

template <class T>
class OptimizerStepOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(OptimizerStepOf, Types);

TYPED_TEST(OptimizerStepOf, InitialValuesAreThoseOfDoubleOnAnyNumberOfThreads) {
  using T = TypeParam;
  const std::vector<DecoderParameter> description = decoder_parameters(small_decoder());
  const auto n = static_cast<std::size_t>(decoder_size(small_decoder()));
  std::vector<double> expected;
  for (std::size_t k = 0; k < description.size(); ++k) {
    const DecoderParameter& parameter = description[k];
    for (Index e = 0; e < parameter.size(); ++e) {
      const double normal = random_normal(11, (std::uint64_t{1} << 32) + k, static_cast<std::uint64_t>(e));
      switch (parameter.kind) {
        case ParameterKind::gain:
          expected.push_back(1);
          break;
        case ParameterKind::bias:
          expected.push_back(0);
          break;
        case ParameterKind::residual:
          expected.push_back(0.02 / std::sqrt(6.0) * normal);
          break;
        default:
          expected.push_back(0.02 * normal);
      }
    }
  }
  const std::vector<T> rounded(expected.begin(), expected.end());
  for (const int threads : {1, 2, 5}) {
    std::vector<T> values(n);
    initialize<T>(description, values, 11, {.num_threads = threads});
    EXPECT_TRUE(same_bits(bits_of(values), bits_of(rounded)));
  }
}

// Mean and deviation of n normal numbers deviate by more than five standard errors with a probability below 1e-6.
TEST(Initialize, EachTensorIsNormalAndDiffersFromTheOthers) {
  const std::vector<DecoderParameter> description = decoder_parameters(small_decoder());
  std::vector<double> values(static_cast<std::size_t>(decoder_size(small_decoder())));
  initialize<double>(description, values, 3);
  std::vector<double> firsts;
  auto at = values.begin();
  for (const DecoderParameter& parameter : description) {
    const auto end = at + parameter.size();
    if (parameter.shape.size() == 2) {
      const double n = static_cast<double>(parameter.size());
      const double deviation = parameter.kind == ParameterKind::residual ? 0.02 / std::sqrt(6.0) : 0.02;
      const double mean = std::accumulate(at, end, 0.0) / n;
      const double variance = std::inner_product(at, end, at, 0.0) / n;
      EXPECT_LT(std::abs(mean), 5 * deviation / std::sqrt(n)) << parameter.name;
      EXPECT_LT(std::abs(std::sqrt(variance) / deviation - 1), 5 / std::sqrt(2 * n)) << parameter.name;
      EXPECT_EQ(std::ranges::find(firsts, *at / deviation), firsts.end());
      firsts.push_back(*at / deviation);
    }
    at = end;
  }
  EXPECT_EQ(firsts.size(), 3 + 3 * 6);
  std::vector<double> other(values.size());
  initialize<double>(description, other, 4);
  EXPECT_NE(values.front(), other.front());
  EXPECT_EQ(
      rejection([&] { initialize<double>(description, std::span(values).first(5), 3); }),
      "initialize: parameters has 5 elements; expected " + std::to_string(values.size()) + ", as in the description");
}

template <class T>
struct StepCase {
  TrainingSettings settings;
  std::vector<DecoderParameter> description;
  std::vector<T> parameters, gradients, first_moment, second_moment, scratch;

  StepCase(OptimizerKind optimizer, std::vector<DecoderParameter> parameters_) : description(std::move(parameters_)) {
    settings.optimizer = optimizer;
    settings.warmup = 4;
    std::size_t n = 0;
    for (const DecoderParameter& parameter : description) n += static_cast<std::size_t>(parameter.size());
    for (auto* array : {&parameters, &gradients, &first_moment, &second_moment}) array->resize(n);
    initialize<T>(description, parameters, 1);
    Random random(2);
    for (T& g : gradients) g = static_cast<T>(0.1 * random.normal());
    scratch.resize(static_cast<std::size_t>(optimizer_scratch_size(settings, description, 3)));
  }
  OptimizerStep step(Index number, const Runtime& runtime = {}) {
    return optimizer_step<T>(settings, description, parameters, gradients, first_moment, second_moment, number, scratch,
                             runtime);
  }
  std::vector<std::uint64_t> bits() const {
    std::vector<std::uint64_t> all;
    for (const auto* array : {&parameters, &first_moment, &second_moment}) {
      const auto more = bits_of(*array);
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
};

// Matrices of both optimizers, on both sides of the size from which Muon uses all threads for one matrix.
std::vector<DecoderParameter> mixed_parameters() {
  std::vector<DecoderParameter> list = decoder_parameters(small_decoder());
  list.push_back({"large", {512, 520}, ParameterKind::projection, 2});
  list.push_back({"last", {7}, ParameterKind::gain, -1});
  return list;
}

TYPED_TEST(OptimizerStepOf, EqualsTheStepsThatItConsistsOf) {
  using T = TypeParam;
  for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::muon}) {
    StepCase<T> run(optimizer, mixed_parameters()), expected(optimizer, mixed_parameters());
    for (const Index number : {0, 5}) {
      const OptimizerStep result = run.step(number);
      const double norm = global_norm<T>(expected.gradients), factor = clip_factor(norm, 1);
      EXPECT_EQ(result.gradient_norm, norm);
      EXPECT_EQ(result.learning_rate, learning_rate_at(run.settings, number));
      EXPECT_LT(factor, 1);
      std::size_t offset = 0;
      for (const DecoderParameter& parameter : expected.description) {
        const auto size = static_cast<std::size_t>(parameter.size());
        const bool matrix = parameter.kind == ParameterKind::projection || parameter.kind == ParameterKind::residual;
        const auto part = [&](std::vector<T>& values) { return std::span(values).subspan(offset, size); };
        if (optimizer == OptimizerKind::muon && matrix) {
          const std::array<Index, 2> shape{parameter.shape[0], parameter.shape[1]};
          std::vector<T> scratch(static_cast<std::size_t>(muon_scratch_size(shape[0], shape[1])));
          muon_step<T>({part(expected.parameters).data(), shape}, {part(expected.gradients).data(), shape},
                       {part(expected.first_moment).data(), shape},
                       {.learning_rate = muon_learning_rate_at(run.settings, number),
                        .weight_decay = 0.1,
                        .gradient_scale = factor},
                       scratch);
        } else {
          adamw_step<T>(part(expected.parameters), part(expected.gradients), part(expected.first_moment),
                        part(expected.second_moment),
                        {.learning_rate = result.learning_rate,
                         .beta2 = 0.99,
                         .weight_decay = parameter.shape.size() == 2 ? 0.1 : 0,
                         .gradient_scale = factor,
                         .step = number + 1});
        }
        offset += size;
      }
      EXPECT_TRUE(same_bits(run.bits(), expected.bits())) << number;
    }
  }
}

TYPED_TEST(OptimizerStepOf, ThreadsAndTheSizeOfScratchDoNotChangeBits) {
  using T = TypeParam;
  std::vector<std::uint64_t> expected;
  for (const int threads : {1, 2, 5}) {
    for (const int scratch_threads : {1, 3, 100}) {
      StepCase<T> run(OptimizerKind::muon, decoder_parameters(small_decoder()));
      run.scratch.resize(
          static_cast<std::size_t>(optimizer_scratch_size(run.settings, run.description, scratch_threads)));
      run.step(0, {.num_threads = threads});
      if (expected.empty()) expected = run.bits();
      EXPECT_TRUE(same_bits(run.bits(), expected)) << threads << " " << scratch_threads;
    }
  }
}

TYPED_TEST(OptimizerStepOf, NonFiniteGradientsChangeNothing) {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    StepCase<TypeParam> run(OptimizerKind::muon, decoder_parameters(small_decoder()));
    run.gradients[5000] = static_cast<TypeParam>(bad);
    const auto before = run.bits();
    EXPECT_FALSE(std::isfinite(run.step(0).gradient_norm));
    EXPECT_TRUE(same_bits(run.bits(), before));
  }
}

TEST(OptimizerStep, TakesNothingFromOperatorNew) {
  CountingMemory memory;
  Runtime runtime;
  runtime.workspace = &memory;
  for (const OptimizerKind optimizer : {OptimizerKind::adamw, OptimizerKind::muon}) {
    StepCase<float> run(optimizer, mixed_parameters());
    run.step(0, runtime);  // starts threads
    const std::size_t before = num_news;
    run.step(1, runtime);
    EXPECT_EQ(num_news, before);
    EXPECT_EQ(memory.in_use, 0U);
  }
}

TEST(OptimizerStep, ScratchIsForTheLargestMatrices) {
  TrainingSettings settings;
  const std::vector<DecoderParameter> description = decoder_parameters(small_decoder());
  EXPECT_EQ(optimizer_scratch_size(settings, description, 4), 0);
  settings.optimizer = OptimizerKind::muon;
  const Index one = muon_scratch_size(4 * 48, 48);
  EXPECT_EQ(optimizer_scratch_size(settings, description, 1), one);
  EXPECT_EQ(optimizer_scratch_size(settings, description, 4), 4 * one);
  EXPECT_EQ(optimizer_scratch_size(settings, description, 1000), 18 * one);
  EXPECT_EQ(optimizer_scratch_size(settings, mixed_parameters(), 4), muon_scratch_size(512, 520));
  EXPECT_EQ(rejection([&] { optimizer_scratch_size(settings, description, -1); }),
            "optimizer_scratch_size: num_threads is -1; expected 0 or more");
}

TEST(OptimizerStepRejections, NameTheArgumentAndChangeNothing) {
  StepCase<float> run(OptimizerKind::muon, decoder_parameters(small_decoder()));
  const auto before = run.bits();
  const std::string n = std::to_string(run.parameters.size());
  const auto with = [&](auto change) {
    StepCase<float> changed = run;
    change(changed);
    return rejection([&] { changed.step(0); });
  };
  for (const auto& [member, name] : {std::pair{&StepCase<float>::parameters, "parameters"},
                                     {&StepCase<float>::gradients, "gradients"},
                                     {&StepCase<float>::first_moment, "first_moment"},
                                     {&StepCase<float>::second_moment, "second_moment"}}) {
    EXPECT_EQ(with([&](auto& r) { (r.*member).resize(3); }),
              "optimizer_step: " + std::string(name) + " has 3 elements; expected " + n + ", as in the description");
  }
  EXPECT_EQ(with([](auto& r) { r.scratch.resize(3); }),
            "optimizer_step: the size of scratch is 3; expected 23040 or more");
  EXPECT_EQ(with([](auto& r) { r.settings.beta1 = 1; }),
            "optimizer_step: beta1 is 1; expected a number of at least 0 and below 1");
  EXPECT_EQ(with([](auto& r) { r.settings.beta2 = -1; }),
            "optimizer_step: beta2 is -1; expected a number of at least 0 and below 1");
  EXPECT_EQ(with([](auto& r) { r.settings.epsilon = 0; }),
            "optimizer_step: epsilon is 0; expected a finite number above 0");
  EXPECT_EQ(with([](auto& r) { r.settings.weight_decay = -1; }),
            "optimizer_step: weight_decay is -1; expected a finite number of at least 0");
  EXPECT_EQ(with([](auto& r) { r.settings.clip = -1; }),
            "optimizer_step: clip is -1; expected a finite number of at least 0");
  EXPECT_EQ(with([](auto& r) { r.settings.steps = 0; }), "learning_rate_at: steps is 0; expected 1 or more");
  EXPECT_EQ(rejection([&] { run.step(-1); }), "learning_rate_at: step is -1; expected 0 or more");
  EXPECT_EQ(rejection([&] {
              optimizer_step<float>(run.settings, run.description, run.parameters, run.parameters, run.first_moment,
                                    run.second_moment, 0, run.scratch);
            }),
            "optimizer_step: gradients overlaps parameters; expected separate memory");
  EXPECT_TRUE(same_bits(run.bits(), before));
}

}  // namespace
}  // namespace regard::optimizer_step_test
