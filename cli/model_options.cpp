// SPDX-License-Identifier: Apache-2.0
//
// Implements model_options.h: --model, --truncate, --mmap, --allow-nonfinite.
// Read next: model_cache.h, docs/reference/model.md.
#include "model_options.h"

#include <array>

#include "program.h"
#include "pull/model_cache.h"

namespace regard::program {
namespace {

struct RoundedModel {
  std::string_view name;
  ElementType type;
};
// Rounded forms of the pulled model. They are created on loading, by a function whose output depends only on its input.
constexpr std::array<RoundedModel, 2> kRoundedModels{
    {{"minilm-int8", ElementType::int8}, {"minilm-f16", ElementType::float16}}};

}  // namespace

void add_model_options(CLI::App& command, ModelArguments& arguments, TrainingRuns runs) {
  const char* group = kModelGroup;
  std::string models =
      "minilm (default): the model downloaded by regard\npull minilm; minilm-int8, minilm-f16: the same model\n"
      "with its matrices rounded to int8 or float16;\nFOLDER: a folder with config.json, tokenizer.json\n"
      "and model.safetensors (./minilm for a folder of\nthat name)";
  if (runs == TrainingRuns::accepted) models += ", or the folder of a training run";
  command.add_option("--model", arguments.folder, models)
      ->type_name("minilm|minilm-int8|minilm-f16|FOLDER")
      ->group(group);
  const auto add_flag = [&](const char* name, bool& value, const char* help) {
    command.add_flag(name, value, help)->group(group);
  };
  add_flag("--truncate", arguments.truncate, "truncate texts that are too long for the model");
  add_flag("--mmap", arguments.map,
           "memory-map the checkpoint instead of reading it:\nsaves memory, but if another program modifies the\n"
           "file meanwhile, results may change, or SIGBUS\nmay terminate regard");
  add_flag("--allow-nonfinite", arguments.allow_nonfinite, "accept a checkpoint that contains NaN or infinities");
}

std::optional<ElementType> rounded_type(std::string_view model) {
  for (const RoundedModel& rounded : kRoundedModels) {
    if (model == rounded.name) return rounded.type;
  }
  return std::nullopt;
}

SentenceModel load_model(const ModelArguments& arguments) {
  const ModelFileOptions options{.map = arguments.map, .allow_nonfinite = arguments.allow_nonfinite};
  if (const std::optional<ElementType> type = rounded_type(arguments.folder))
    return read_sentence_model(rounded_model(model_folder(kPulledModel), *type, arguments.folder, options), options);
  return load_sentence_model(model_folder(arguments.folder), options);
}

SentenceModel load_encoder_model(const ModelArguments& arguments, const char* command) {
  SentenceModel model = load_model(arguments);
  usage("", [&] { check_is_encoder(model, command); });
  return model;
}

}  // namespace regard::program
