// SPDX-License-Identifier: Apache-2.0
//
// The page of a watched run: its data for web/training.js.
//
//     explanation   the JSON without curve and heads
//     page          the curve in few points; scores, dP and dS as float32; weights as bytes
//
// Snapshots are left out of the weights, not of the scores, until the page is small enough.
// Read next: docs/reference/page.md, web/training.js.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "explain/report/html_page.h"
#include "regard/error.h"
#include "regard/explain/training_report.h"
#include "regard/io/json_writer.h"
#include "training_curve.h"

namespace regard::inline v0 {
namespace {

constexpr Index kMaxCurvePoints = 600;

std::byte byte_of(float weight) {
  return static_cast<std::byte>(std::lround(255 * std::clamp(static_cast<double>(weight), 0.0, 1.0)));
}

std::string base64_of_floats(const std::vector<float>& numbers) { return base64_of(std::as_bytes(std::span(numbers))); }

class TrainingPage {
 public:
  explicit TrainingPage(const TrainingRecord& record) : r_(record), events_(find_events(record)) {}

  std::string render() {
    const std::string explanation = training_record_json(r_, {.curve = false, .heads = false});
    const std::string title = training_findings(r_)[0];
    const auto page = [&](const std::vector<Index>& kept) {
      return page_html(title, {{"explanation", explanation}, {"page", data(kept)}});
    };
    std::string html = page({});
    const std::size_t size_without = html.size();
    if (size_without > kMaxTrainingHtmlBytes)
      throw InvalidArgument(
          fmt::format("training_html: the page would take {:.1f} MB without weights; expected at most "
                      "{:.1f} MB; watch a run with fewer heads or snapshots",
                      static_cast<double>(size_without) / 1e6, static_cast<double>(kMaxTrainingHtmlBytes) / 1e6));
    const auto max_snapshots = static_cast<Index>((kMaxTrainingHtmlBytes - size_without) / bytes_of_a_snapshot());
    if (max_snapshots < 2 && max_snapshots < static_cast<Index>(r_.snapshots.size())) return html;
    return page(spread_snapshots(r_, events_, max_snapshots));
  }

 private:
  // At most this many bytes in base64, with the snapshot's index.
  std::size_t bytes_of_a_snapshot() const {
    std::size_t bytes = 0;
    for (const ProbedHead& head : r_.snapshots[0].heads) bytes += head.weights.size() + 2 * 4 * head.grad_scores.size();
    return bytes * 4 / 3 + 16;
  }

  std::string data(const std::vector<Index>& kept) {
    JsonWriter json({.indent = 1, .float32 = true});
    json.begin_object();
    json.string("schema", "regard/1");
    json.string("subject", "training");
    json.list("findings", training_findings(r_));
    json.whole("last_step", last_step(r_));
    json.whole("max_bytes", kMaxTrainingHtmlBytes);
    write_thinned_curve(json);
    json.string("scores", base64_of_floats(scores()));
    json.indices("kept", kept);
    if (!kept.empty()) {
      std::vector<std::byte> weights;
      std::vector<float> gradients;
      for (const Index s : kept) {
        for (const ProbedHead& head : r_.snapshots[static_cast<std::size_t>(s)].heads) {
          std::ranges::transform(head.weights, std::back_inserter(weights), byte_of);
          gradients.insert(gradients.end(), head.grad_weights.begin(), head.grad_weights.end());
          gradients.insert(gradients.end(), head.grad_scores.begin(), head.grad_scores.end());
        }
      }
      json.string("weights", base64_of(weights));
      json.string("gradients", base64_of_floats(gradients));
    }
    json.end_object();
    return json.take();
  }

  // Snapshot, head, and of each head: pattern, previous, sink, entropy, ablation.
  std::vector<float> scores() const {
    std::vector<float> numbers;
    for (const TrainingSnapshot& snapshot : r_.snapshots) {
      for (const ProbedHead& head : snapshot.heads) {
        for (const double x :
             {head.scores.pattern, head.scores.previous, head.scores.sink, head.scores.entropy, head.ablation})
          numbers.push_back(static_cast<float>(x));
      }
    }
    return numbers;
  }

  void write_thinned_curve(JsonWriter& json) const {
    const std::vector<CurvePoint> curve = thinned_curve(r_.curve, kMaxCurvePoints);
    json.name("curve");
    json.begin_object();
    json.boolean("thinned", curve.size() < r_.curve.size());
    const auto column = [&](std::string_view name, auto value) {
      json.name(name);
      json.begin_array(JsonLayout::compact);
      for (const CurvePoint& point : curve) value(point);
      json.end_array();
    };
    column("step", [&](const CurvePoint& point) { json.whole(point.step); });
    column("loss", [&](const CurvePoint& point) { json.number(point.loss); });
    column("gradient_norm", [&](const CurvePoint& point) { json.number(point.gradient_norm); });
    column("held_out_loss", [&](const CurvePoint& point) {
      if (point.held_out_loss) {
        json.number(*point.held_out_loss);
      } else {
        json.null();
      }
    });
    json.end_object();
  }

  const TrainingRecord& r_;
  std::vector<HeadEvent> events_;
};

}  // namespace

std::string training_html(const TrainingRecord& record) { return TrainingPage(record).render(); }

}  // namespace regard::inline v0
