// SPDX-License-Identifier: Apache-2.0
//
// Records of watched runs: scores of weights, the steps of snapshots, and the moments at which heads formed.
//
//     score of a head at the snapshots     .1 .2 │.6 .7 .8 .9│      above the threshold at two or more snapshots
//     ablation > a tenth of the fall                 ×  ✓           the event is at the first of them
//
// tests/train/events.py finds the same events from the JSON.
// Read next: regard/train/record.h, record_json.cpp.
#include "regard/train/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "regard/error.h"

namespace regard::inline v0 {
namespace {

constexpr double kMinThreshold = 0.5;  // of a score
constexpr double kPreviousBegun = 0.2;
constexpr double kAblationShare = 0.1;        // of the fall of the loss so far
constexpr double kMinFallOfLoss = 0.05;       // fraction by which the first loss must fall before ablation counts
constexpr double kVisibleFallOfLoss = 0.005;  // a smaller one rounds to 0 %

[[noreturn]] void reject_record(const std::string& what) { throw InvalidArgument("training record: " + what); }

void check_size(const std::string& what, std::size_t size, std::size_t expected) {
  if (size != expected) reject_record(fmt::format("{} has {} entries; expected {}", what, size, expected));
}

std::size_t triangle(std::size_t length) { return length * (length + 1) / 2; }

void check_wanted(const std::vector<std::vector<Index>>& wanted) {
  for (std::size_t row = 0; row < wanted.size(); ++row) {
    for (const Index key : wanted[row]) {
      if (key < 0 || key > static_cast<Index>(row))
        reject_record(fmt::format("wanted of row {} has key {}; expected 0 to {}", row, key, row));
    }
  }
}

bool is_previous_token(const TrainingProbe& probe) {
  for (std::size_t row = 0; row < probe.wanted.size(); ++row) {
    const std::vector<Index>& keys = probe.wanted[row];
    if (!keys.empty() && (keys.size() != 1 || keys[0] + 1 != static_cast<Index>(row))) return false;
  }
  return true;
}

double score_of(const HeadScores& scores, HeadEventKind kind) {
  return kind == HeadEventKind::pattern ? scores.pattern : scores.previous;
}

// Whether the loss without a head shows that the head contributes to what has been learned up to this snapshot.
bool ablation_agrees(const TrainingRecord& record, const TrainingSnapshot& snapshot, std::size_t head) {
  const double first = record.snapshots.front().loss;
  const double fall = first - snapshot.loss;
  return fall > kMinFallOfLoss * first && snapshot.heads[head].ablation > kAblationShare * fall;
}

// A head has formed above `formed`; the event is where the score began to exceed `begun`, which is not higher.
struct Thresholds {
  double begun, formed;
};

Thresholds thresholds_of(const TrainingRecord& record, HeadEventKind kind) {
  if (kind == HeadEventKind::previous_token)
    return {std::min(kMinThreshold, std::max(kPreviousBegun, 2 * record.probe.uniform.previous)), kMinThreshold};
  const double formed = std::max(kMinThreshold, record.formed_score);
  return {formed, formed};
}

std::optional<HeadEvent> first_event(const TrainingRecord& record, std::size_t head, HeadEventKind kind) {
  const std::vector<TrainingSnapshot>& snapshots = record.snapshots;
  const Thresholds thresholds = thresholds_of(record, kind);
  const auto score_at = [&](std::size_t s) { return score_of(snapshots[s].heads[head].scores, kind); };
  // The number of consecutive snapshots, up to and including s, that are above each threshold.
  std::size_t above_begun = 0, above_formed = 0, s = 0;
  for (;; ++s) {
    if (s == snapshots.size()) return std::nullopt;
    above_begun = score_at(s) > thresholds.begun ? above_begun + 1 : 0;
    above_formed = score_at(s) > thresholds.formed ? above_formed + 1 : 0;
    if (above_formed >= 2 && ablation_agrees(record, snapshots[s], head)) break;
  }
  const std::size_t begin = s + 1 - above_begun;
  const std::size_t from = begin == 0 ? 0 : begin - 1, to = std::min(begin + 2, snapshots.size() - 1);
  double peak = score_at(begin);
  for (std::size_t later = begin; later < snapshots.size(); ++later) peak = std::max(peak, score_at(later));
  const Index heads = record.settings.model.num_heads;
  return HeadEvent{.kind = kind,
                   .layer = static_cast<Index>(head) / heads,
                   .head = static_cast<Index>(head) % heads,
                   .snapshot = static_cast<Index>(begin),
                   .step = snapshots[begin].step,
                   .score = score_at(begin),
                   .peak = peak,
                   .uniform = score_of(record.probe.uniform, kind),
                   .from_step = snapshots[from].step,
                   .to_step = snapshots[to].step,
                   .loss_fall = 1 - snapshots[to].loss / snapshots[from].loss,
                   .ablation_step = snapshots[s].step,
                   .ablation = snapshots[s].heads[head].ablation};
}

}  // namespace

HeadScores head_scores(std::span<const float> weights, const std::vector<std::vector<Index>>& wanted) {
  check_size("weights", weights.size(), triangle(wanted.size()));
  check_wanted(wanted);
  HeadScores sums;
  std::size_t num_wanted = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto row = weights.subspan(triangle(i), i + 1);
    for (const Index key : wanted[i]) sums.pattern += static_cast<double>(row[static_cast<std::size_t>(key)]);
    num_wanted += wanted[i].empty() ? 0 : 1;
    if (i == 0) continue;
    sums.previous += static_cast<double>(row[i - 1]);
    sums.sink += static_cast<double>(row[0]);
    double entropy = 0;
    for (const float weight : row) {
      if (weight > 0) entropy -= static_cast<double>(weight) * std::log(static_cast<double>(weight));
    }
    sums.entropy += entropy / std::log(static_cast<double>(i + 1));
  }
  const auto rows = static_cast<double>(wanted.size()) - 1;
  const double none = std::numeric_limits<double>::quiet_NaN();
  return {.pattern = num_wanted > 0 ? sums.pattern / static_cast<double>(num_wanted) : none,
          .previous = rows > 0 ? sums.previous / rows : none,
          .sink = rows > 0 ? sums.sink / rows : none,
          .entropy = rows > 0 ? sums.entropy / rows : none};
}

HeadScores uniform_scores(const std::vector<std::vector<Index>>& wanted) {
  std::vector<float> weights;
  for (std::size_t i = 0; i < wanted.size(); ++i) weights.insert(weights.end(), i + 1, 1 / static_cast<float>(i + 1));
  HeadScores scores = head_scores(weights, wanted);
  if (wanted.size() > 1) scores.entropy = 1;
  return scores;
}

bool has_pattern(const TrainingRecord& record) {
  return std::ranges::any_of(record.probe.wanted, [](const std::vector<Index>& keys) { return !keys.empty(); });
}

void check_record(const TrainingRecord& record) {
  const TrainingProbe& probe = record.probe;
  const std::size_t length = probe.tokens.size();
  if (length == 0) reject_record("the probe has no tokens; expected at least 1");
  check_size("targets of the probe", probe.targets.size(), length);
  check_size("wanted of the probe", probe.wanted.size(), length);
  check_wanted(probe.wanted);
  if (probe.query < -1 || probe.query >= static_cast<Index>(length))
    reject_record(fmt::format("query is {}; expected -1 to {}", probe.query, length - 1));
  const DecoderConfig& model = record.settings.model;
  if (model.num_layers < 1 || model.num_heads < 1)
    reject_record(
        fmt::format("the model has {} layers and {} heads; expected at least 1", model.num_layers, model.num_heads));
  if (record.snapshots.empty()) reject_record("there is no snapshot; expected at least 1");
  const auto steps_ascend = [](const auto& points) {
    return std::ranges::adjacent_find(points, [](const auto& a, const auto& b) { return a.step >= b.step; }) ==
           points.end();
  };
  if (!steps_ascend(record.curve)) reject_record("the steps of the curve are not ascending");
  if (!steps_ascend(record.snapshots)) reject_record("the steps of the snapshots are not ascending");
  for (const TrainingSnapshot& snapshot : record.snapshots) {
    const std::string at = fmt::format("the snapshot at step {}", snapshot.step);
    check_size(at, snapshot.heads.size(), static_cast<std::size_t>(model.num_layers * model.num_heads));
    for (const ProbedHead& head : snapshot.heads) {
      check_size("weights of a head of " + at, head.weights.size(), triangle(length));
      check_size("grad_weights of a head of " + at, head.grad_weights.size(),
                 static_cast<std::size_t>(probe.query + 1));
      check_size("grad_scores of a head of " + at, head.grad_scores.size(), static_cast<std::size_t>(probe.query + 1));
    }
  }
}

std::vector<Index> snapshot_steps(Index steps, Index max) {
  if (steps < 0) throw InvalidArgument(fmt::format("snapshot_steps: steps is {}; expected 0 or more", steps));
  if (max < 2) throw InvalidArgument(fmt::format("snapshot_steps: max is {}; expected 2 or more", max));
  // As many multiples of n as there are powers of two below it: n = steps / max is too small, and twice that suffices
  // unless max is below the number of powers.
  std::vector<Index> chosen;
  for (Index n = std::max<Index>(1, steps / max); n <= std::max<Index>(1, steps); ++n) {
    chosen = {0};
    for (Index step = 1; step < std::min(n, steps); step *= 2) chosen.push_back(step);
    for (Index step = n; step < steps; step += n) chosen.push_back(step);
    if (steps > 0) chosen.push_back(steps);
    if (static_cast<Index>(chosen.size()) <= max) return chosen;
  }
  std::vector<Index> fewer;
  for (Index i = 0; i < max; ++i) {
    fewer.push_back(chosen[static_cast<std::size_t>(i * (static_cast<Index>(chosen.size()) - 1) / (max - 1))]);
  }
  return fewer;
}

std::vector<HeadEvent> find_events(const TrainingRecord& record) {
  check_record(record);
  std::vector<HeadEventKind> kinds;
  if (has_pattern(record)) kinds.push_back(HeadEventKind::pattern);
  if (kinds.empty() || !is_previous_token(record.probe)) kinds.push_back(HeadEventKind::previous_token);
  std::vector<HeadEvent> events;
  for (std::size_t head = 0; head < record.snapshots.front().heads.size(); ++head) {
    for (const HeadEventKind kind : kinds) {
      if (const std::optional<HeadEvent> event = first_event(record, head, kind)) events.push_back(*event);
    }
  }
  std::ranges::sort(events, {}, [](const HeadEvent& e) {
    return std::tuple(e.step, e.kind == HeadEventKind::pattern, e.layer, e.head);
  });
  return events;
}

std::string event_text(const TrainingRecord& record, const HeadEvent& event) {
  std::string text = fmt::format("step {}: layer {}, head {} ", event.step, event.layer, event.head);
  if (event.kind == HeadEventKind::previous_token) {
    text += fmt::format("begins to attend to the previous token: score {:.2f} (later {:.2f}), uniform {:.2f}",
                        event.score, event.peak, event.uniform);
  } else {
    text += fmt::format("attends to {}: score {:.2f}, uniform {:.2f}",
                        record.pattern.empty() ? "the expected keys" : record.pattern, event.score, event.uniform);
  }
  if (event.loss_fall >= kVisibleFallOfLoss) {
    text += fmt::format("; the loss fell {:.0f} % between steps {} and {}", 100 * event.loss_fall, event.from_step,
                        event.to_step);
  } else {
    text += fmt::format("; the loss did not fall between steps {} and {}", event.from_step, event.to_step);
  }
  return text;
}

}  // namespace regard::inline v0
