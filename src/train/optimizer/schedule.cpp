// SPDX-License-Identifier: Apache-2.0
//
// The learning rate as a function of the step.
//
//     warm-up ╱‾‾ constant    ╱‾╲_ cosine    ╱╲_ linear    ╱‾‾╲ warmup_stable_decay
//
// Read next: regard/train/optimizer.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optimizer_arguments.h"
#include "regard/error.h"
#include "regard/train/optimizer.h"

namespace regard::inline v0 {
namespace {

// sin²(π/2 · x) for x in [0, ½], by the series of the sine, which reaches double precision in ten terms.
double squared_sine(double x) {
  const double angle = std::numbers::pi / 2 * x, square = angle * angle;
  double series = 1;
  for (int n = 20; n >= 2; n -= 2) series = 1 - series * square / (n * (n + 1));
  return (angle * series) * (angle * series);
}

// ½ · (1 + cos(π · x)) for x in [0, 1].
double half_cosine(double x) { return x <= 0.5 ? 1 - squared_sine(x) : squared_sine(1 - x); }

// The fraction of the way from min to max, after the warm-up and before the end.
double height(const TrainingSettings& settings, Index step) {
  const auto part = [&](Index begin) {  // from 0 at begin to 1 at the end
    return static_cast<double>(step - begin) / static_cast<double>(settings.steps - begin);
  };
  switch (settings.schedule) {
    case ScheduleKind::constant:
      return 1;
    case ScheduleKind::cosine:
      return half_cosine(part(settings.warmup));
    case ScheduleKind::linear:
      return 1 - part(settings.warmup);
    case ScheduleKind::warmup_stable_decay: {
      const Index begin = std::max(settings.warmup, settings.steps - settings.steps / 5);
      return step <= begin ? 1 : 1 - part(begin);
    }
  }
  throw InvalidArgument(
      fmt::format("learning_rate_at: schedule is {}; expected a ScheduleKind", static_cast<int>(settings.schedule)));
}

double rate_at(const TrainingSettings& settings, Index step, double max, double min) {
  if (step < settings.warmup) return max * static_cast<double>(step + 1) / static_cast<double>(settings.warmup + 1);
  if (settings.schedule == ScheduleKind::constant) return max;
  if (step >= settings.steps) return min;
  return min + height(settings, step) * (max - min);
}

void check_schedule(const TrainingSettings& settings, Index step) {
  using namespace internal;
  constexpr const char* kFunction = "learning_rate_at";
  expect_at_least(kFunction, "step", step, 0);
  expect_at_least(kFunction, "steps", settings.steps, 1);
  expect_at_least(kFunction, "warmup", settings.warmup, 0);
  expect_positive(kFunction, "learning_rate", settings.learning_rate);
  const double min = settings.min_learning_rate;
  if (settings.schedule != ScheduleKind::constant && !(min >= 0 && min <= settings.learning_rate)) {
    throw InvalidArgument(fmt::format("{}: min_learning_rate is {}; expected 0 to learning_rate, which is {}",
                                      kFunction, min, settings.learning_rate));
  }
}

}  // namespace

double learning_rate_at(const TrainingSettings& settings, Index step) {
  check_schedule(settings, step);
  return rate_at(settings, step, settings.learning_rate, settings.min_learning_rate);
}

double muon_learning_rate_at(const TrainingSettings& settings, Index step) {
  check_schedule(settings, step);
  internal::expect_positive("learning_rate_at", "muon_learning_rate", settings.muon_learning_rate);
  const double min = settings.muon_learning_rate * (settings.min_learning_rate / settings.learning_rate);
  return rate_at(settings, step, settings.muon_learning_rate, min);
}

}  // namespace regard::inline v0
