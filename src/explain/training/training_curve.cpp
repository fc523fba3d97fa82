// SPDX-License-Identifier: Apache-2.0
//
// The time axis of a run, its curve in few points, and which heads are worth naming; see training_curve.h.
//
//     many steps ──▶ parts of equal width on the logarithmic axis ──▶ one mean for each part that has a step
//
// Read next: training_findings.cpp.
#include "training_curve.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>

namespace regard::inline v0 {
namespace {

// The mean of those that were measured.
class OptionalMean {
 public:
  void add(const std::optional<double>& x) {
    if (!x) return;
    sum_ += *x;
    ++count_;
  }
  std::optional<double> mean() const {
    return count_ == 0 ? std::nullopt : std::optional(sum_ / static_cast<double>(count_));
  }

 private:
  double sum_ = 0;
  Index count_ = 0;
};

CurvePoint mean_point(const std::vector<CurvePoint>& curve, std::size_t begin, std::size_t end) {
  OptionalMean loss, norm, rate, held_out, accuracy, held_out_accuracy, speed;
  for (std::size_t i = begin; i < end; ++i) {
    loss.add(curve[i].loss);
    norm.add(curve[i].gradient_norm);
    rate.add(curve[i].learning_rate);
    held_out.add(curve[i].held_out_loss);
    accuracy.add(curve[i].accuracy);
    held_out_accuracy.add(curve[i].held_out_accuracy);
    speed.add(curve[i].tokens_per_second);
  }
  return {.step = (curve[begin].step + curve[end - 1].step) / 2,
          .loss = *loss.mean(),
          .gradient_norm = *norm.mean(),
          .learning_rate = *rate.mean(),
          .held_out_loss = held_out.mean(),
          .accuracy = accuracy.mean(),
          .held_out_accuracy = held_out_accuracy.mean(),
          .tokens_per_second = speed.mean()};
}

}  // namespace

Index last_step(const TrainingRecord& record) {
  const Index of_curve = record.curve.empty() ? 0 : record.curve.back().step;
  return std::max<Index>({1, of_curve, record.snapshots.back().step});
}

double step_position(Index step, Index last) {
  const double unit = std::max(1.0, static_cast<double>(last) / 60);
  return std::log1p(static_cast<double>(step) / unit) / std::log1p(static_cast<double>(last) / unit);
}

std::vector<Index> step_ticks(Index last, double gap) {
  std::vector<Index> ticks = {0};
  const auto fits = [&](Index step) {
    return step_position(step, last) - step_position(ticks.back(), last) >= gap && step_position(step, last) <= 1 - gap;
  };
  for (Index decade = 1; decade <= last; decade *= 10) {
    for (const Index step : {decade, 2 * decade, 5 * decade}) {
      if (fits(step)) ticks.push_back(step);
    }
    if (decade > last / 10) break;
  }
  ticks.push_back(last);
  return ticks;
}

std::vector<double> round_ticks(double most) {
  const double decade = std::pow(10.0, std::floor(std::log10(most)) - 1);
  double step = decade;
  for (const double factor : {2.0, 5.0, 10.0, 20.0, 50.0}) {
    if (most / step >= 6) step = factor * decade;
  }
  std::vector<double> ticks;
  for (int i = 0; i * step <= most; ++i) ticks.push_back(i * step);
  return ticks;
}

std::vector<CurvePoint> thinned_curve(const std::vector<CurvePoint>& curve, Index max) {
  if (static_cast<Index>(curve.size()) <= max) return curve;
  const Index last = std::max<Index>(1, curve.back().step);
  const auto part_of = [&](const CurvePoint& point) {
    return std::min(max - 1, static_cast<Index>(step_position(point.step, last) * static_cast<double>(max)));
  };
  std::vector<CurvePoint> points;
  for (std::size_t begin = 0; begin < curve.size();) {
    std::size_t end = begin + 1;
    while (end < curve.size() && part_of(curve[end]) == part_of(curve[begin])) ++end;
    points.push_back(mean_point(curve, begin, end));
    begin = end;
  }
  return points;
}

std::vector<Index> spread_snapshots(const TrainingRecord& record, const std::vector<HeadEvent>& events, Index max) {
  const auto count = static_cast<Index>(record.snapshots.size());
  std::set<Index> chosen = {0, count - 1};
  for (const HeadEvent& event : events) {
    if (static_cast<Index>(chosen.size()) < max) chosen.insert(event.snapshot);
  }
  while (static_cast<Index>(chosen.size()) < std::min(max, count)) {
    Index middle = 0, widest = 0;
    for (auto next = std::next(chosen.begin()); next != chosen.end(); ++next) {
      const Index before = *std::prev(next), gap = *next - before;
      if (gap > widest) {
        widest = gap;
        middle = before + gap / 2;
      }
    }
    chosen.insert(middle);
  }
  return {chosen.begin(), chosen.end()};
}

double compared_score(const TrainingRecord& record, const HeadScores& scores) {
  return has_pattern(record) ? scores.pattern : scores.previous;
}

std::size_t best_head(const TrainingRecord& record, const TrainingSnapshot& snapshot) {
  const auto best = std::ranges::max_element(
      snapshot.heads, {}, [&](const ProbedHead& head) { return compared_score(record, head.scores); });
  return static_cast<std::size_t>(best - snapshot.heads.begin());
}

}  // namespace regard::inline v0
