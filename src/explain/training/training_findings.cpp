// SPDX-License-Identifier: Apache-2.0
//
// What a watched run shows, in sentences.
//
//     a head formed:  "From step 212 on, layer 1, head 0 attends to …", what preceded it, how far the loss fell
//     none did:       the largest score, and that score and ablation did not agree
//
// Read next: regard/train/record.h, find_events().
#include <fmt/format.h>

#include <algorithm>

#include "explain/report/terminal.h"
#include "regard/explain/training_report.h"
#include "training_curve.h"

namespace regard::inline v0 {
namespace {

std::string percent(double share) { return styled_number(100 * share, {.digits = 0}) + " %"; }

std::string head_in_words(Index layer, Index head) { return fmt::format("layer {}, head {}", layer, head); }

std::string what_it_attends_to(const TrainingRecord& record, HeadEventKind kind) {
  if (kind == HeadEventKind::previous_token) return "the previous token";
  return record.pattern.empty() ? "the expected keys" : record.pattern;
}

const HeadScores& scores_at_end(const TrainingRecord& record, const HeadEvent& event) {
  const Index number = event.layer * record.settings.model.num_heads + event.head;
  return record.snapshots.back().heads[static_cast<std::size_t>(number)].scores;
}

double final_score(const TrainingRecord& record, const HeadEvent& event) {
  const HeadScores& scores = scores_at_end(record, event);
  return event.kind == HeadEventKind::pattern ? scores.pattern : scores.previous;
}

// How much of its attention a head gives at the end.
std::string share_at_end(const TrainingRecord& record, const HeadEvent& event) {
  return fmt::format("{} of its attention at the end (uniform: {})", percent(final_score(record, event)),
                     percent(event.uniform));
}

std::string formed(const TrainingRecord& record, const HeadEvent& event) {
  const std::string head = head_in_words(event.layer, event.head), share = share_at_end(record, event);
  if (event.kind == HeadEventKind::previous_token)
    return fmt::format("At step {}, {} began to attend to the previous token: {}", event.step, head, share);
  return fmt::format("From step {} on, {} attends to {}: {}", event.step, head, what_it_attends_to(record, event.kind),
                     share);
}

// The head of an earlier layer that attends most to the previous token, if it began before a head could use it.
const HeadEvent* feeding_head(const TrainingRecord& record, const std::vector<const HeadEvent*>& previous,
                              const HeadEvent& user) {
  const HeadEvent* best = nullptr;
  for (const HeadEvent* event : previous) {
    if (event->layer >= user.layer || event->step > user.step) continue;
    if (best == nullptr || final_score(record, *event) > final_score(record, *best)) best = event;
  }
  return best;
}

std::string none_formed(const TrainingRecord& record) {
  const TrainingSnapshot& last = record.snapshots.back();
  const auto best = static_cast<Index>(best_head(record, last));
  const Index heads = record.settings.model.num_heads;
  const HeadEventKind kind = has_pattern(record) ? HeadEventKind::pattern : HeadEventKind::previous_token;
  return fmt::format(
      "By step {}, no head is known to attend to {}: score and ablation do not agree for any head. The highest score "
      "is {} (uniform: {}), in {}",
      last.step, what_it_attends_to(record, kind),
      styled_number(compared_score(record, last.heads[static_cast<std::size_t>(best)].scores), {.digits = 2}),
      styled_number(compared_score(record, record.probe.uniform), {.digits = 2}),
      head_in_words(best / heads, best % heads));
}

// Examples that training has seen can be right long before others are: they are memorized before the rule is found.
std::optional<std::string> late_generalization(const TrainingRecord& record) {
  constexpr double kRight = 0.99, kWrong = 0.5;
  const auto reaches = [](auto from, auto end, auto member) {
    return std::find_if(from, end, [&](const CurvePoint& point) { return (point.*member).value_or(0) >= kRight; });
  };
  const auto end = record.curve.end();
  const auto seen = reaches(record.curve.begin(), end, &CurvePoint::accuracy);
  if (seen == end || seen->held_out_accuracy.value_or(1) >= kWrong) return std::nullopt;
  const std::string before =
      fmt::format("At step {}, {} of the training examples were correct, and {} of the held-out examples", seen->step,
                  percent(*seen->accuracy), percent(*seen->held_out_accuracy));
  const auto unseen = reaches(seen, end, &CurvePoint::held_out_accuracy);
  if (unseen == end) return before;
  return fmt::format("{}; at step {}, {} of the held-out examples were correct", before, unseen->step,
                     percent(*unseen->held_out_accuracy));
}

}  // namespace

std::vector<std::string> training_findings(const TrainingRecord& record) {
  const std::vector<HeadEvent> events = find_events(record);
  std::vector<const HeadEvent*> patterns, previous;
  for (const HeadEvent& event : events) (event.kind == HeadEventKind::pattern ? patterns : previous).push_back(&event);
  const std::vector<const HeadEvent*>& main = has_pattern(record) ? patterns : previous;
  std::vector<std::string> findings;
  if (main.empty()) {
    findings.push_back(none_formed(record));
  } else {
    // The head that attends most to the pattern at the end, and how many others attend to it.
    const HeadEvent& best =
        **std::ranges::max_element(main, {}, [&](const HeadEvent* event) { return final_score(record, *event); });
    findings.push_back(formed(record, best));
    if (main.size() > 1)
      findings.push_back(fmt::format("{} other {} also formed", main.size() - 1, main.size() == 2 ? "head" : "heads"));
    if (const HeadEvent* earlier = &main == &patterns ? feeding_head(record, previous, best) : nullptr)
      findings.push_back(fmt::format(
          "{}, {} began to attend to the previous token",
          earlier->step < best.step ? fmt::format("Before that, at step {}", earlier->step) : "At the same step",
          head_in_words(earlier->layer, earlier->head)));
  }
  if (const std::optional<std::string> late = late_generalization(record)) findings.push_back(*late);
  const double first = record.snapshots.front().loss, last = record.snapshots.back().loss;
  findings.push_back(fmt::format("The loss of the probe went from {} to {} in {} steps",
                                 styled_number(first, {.digits = 2}), styled_number(last, {.digits = 2}),
                                 record.snapshots.back().step));
  return findings;
}

}  // namespace regard::inline v0
