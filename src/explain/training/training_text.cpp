// SPDX-License-Identifier: Apache-2.0
//
// The record of a watched run as text of 30 lines.
//
//     the findings
//     loss    3.4 █▇▇▆▃▁           over the logarithm of the step; ▲ marks events
//     step    loss   head   score  bar, for a few snapshots
//     the events in words
//
// Read next: regard/explain/training_report.h, training_curve.h.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "explain/report/table.h"
#include "explain/report/terminal.h"
#include "regard/explain/training_report.h"
#include "regard/io/utf8.h"
#include "training_curve.h"

namespace regard::inline v0 {
namespace {

constexpr int kCurveRows = 5;
constexpr int kCurveLabel = 8;  // columns to the left of the curve
constexpr int kMaxFindingLines = 6;
constexpr int kMaxEventLines = 6;
constexpr int kMaxSnapshotLines = 8;
constexpr int kOtherLines = 6 + kCurveRows + 3;  // title, blank lines, the curve's caption and axis, the table's head
constexpr int kWidestBar = 40;

class TrainingRenderer {
 public:
  TrainingRenderer(const TrainingRecord& record, const TrainingTextOptions& options)
      : r_(record),
        events_(find_events(record)),
        paint_{options.color, options.unicode},
        width_(std::clamp(options.width, 40, kWidestProse)),
        last_(last_step(record)) {}

  std::string render() {
    const std::vector<std::string> findings = finding_lines(), events = event_lines();
    const auto num_lines = static_cast<int>(findings.size() + events.size());
    title();
    add("");
    for (const std::string& text : findings) add(text);
    add("");
    curve();
    add("");
    table(std::clamp(kMaxTrainingTextLines - kOtherLines - num_lines, 4, kMaxSnapshotLines));
    if (!events.empty()) add("");
    for (const std::string& text : events) add(text);
    return std::move(out_);
  }

 private:
  void add(std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    out_ += line + "\n";
  }
  std::string number(double x, int digits = 2) const {
    return styled_number(x, {.digits = digits, .unicode = paint_.unicode});
  }
  std::string times() const { return paint_.unicode ? "×" : "x"; }

  void title() {
    const DecoderConfig& model = r_.settings.model;
    const std::string about = fmt::format("{}: {} {} {} {} {}, {} steps", r_.name, model.num_layers,
                                          model.num_layers == 1 ? "layer" : "layers", times(), model.num_heads,
                                          model.num_heads == 1 ? "head" : "heads", r_.snapshots.back().step);
    add(paint_.dim(truncate_to_width(paint_.shown(about), width_, paint_.unicode)));
  }

  std::vector<std::string> finding_lines() const {
    const std::vector<std::string> findings = training_findings(r_);
    std::vector<std::string> lines;
    for (std::string& line : wrap_words(paint_.shown(findings[0] + "."), width_, 0)) lines.push_back(paint_.bold(line));
    // As many of the other sentences as fit.
    std::string rest;
    std::vector<std::string> rest_lines;
    for (std::size_t i = 1; i < findings.size(); ++i) {
      rest += (i > 1 ? " " : "") + findings[i] + ".";
      std::vector<std::string> wrapped = wrap_words(paint_.shown(rest), width_, 0);
      if (lines.size() + wrapped.size() > kMaxFindingLines) break;
      rest_lines = std::move(wrapped);
    }
    lines.insert(lines.end(), rest_lines.begin(), rest_lines.end());
    if (lines.size() > kMaxFindingLines) lines.resize(kMaxFindingLines);
    return lines;
  }

  std::vector<std::string> event_lines() const {
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      const std::vector<std::string> wrapped =
          wrap_words(paint_.shown((paint_.unicode ? "▲ " : "^ ") + event_text(r_, events_[i])), width_, 2);
      if (lines.size() + wrapped.size() > kMaxEventLines) {
        lines.resize(std::min<std::size_t>(lines.size(), kMaxEventLines - 1));
        lines.push_back(paint_.dim(fmt::format("  and {} more", events_.size() - i)));
        break;
      }
      lines.insert(lines.end(), wrapped.begin(), wrapped.end());
    }
    return lines;
  }

  // The loss in each column of the curve; without a curve, that of the probe. Columns between two points are
  // interpolated; NaN where the loss is not finite.
  std::vector<double> column_losses(int columns) const {
    std::vector<CurvePoint> points = thinned_curve(r_.curve, columns);
    if (points.empty()) {
      for (const TrainingSnapshot& snapshot : r_.snapshots) points.push_back({snapshot.step, snapshot.loss, 0, 0});
    }
    std::vector<double> losses;
    std::size_t next = 0;
    for (int column = 0; column < columns; ++column) {
      const double at = (column + 0.5) / columns;
      while (next < points.size() && step_position(points[next].step, last_) < at) ++next;
      if (next == 0 || next == points.size()) {
        losses.push_back(points[next == 0 ? 0 : next - 1].loss);
        continue;
      }
      const CurvePoint &before = points[next - 1], &after = points[next];
      const double from = step_position(before.step, last_), to = step_position(after.step, last_);
      losses.push_back(before.loss + (after.loss - before.loss) * (at - from) / (to - from));
    }
    return losses;
  }

  void curve() {
    static constexpr std::array<std::string_view, 9> kEighths = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    const int columns = width_ - kCurveLabel;
    const std::vector<double> losses = column_losses(columns);
    double most = 0;
    for (const double loss : losses) {
      if (std::isfinite(loss)) most = std::max(most, loss);
    }
    add(paint_.dim(r_.curve.empty() ? "loss of the probe" : "loss"));
    for (int row = kCurveRows - 1; row >= 0; --row) {
      std::string line = row == kCurveRows - 1 ? number(most) : row == 0 ? "0" : "";
      line = pad_left(line, kCurveLabel - 1) + " ";
      for (const double loss : losses) {
        const double filled = std::isfinite(loss) && most > 0 ? loss / most * kCurveRows - row : 0;
        const auto eighths = static_cast<std::size_t>(std::clamp(std::ceil(filled * 8), 0.0, 8.0));
        line += paint_.unicode ? kEighths[eighths] : eighths >= 4 ? "#" : " ";
      }
      add(line);
    }
    const auto column_of = [&](Index step) {
      const int column = static_cast<int>(step_position(step, last_) * columns);
      return static_cast<std::size_t>(std::clamp(column, 0, columns - 1));
    };
    std::vector<std::string> axis(static_cast<std::size_t>(columns), paint_.unicode ? "─" : "-");
    for (const HeadEvent& event : events_) axis[column_of(event.step)] = paint_.unicode ? "▲" : "^";
    std::string line(kCurveLabel, ' ');
    for (const std::string& mark : axis) line += mark;
    add(line);
    std::string labels = pad_left("step ", kCurveLabel) + std::string(static_cast<std::size_t>(columns), ' ');
    for (const Index tick : step_ticks(last_, 8.0 / columns)) {
      const std::string text = std::to_string(tick);
      const std::size_t at = kCurveLabel + column_of(tick);
      labels.replace(std::min(at, labels.size() - text.size()), text.size(), text);
    }
    add(paint_.dim(labels));
  }

  void table(int rows) {
    const double uniform = compared_score(r_, r_.probe.uniform);
    const Index heads = r_.settings.model.num_heads;
    const int bar_width = std::min(width_ - 38, kWidestBar);
    std::string best = has_pattern(r_) ? "best head" : "most on previous token";
    add(paint_.dim(truncate_to_width(fmt::format("    step     loss  {}, score (uniform {})", best, number(uniform)),
                                     width_, paint_.unicode)));
    for (const Index s : spread_snapshots(r_, events_, rows)) {
      const TrainingSnapshot& snapshot = r_.snapshots[static_cast<std::size_t>(s)];
      const std::size_t head = best_head(r_, snapshot);
      const double score = compared_score(r_, snapshot.heads[head].scores);
      const auto number_of_head = static_cast<Index>(head);
      const std::string name = fmt::format("L{}H{}", number_of_head / heads, number_of_head % heads);
      std::string line =
          fmt::format("{}  {}  {}  {}", pad_left(std::to_string(snapshot.step), 8), pad_left(number(snapshot.loss), 7),
                      pad_right(name, 7), pad_left(number(score), 5));
      if (bar_width >= 8) line += "  " + bar_text(std::clamp(score, 0.0, 1.0), bar_width, paint_.unicode);
      add(line);
    }
  }

  const TrainingRecord& r_;
  std::vector<HeadEvent> events_;
  Paint paint_;
  int width_;
  Index last_;
  std::string out_;
};

}  // namespace

std::string training_text(const TrainingRecord& record, const TrainingTextOptions& options) {
  return TrainingRenderer(record, options).render();
}

}  // namespace regard::inline v0
