// SPDX-License-Identifier: Apache-2.0
//
// See train_options.h.
#include "train_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "regard/runtime.h"

namespace regard::program {
namespace {

// ---- The settings as a table: option, type of the value, help, and how it is stored.

using Store = void (*)(TrainingSettings&, std::string_view option, std::string_view text);

template <auto Member>
void whole(TrainingSettings& settings, std::string_view option, std::string_view text) {
  settings.*Member = parse_integer(option, text);
}
template <auto Member>
void extent(TrainingSettings& settings, std::string_view option, std::string_view text) {
  settings.model.*Member = parse_integer(option, text);
}
template <auto Member>
void number(TrainingSettings& settings, std::string_view option, std::string_view text) {
  settings.*Member = parse_number(option, text);
}

// The value whose name is `text`; names are in the order of the enumeration.
template <class Enum, std::size_t N>
Enum chosen(std::string_view option, std::string_view text, const std::array<std::string_view, N>& names) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found != names.end()) return static_cast<Enum>(found - names.begin());
  reject_value(option, text, fmt::format("{}", fmt::join(names, ", ")));
}

constexpr std::array<std::string_view, 2> kNorms{"layer", "rms"};
constexpr std::array<std::string_view, 3> kPositions{"learned", "rotary", "none"};
constexpr std::array<std::string_view, 5> kFeedForwards{"none", "relu", "gelu", "gelu_tanh", "swiglu"};

struct Setting {
  const char* option;
  const char* type;
  const char* help;
  Store store;
};

const std::array kSettings = std::to_array<Setting>({
    {"--steps", "N", "number of optimizer steps", whole<&TrainingSettings::steps>},
    {"--batch", "N", "number of sequences per step (batch size)", whole<&TrainingSettings::batch>},
    {"--micro-batch", "N", "number of sequences computed at a time; results are\nbit-identical for any N",
     whole<&TrainingSettings::micro_batch>},
    {"--length", "N", "number of tokens per sequence, when training on a\ntext", whole<&TrainingSettings::length>},
    {"--seed", "N", "seed of parameters, batches and dropout",
     [](TrainingSettings& settings, std::string_view option, std::string_view text) {
       const Index seed = parse_integer(option, text);
       if (seed < 0) throw UsageError(fmt::format("{} is {}; expected at least 0", option, seed));
       settings.seed = static_cast<std::uint64_t>(seed);
     }},
    {"--layers", "N", "number of layers", extent<&DecoderConfig::num_layers>},
    {"--heads", "N", "number of query heads", extent<&DecoderConfig::num_heads>},
    {"--kv-heads", "N", "number of key/value heads", extent<&DecoderConfig::num_kv_heads>},
    {"--width", "N", "width of the residual stream", extent<&DecoderConfig::width>},
    {"--head-size", "N", "size of each head", extent<&DecoderConfig::head_size>},
    {"--feed-forward-width", "N", "width of the feed-forward layers", extent<&DecoderConfig::feed_forward>},
    {"--feed-forward", "none|relu|gelu|gelu_tanh|swiglu", "type of feed-forward layer",
     [](TrainingSettings& settings, std::string_view option, std::string_view text) {
       settings.model.feed_forward_kind = chosen<FeedForwardKind>(option, text, kFeedForwards);
     }},
    {"--norm", "layer|rms", "type of normalization",
     [](TrainingSettings& settings, std::string_view option, std::string_view text) {
       settings.model.norm = chosen<NormKind>(option, text, kNorms);
     }},
    {"--positions", "learned|rotary|none", "type of position encoding",
     [](TrainingSettings& settings, std::string_view option, std::string_view text) {
       settings.model.positions = chosen<PositionKind>(option, text, kPositions);
     }},
    {"--optimizer", "adamw|muon", "optimizer",
     [](TrainingSettings& settings, std::string_view option, std::string_view text) {
       settings.optimizer = chosen<OptimizerKind>(option, text, kOptimizerNames);
     }},
    {"--learning-rate", "X", "peak learning rate of AdamW", number<&TrainingSettings::learning_rate>},
    {"--muon-learning-rate", "X", "peak learning rate of Muon", number<&TrainingSettings::muon_learning_rate>},
    {"--min-learning-rate", "X", "final learning rate of AdamW (that of Muon is\nproportional)",
     number<&TrainingSettings::min_learning_rate>},
    {"--warmup", "N", "number of warm-up steps", whole<&TrainingSettings::warmup>},
    {"--schedule", "constant|cosine|linear|warmup_stable_decay", "learning-rate schedule after the warm-up",
     [](TrainingSettings& settings, std::string_view option, std::string_view text) {
       settings.schedule = chosen<ScheduleKind>(option, text, kScheduleNames);
     }},
    {"--weight-decay", "X", "decoupled weight decay for matrices and embedding\ntables",
     number<&TrainingSettings::weight_decay>},
    {"--beta1", "X", "decay rate of the first moment", number<&TrainingSettings::beta1>},
    {"--beta2", "X", "decay rate of the second moment", number<&TrainingSettings::beta2>},
    {"--clip", "X", "clip the gradient to this global L2 norm; 0 means no\nclipping", number<&TrainingSettings::clip>},
    {"--dropout", "X", "dropout probability", number<&TrainingSettings::dropout>},
    {"--precision", "float32|float64|bf16_products", "arithmetic precision",
     [](TrainingSettings& settings, std::string_view option, std::string_view text) {
       settings.precision = chosen<TrainingPrecision>(option, text, kPrecisionNames);
     }},
});

// ---- Texts

constexpr std::uint64_t kMaxTextBytes = std::uint64_t{1} << 30;

Vocabulary vocabulary_of(const TrainArguments& arguments, std::string_view text, const std::string& source) {
  const std::string_view training = TextData::training_part(text);
  if (arguments.vocabulary.empty() || arguments.vocabulary == "characters")
    return Vocabulary::characters_of(text, source);
  const Index size = parse_integer("--vocabulary", arguments.vocabulary);
  return usage("--vocabulary", [&] { return Vocabulary::learn_byte_pairs(training, size, source); });
}

// The vocabulary that a run keeps, which may hold characters that the current text lacks.
std::optional<Vocabulary> stored_vocabulary(const TrainingState* stored) {
  if (stored == nullptr) return std::nullopt;
  for (const CheckpointFile& file : stored->files) {
    if (file.name == "vocabulary.json") return Vocabulary::read(file.text, file.name);
  }
  return std::nullopt;
}

void replace_settings(TrainingSettings& settings, const TrainArguments& arguments) {
  for (std::size_t i = 0; i < kSettings.size(); ++i) {
    if (!arguments.settings[i].empty()) kSettings[i].store(settings, kSettings[i].option, arguments.settings[i]);
  }
  if (arguments.untied) settings.model.tied = false;
  if (arguments.biases) settings.model.biases = true;
  if (arguments.recompute) settings.recompute = true;
}

std::string_view value_of(const TrainArguments& arguments, std::string_view option) {
  for (std::size_t i = 0; i < kSettings.size(); ++i) {
    if (kSettings[i].option == option) return arguments.settings[i];
  }
  return {};
}

}  // namespace

void add_train_settings(CLI::App& command, TrainArguments& arguments) {
  arguments.settings.resize(kSettings.size());
  const char* group = "SETTINGS (defaults: the recipe of the task or the text)";
  for (std::size_t i = 0; i < kSettings.size(); ++i) {
    const Setting& setting = kSettings[i];
    command.add_option(setting.option, arguments.settings[i], setting.help)->type_name(setting.type)->group(group);
  }
  const auto flag = [&](const char* name, bool& value, const char* help) {
    command.add_flag(name, value, help)->group(group);
  };
  flag("--untied", arguments.untied, "use a separate output matrix (untied embeddings)");
  flag("--biases", arguments.biases, "use biases in linear layers and layer norms");
  flag("--recompute", arguments.recompute,
       "recompute activations in the backward pass to save\nmemory; results are bit-identical");
}

TrainingSubject subject_of(const TrainArguments& arguments, const TrainingState* stored) {
  const bool resumes_task = stored != nullptr && arguments.text.empty();
  std::string name = arguments.task;
  if (name.empty() && resumes_task) name = stored->data.name;
  if (name.empty() == arguments.text.empty())
    throw UsageError("expected either --task NAME or --text FILE; regard train --list shows the tasks");

  if (!name.empty()) {
    if (!arguments.vocabulary.empty()) throw UsageError("--vocabulary needs --text");
    if (!value_of(arguments, "--length").empty())
      throw UsageError("--length needs --text; the length of a task is fixed");
    const TrainingTask& task = *usage("--task", [&] { return &find_task(name); });
    TrainingSettings settings = stored != nullptr ? stored->settings : task.recipe;
    replace_settings(settings, arguments);
    const TaskLabels labels = arguments.shuffled ? TaskLabels::shuffled : TaskLabels::correct;
    return usage("", [&] { return task_subject(task, settings, labels); });
  }
  if (arguments.shuffled) throw UsageError("--shuffled needs --task");
  const std::string text = read_text(arguments.text, kMaxTextBytes, "--text");
  const std::string source = arguments.text == "-" ? "standard input" : arguments.text;
  TrainingSettings settings = stored != nullptr ? stored->settings : text_recipe();
  replace_settings(settings, arguments);
  std::optional<Vocabulary> vocabulary = stored_vocabulary(stored);
  if (!vocabulary) vocabulary = vocabulary_of(arguments, text, source);
  return usage("", [&] { return text_subject(text, *vocabulary, settings, source); });
}

}  // namespace regard::program
