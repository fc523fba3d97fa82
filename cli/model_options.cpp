// SPDX-License-Identifier: Apache-2.0
//
// Implements model_options.h: --model, --truncate, --mmap, --allow-nonfinite.
// Read next: model_cache.h, docs/reference/model.md.
#include "model_options.h"

#include "program.h"
#include "pull/model_cache.h"

namespace regard::program {

void add_model_options(CLI::App& command, ModelArguments& arguments) {
  const char* group = kModelGroup;
  command
      .add_option("--model", arguments.folder,
                  "folder with config.json, tokenizer.json and\nmodel.safetensors (default: the model of\n"
                  "regard pull minilm); for explain and heads also\nthe folder of a training run")
      ->type_name("FOLDER")
      ->group(group);
  const auto add_flag = [&](const char* name, bool& value, const char* help) {
    command.add_flag(name, value, help)->group(group);
  };
  add_flag("--truncate", arguments.truncate, "truncate texts that are too long for the model");
  add_flag("--mmap", arguments.map,
           "map the checkpoint instead of reading it: less\nmemory, but if another program changes the file\n"
           "meanwhile, results change or SIGBUS ends regard");
  add_flag("--allow-nonfinite", arguments.allow_nonfinite, "accept a checkpoint that contains NaN or infinities");
}

SentenceModel load_model(const ModelArguments& arguments) {
  return load_sentence_model(model_folder(arguments.folder),
                             {.map = arguments.map, .allow_nonfinite = arguments.allow_nonfinite});
}

SentenceModel load_encoder_model(const ModelArguments& arguments, const char* command) {
  SentenceModel model = load_model(arguments);
  usage("", [&] { check_is_encoder(model, command); });
  return model;
}

}  // namespace regard::program
