// SPDX-License-Identifier: Apache-2.0
//
// See train_report.h.
#include "train_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "regard/io/json_writer.h"
#include "regard/io/utf8.h"
#include "regard/runtime.h"
#include "regard/train/checkpoint.h"

namespace regard::program {
namespace {

std::string size_text(const DecoderConfig& model) {
  return fmt::format("{} layer{} × {} head{}, width {}", model.num_layers, model.num_layers == 1 ? "" : "s",
                     model.num_heads, model.num_heads == 1 ? "" : "s", model.width);
}

// "12,345"
std::string grouped(Index number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

struct Work {
  const char* part;
  double operations;  // of a token, forward
};

// Multiplications and additions of the parts of a model, per token; causal attention uses half of the keys.
std::array<Work, 4> work_of(const DecoderConfig& model, Index length) {
  const auto number = [](Index n) { return static_cast<double>(n); };
  const double width = number(model.width), heads = number(model.num_heads * model.head_size);
  const double layers = number(model.num_layers), kv = number(model.num_kv_heads * model.head_size);
  const double matrices = model.feed_forward_kind == FeedForwardKind::swiglu ? 3 : 2;
  return {{{"projections", layers * 2 * width * (2 * heads + 2 * kv)},
           {"attention", layers * 4 * heads * (number(length) + 1) / 2},
           {"feed-forward", model.feed_forward_kind == FeedForwardKind::none
                                ? 0
                                : layers * 2 * matrices * width * number(model.feed_forward)},
           {"output layer", 2 * width * number(model.vocabulary)}}};
}

std::string operations_text(double operations) {
  const std::array<std::pair<double, const char*>, 3> units{{{1e12, "TFLOP"}, {1e9, "GFLOP"}, {1e6, "MFLOP"}}};
  for (const auto& [unit, name] : units) {
    if (operations >= unit) return fmt::format("{:.3g} {}", operations / unit, name);
  }
  return fmt::format("{:.0f} FLOP", operations);
}

std::string indented(std::string_view name, std::string_view text) { return fmt::format("  {:<7} {}\n", name, text); }

}  // namespace

std::string task_list_text() {
  std::string text;
  for (const TrainingTask& task : training_tasks()) {
    const TrainingSettings& recipe = task.recipe;
    text += fmt::format("{}\n", task.name) + indented("shows", task.shows) + indented("pattern", task.pattern) +
            indented("model", fmt::format("{}, {} parameters; {} steps of {} × {} tokens", size_text(recipe.model),
                                          grouped(decoder_size(recipe.model)), grouped(recipe.steps), recipe.batch,
                                          recipe.length)) +
            indented("expect", task.expected);
  }
  return text + "\nregard train --task NAME --watch FILE.html trains on a task; --text FILE on a text.\n";
}

std::string task_list_json() {
  JsonWriter json;
  json.begin_object();
  json.source(command_line());
  json.name("tasks");
  json.begin_array();
  for (const TrainingTask& task : training_tasks()) {
    json.begin_object();
    json.string("name", task.name);
    json.string("shows", task.shows);
    json.string("pattern", task.pattern);
    json.string("expected", task.expected);
    json.whole("parameters", decoder_size(task.recipe.model));
    json.name("settings");
    json.begin_object();
    write_training_settings(json, task.recipe);
    json.end_object();
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.take();
}

std::string plan_text(const TrainingSubject& subject) {
  const TrainingSettings& settings = subject.settings;
  const Index length = subject.source->length();
  std::string text;
  if (subject.task != nullptr) {
    text = fmt::format("{}: {}\n", subject.task->name, subject.task->shows);
  } else {
    text = fmt::format("{}: {} tokens, vocabulary of {}; the last tenth is held out\n",
                       escape_for_terminal(subject.source->data().name),
                       grouped(static_cast<Index>(subject.text->tokens(TaskSplit::train).size() +
                                                  subject.text->tokens(TaskSplit::held_out).size())),
                       grouped(subject.source->vocabulary()));
  }
  const std::vector<std::string> summary = settings_summary(settings);
  for (std::size_t i = 0; i < summary.size(); ++i) text += indented(i == 0 ? "model" : "", summary[i]);
  const auto parts = work_of(settings.model, length);
  double sum = 0, output = parts.back().operations;
  for (const Work& part : parts) sum += part.operations;
  const double tokens = static_cast<double>(settings.steps * settings.batch) * static_cast<double>(length);
  std::string shares;
  for (const Work& part : parts) {
    if (part.operations > 0)
      shares += fmt::format("{}{} {:.0f} %", shares.empty() ? "" : ", ", part.part, 100 * part.operations / sum);
  }
  text += indented("work", fmt::format("{}: {}", operations_text(3 * sum * tokens), shares));
  if (output > sum / 2)
    text += indented("note", "more than half of the work is in the output layer; a smaller vocabulary trains faster");
  return text + "\n";
}

std::string result_text(const Evaluation& held_out, const WatchedRun& run) {
  const double seconds = run.step_seconds(), steps = static_cast<double>(run.record().curve.size());
  std::string text =
      fmt::format("  {:.1f} s for {} steps, {:.1f} ms each, excluding observation\n", seconds,
                  grouped(static_cast<Index>(run.record().curve.size())), steps > 0 ? 1e3 * seconds / steps : 0);
  if (run.subject().task != nullptr) {
    text += fmt::format("  held out: {} of {} sequences correct, {} of {} tokens; loss {:.4f}\n",
                        grouped(held_out.correct_sequences), grouped(held_out.num_sequences),
                        grouped(held_out.correct_targets), grouped(held_out.num_targets), held_out.loss);
  } else {
    text += fmt::format("  held out: loss {:.4f} per token, {:.1f} % of {} tokens correct\n", held_out.loss,
                        100 * static_cast<double>(held_out.correct_targets) /
                            static_cast<double>(std::max<Index>(held_out.num_targets, 1)),
                        grouped(held_out.num_targets));
  }
  return text;
}

std::string profile_text(const Trainer& trainer, double seconds) {
  const TrainingProfile profile =
      const_cast<Trainer&>(trainer).visit_model([](auto& model) { return model.profile(); });
  std::vector<std::pair<const char*, double>> parts{{"linear products", profile.products},
                                                    {"attention", profile.attention},
                                                    {"norms", profile.norms},
                                                    {"activations", profile.activations},
                                                    {"rotation", profile.rotation},
                                                    {"embedding", profile.embedding},
                                                    {"loss", profile.loss},
                                                    {"residual sums", profile.residual}};
  if (profile.messages > 0) parts.push_back({"other ranks", profile.messages});
  double sum = 0;
  for (const auto& [name, part] : parts) sum += part;
  std::string text = "  part              share of forward and backward\n";
  for (const auto& [name, part] : parts)
    text += fmt::format("  {:<16} {:5.1f} %  {:8.3f} s\n", name, 100 * part / sum, part);
  return text +
         fmt::format("  The steps took {:.3f} s, including the optimizer and batches; the parts include observation.\n",
                     seconds);
}

std::string stopped_text(const Trainer& trainer, const std::string& run) {
  const std::size_t steps = trainer.history().size();
  if (run.empty()) return fmt::format("stopped after step {}; add --run FOLDER to be able to continue", steps);
  return fmt::format("stopped after step {}, which is saved; continue with --run {} --resume", steps, run);
}

std::string curve_csv(std::span<const CurvePoint> curve) {
  std::string text =
      "step,loss,held_out_loss,accuracy,held_out_accuracy,gradient_norm,learning_rate,tokens_per_second\n";
  const auto optional = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; };
  for (const CurvePoint& point : curve) {
    text += fmt::format("{},{},{},{},{},{},{},{}\n", point.step, point.loss, optional(point.held_out_loss),
                        optional(point.accuracy), optional(point.held_out_accuracy), point.gradient_norm,
                        point.learning_rate, optional(point.tokens_per_second));
  }
  return text;
}

}  // namespace regard::program
