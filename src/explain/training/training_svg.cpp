// SPDX-License-Identifier: Apache-2.0
//
// Loss and scores of a watched run as SVG: two panels over one logarithmic axis of steps.
//
//     loss   ──╮        ── training batches, ╌╌ held out, at the top
//     score    ╭──      one line per head, those of events in color with their names
//              ┆        an event
//
// Read next: regard/explain/training_report.h, training_curve.h, web/training_curves_figure.js.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "explain/report/html_page.h"
#include "explain/report/terminal.h"
#include "regard/explain/training_report.h"
#include "training_curve.h"

namespace regard::inline v0 {
namespace {

constexpr double kWidth = 760, kHeight = 470, kLeft = 56, kRight = 132, kPanel = 165;
constexpr double kLossTop = 52, kScoreTop = 258;
constexpr Index kMaxPoints = 400;
constexpr double kLabelPitch = 15;
constexpr std::string_view kInk = "#222222", kPale = "#666666", kGrid = "#dddddd", kOrange = "#a8430a",
                           kBlue = "#175a96";

struct PlottedPoint {
  Index step;
  double y;
};

class TrainingPicture {
 public:
  explicit TrainingPicture(const TrainingRecord& record)
      : r_(record), events_(find_events(record)), last_(last_step(record)) {}

  std::string draw() {
    const std::vector<std::string> findings = training_findings(r_);
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:g} {1:g}\" role=\"img\" "
        "font-family=\"DejaVu Serif, Georgia, serif\" font-size=\"12\">\n<title>{2}</title>\n"
        "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"#ffffff\"/>\n",
        kWidth, kHeight, escape_for_markup(findings[0]));
    text(kLeft, 22, kInk, "start", fmt::format("{}: {}", r_.name, settings_summary(r_.settings).front()), 13);
    axis();
    loss_panel();
    score_panel();
    for (const HeadEvent& event : events_) {
      line({{x_of(event.step), kLossTop}, {x_of(event.step), kScoreTop + kPanel}}, kPale, 1, "2 3");
    }
    return out_ + "</svg>\n";
  }

 private:
  using Corner = std::pair<double, double>;
  struct Label {
    double y;
    std::string_view color;
    std::string words;
  };

  double x_of(Index step) const { return kLeft + step_position(step, last_) * (kWidth - kLeft - kRight); }

  void text(double x, double y, std::string_view color, std::string_view anchor, std::string_view words,
            int size = 12) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" fill=\"{}\" text-anchor=\"{}\" font-size=\"{}\">{}</text>\n",
                        x, y, color, anchor, size, escape_for_markup(words));
  }
  void line(const std::vector<Corner>& corners, std::string_view color, double width, std::string_view dashes = "") {
    if (corners.size() < 2) return;
    std::string points;
    for (const auto& [x, y] : corners) points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x, y);
    out_ += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:g}\"{}/>\n", points,
                        color, width, dashes.empty() ? "" : fmt::format(" stroke-dasharray=\"{}\"", dashes));
  }
  // A line that is interrupted where a value is not finite.
  void curve(const std::vector<PlottedPoint>& points, double top, double most, std::string_view color, double width,
             std::string_view dashes = "") {
    std::vector<Corner> corners;
    for (const PlottedPoint& point : points) {
      if (!std::isfinite(point.y)) {
        line(corners, color, width, dashes);
        corners.clear();
        continue;
      }
      corners.emplace_back(x_of(point.step), top + kPanel * (1 - point.y / most));
    }
    line(corners, color, width, dashes);
  }
  // Names at the right end, moved apart where they would overlap.
  void labels(std::vector<Label> all, double top) {
    std::ranges::sort(all, {}, &Label::y);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].y = std::max(all[i].y, i > 0 ? all[i - 1].y + kLabelPitch : top);
    double lowest = top + kPanel;
    for (std::size_t i = all.size(); i-- > 0; lowest -= kLabelPitch) all[i].y = std::min(all[i].y, lowest);
    for (const Label& label : all) text(kWidth - kRight + 8, label.y + 4, label.color, "start", label.words);
  }

  void axis() {
    for (const Index tick : step_ticks(last_, 0.06)) {
      line({{x_of(tick), kLossTop}, {x_of(tick), kLossTop + kPanel}}, kGrid, 1);
      line({{x_of(tick), kScoreTop}, {x_of(tick), kScoreTop + kPanel}}, kGrid, 1);
      text(x_of(tick), kScoreTop + kPanel + 18, kPale, "middle", std::to_string(tick));
    }
    text(kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 10, kPale, "middle", "step (logarithmic)");
  }

  void panel(double top, double most, std::string_view title) {
    for (const double tick : round_ticks(most)) {
      const double y = top + kPanel * (1 - tick / most);
      line({{kLeft, y}, {kWidth - kRight, y}}, tick == 0 ? kPale : kGrid, 1);
      text(kLeft - 6, y + 4, kPale, "end", fmt::format("{:.3g}", tick));
    }
    text(kLeft, top - 8, kInk, "start", title);
  }

  void loss_panel() {
    std::vector<PlottedPoint> train, held_out, probe;
    for (const CurvePoint& point : thinned_curve(r_.curve, kMaxPoints)) {
      train.push_back({point.step, point.loss});
      if (point.held_out_loss) held_out.push_back({point.step, *point.held_out_loss});
    }
    for (const TrainingSnapshot& snapshot : r_.snapshots) probe.push_back({snapshot.step, snapshot.loss});
    double most = 0;
    for (const auto* points : {&train, &held_out, &probe}) {
      for (const PlottedPoint& point : *points) {
        if (std::isfinite(point.y)) most = std::max(most, point.y);
      }
    }
    if (most == 0) most = 1;
    panel(kLossTop, most, "loss (nats per target)");
    std::vector<Label> names;
    const auto add = [&](const std::vector<PlottedPoint>& points, std::string_view color, double width,
                         std::string_view dashes, std::string name) {
      if (points.empty()) return;
      curve(points, kLossTop, most, color, width, dashes);
      const double end = points.back().y;
      names.push_back({kLossTop + kPanel * (1 - (std::isfinite(end) ? end / most : 1)), color, std::move(name)});
    };
    add(train, kInk, 1.2, "", "training");
    add(held_out, kBlue, 1.5, "6 3", "held out");
    add(probe, kPale, 1.5, "2 2", "probe");
    labels(std::move(names), kLossTop);
  }

  void score_panel() {
    panel(kScoreTop, 1,
          has_pattern(r_) ? "score: mean weight on " + pattern() : "score: mean weight on the previous token");
    const Index heads = r_.settings.model.num_heads;
    std::vector<Label> names;
    const auto add = [&](Index head, HeadEventKind kind, std::string_view color, double width, std::string_view dashes,
                         const std::string& name) {
      std::vector<PlottedPoint> points;
      for (const TrainingSnapshot& snapshot : r_.snapshots) {
        const HeadScores& scores = snapshot.heads[static_cast<std::size_t>(head)].scores;
        points.push_back({snapshot.step, kind == HeadEventKind::pattern ? scores.pattern : scores.previous});
      }
      curve(points, kScoreTop, 1, color, width, dashes);
      if (!name.empty()) names.push_back({kScoreTop + kPanel * (1 - points.back().y), color, name});
    };
    const HeadEventKind compared = has_pattern(r_) ? HeadEventKind::pattern : HeadEventKind::previous_token;
    for (Index head = 0; head < r_.settings.model.num_layers * heads; ++head) add(head, compared, kPale, 0.8, "", "");
    for (const HeadEvent& event : events_) {
      const bool is_previous = event.kind == HeadEventKind::previous_token;
      add(event.layer * heads + event.head, event.kind, is_previous ? kBlue : kOrange, 2, is_previous ? "6 3" : "",
          fmt::format("L{}H{}{}", event.layer, event.head, is_previous && has_pattern(r_) ? " previous" : ""));
    }
    const double uniform = compared_score(r_, r_.probe.uniform);
    curve({{0, uniform}, {last_, uniform}}, kScoreTop, 1, kPale, 1, "1 3");
    names.push_back({kScoreTop + kPanel * (1 - uniform), kPale, "uniform"});
    labels(std::move(names), kScoreTop);
  }
  std::string pattern() const { return r_.pattern.empty() ? "the expected keys" : r_.pattern; }

  const TrainingRecord& r_;
  std::vector<HeadEvent> events_;
  Index last_;
  std::string out_;
};

}  // namespace

std::string training_svg(const TrainingRecord& record) { return TrainingPicture(record).draw(); }

}  // namespace regard::inline v0
