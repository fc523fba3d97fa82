// SPDX-License-Identifier: Apache-2.0
//
// The record of a watched run as JSON, and its settings in words. docs/reference/page.md lists the fields.
// Read next: regard/train/record.h.
#include <fmt/format.h>

#include "regard/io/json_writer.h"
#include "regard/train/record.h"

namespace regard::inline v0 {
namespace {

// Values of the curve that are measured only at some steps are null elsewhere.
template <class Value>
void write_column(JsonWriter& json, std::string_view name, const TrainingRecord& record, Value value) {
  json.name(name);
  json.begin_array(JsonLayout::compact);
  for (const CurvePoint& point : record.curve) {
    const std::optional<double> x = value(point);
    if (x) {
      json.number(*x);
    } else {
      json.null();
    }
  }
  json.end_array();
}

void write_curve(JsonWriter& json, const TrainingRecord& record) {
  json.name("curve");
  json.begin_object();
  json.name("step");
  json.begin_array(JsonLayout::compact);
  for (const CurvePoint& point : record.curve) json.whole(point.step);
  json.end_array();
  write_column(json, "loss", record, [](const CurvePoint& p) { return std::optional(p.loss); });
  write_column(json, "held_out_loss", record, [](const CurvePoint& p) { return p.held_out_loss; });
  write_column(json, "accuracy", record, [](const CurvePoint& p) { return p.accuracy; });
  write_column(json, "held_out_accuracy", record, [](const CurvePoint& p) { return p.held_out_accuracy; });
  write_column(json, "gradient_norm", record, [](const CurvePoint& p) { return std::optional(p.gradient_norm); });
  write_column(json, "learning_rate", record, [](const CurvePoint& p) { return std::optional(p.learning_rate); });
  write_column(json, "tokens_per_second", record, [](const CurvePoint& p) { return p.tokens_per_second; });
  json.end_object();
}

void write_scores(JsonWriter& json, const HeadScores& scores, bool with_pattern) {
  if (with_pattern) json.number("pattern", scores.pattern);
  json.number("previous", scores.previous);
  json.number("sink", scores.sink);
  json.number("entropy", scores.entropy);
}

void write_probe(JsonWriter& json, const TrainingRecord& record) {
  const TrainingProbe& probe = record.probe;
  json.name("probe");
  json.begin_object();
  json.strings("tokens", probe.tokens, JsonLayout::one_line);
  json.name("targets");
  json.begin_array(JsonLayout::one_line);
  for (const std::optional<std::string>& target : probe.targets) {
    if (target) {
      json.string(*target);
    } else {
      json.null();
    }
  }
  json.end_array();
  json.name("wanted");
  json.begin_array(JsonLayout::one_line);
  for (const std::vector<Index>& keys : probe.wanted) {
    json.begin_array(JsonLayout::compact);
    for (const Index key : keys) json.whole(key);
    json.end_array();
  }
  json.end_array();
  json.name("uniform");
  json.begin_object(JsonLayout::one_line);
  write_scores(json, probe.uniform, has_pattern(record));
  json.end_object();
  json.whole("num_sequences", probe.num_sequences);
  json.whole("query", probe.query);
  json.end_object();
}

void write_floats(JsonWriter& json, std::string_view name, const std::vector<float>& numbers) {
  const JsonStyle style = json.style();
  json.set_style({.indent = style.indent, .float32 = true});
  json.list(name, numbers, JsonLayout::compact);
  json.set_style(style);
}

void write_snapshots(JsonWriter& json, const TrainingRecord& record, bool heads) {
  const bool with_pattern = has_pattern(record);
  json.objects("snapshots", record.snapshots, [&](const TrainingSnapshot& snapshot) {
    json.whole("step", snapshot.step);
    json.number("loss", snapshot.loss);
    if (!heads) return;
    Index number = 0;
    json.objects(
        "heads", snapshot.heads,
        [&](const ProbedHead& head) {
          json.whole("layer", number / record.settings.model.num_heads);
          json.whole("head", number++ % record.settings.model.num_heads);
          write_scores(json, head.scores, with_pattern);
          json.number("ablation", head.ablation);
          write_floats(json, "weights", head.weights);
          write_floats(json, "grad_weights", head.grad_weights);
          write_floats(json, "grad_scores", head.grad_scores);
        },
        JsonLayout::lines, JsonLayout::one_line);
  });
}

void write_events(JsonWriter& json, const TrainingRecord& record) {
  json.objects("events", find_events(record), [&](const HeadEvent& event) {
    json.string("text", event_text(record, event));
    json.string("kind", event.kind == HeadEventKind::pattern ? "pattern" : "previous_token");
    json.whole("layer", event.layer);
    json.whole("head", event.head);
    json.whole("snapshot", event.snapshot);
    json.whole("step", event.step);
    json.number("score", event.score);
    json.number("peak", event.peak);
    json.number("uniform", event.uniform);
    json.whole("from_step", event.from_step);
    json.whole("to_step", event.to_step);
    json.number("loss_fall", event.loss_fall);
    json.whole("ablation_step", event.ablation_step);
    json.number("ablation", event.ablation);
  });
}

std::string feed_forward_text(const DecoderConfig& model) {
  const auto with = [&](std::string_view kind) {
    return model.feed_forward > 0 ? fmt::format("{} feed-forward of width {}", kind, model.feed_forward)
                                  : fmt::format("{} feed-forward", kind);
  };
  switch (model.feed_forward_kind) {
    case FeedForwardKind::relu:
      return with("ReLU");
    case FeedForwardKind::gelu:
      return with("GELU");
    case FeedForwardKind::gelu_tanh:
      return with("GELU (tanh)");
    case FeedForwardKind::swiglu:
      return with("SwiGLU");
    case FeedForwardKind::none:
      break;
  }
  return "no feed-forward";
}

std::string positions_text(PositionKind kind) {
  switch (kind) {
    case PositionKind::learned:
      return "learned position embeddings";
    case PositionKind::rotary:
      return "rotary position embeddings";
    case PositionKind::none:
      break;
  }
  return "no position embeddings";
}

std::string schedule_text(const TrainingSettings& settings) {
  const auto to = [&](std::string_view kind) { return fmt::format("{} to {}", kind, settings.min_learning_rate); };
  switch (settings.schedule) {
    case ScheduleKind::cosine:
      return to("cosine");
    case ScheduleKind::linear:
      return to("linear");
    case ScheduleKind::warmup_stable_decay:
      return to("constant, then linear");
    case ScheduleKind::constant:
      break;
  }
  return "constant";
}

std::string precision_text(TrainingPrecision precision) {
  switch (precision) {
    case TrainingPrecision::float64:
      return "float64";
    case TrainingPrecision::bf16_products:
      return "float32 with bfloat16 products";
    case TrainingPrecision::float32:
      break;
  }
  return "float32";
}

}  // namespace

std::string training_record_json(const TrainingRecord& record, const TrainingJsonOptions& options) {
  check_record(record);
  JsonWriter json;
  json.begin_object();
  json.source(record.command);
  json.string(record.is_text ? "text" : "task", record.name);
  json.string("shows", record.shows);
  json.string("pattern", record.pattern);
  json.number("formed_score", record.formed_score);
  json.strings("settings", settings_summary(record.settings));
  json.whole("layers", record.settings.model.num_layers);
  json.whole("heads", record.settings.model.num_heads);
  write_events(json, record);
  write_probe(json, record);
  if (options.curve) write_curve(json, record);
  write_snapshots(json, record, options.heads);
  json.end_object();
  return json.take();
}

std::vector<std::string> settings_summary(const TrainingSettings& settings) {
  const DecoderConfig& model = settings.model;
  const bool one_layer = model.num_layers == 1, one_head = model.num_heads == 1;
  std::string optimizer =
      settings.optimizer == OptimizerKind::muon
          ? fmt::format("Muon, learning rate {}, and AdamW, {}", settings.muon_learning_rate, settings.learning_rate)
          : fmt::format("AdamW, learning rate {}", settings.learning_rate);
  optimizer += ", " + schedule_text(settings);
  if (settings.warmup > 0) optimizer += fmt::format(", {} steps of warm-up", settings.warmup);
  optimizer += fmt::format(", weight decay {}", settings.weight_decay);
  if (settings.clip > 0) optimizer += fmt::format(", gradient norm at most {}", settings.clip);
  if (settings.dropout > 0) optimizer += fmt::format(", dropout {}", settings.dropout);
  return {fmt::format("{} {} × {} {}, width {}, {}, {}, {}", model.num_layers, one_layer ? "layer" : "layers",
                      model.num_heads, one_head ? "head" : "heads", model.width,
                      model.norm == NormKind::rms ? "RMS norm" : "layer norm", positions_text(model.positions),
                      feed_forward_text(model)),
          fmt::format("{} steps of {} sequences × {} tokens", settings.steps, settings.batch,
                      settings.length > 0 ? settings.length : model.max_positions),
          optimizer, fmt::format("seed {}, {}", settings.seed, precision_text(settings.precision))};
}

}  // namespace regard::inline v0
