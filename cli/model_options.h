// SPDX-License-Identifier: Apache-2.0
//
// The options shared by all subcommands that run a pretrained model on a text, and loading that model.
//
//     --model FOLDER, else the pulled one ─── --mmap, --allow-nonfinite ── load_model ──▶ SentenceModel
//     --model minilm-int8 or minilm-f16: the pulled one ── rounded_model ──┘
//
// Read next: model_options.cpp, regard/explain/sentence.h, regard/io/safetensors.h.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "regard/explain/sentence.h"

namespace regard::program {

struct ModelArguments {
  std::string folder;  // as typed: a folder, or the name of a model; empty means the pulled model
  bool truncate = false;
  bool map = false;
  bool allow_nonfinite = false;
};
// Their group in the help.
inline constexpr const char* kModelGroup = "THE MODEL";
// Whether the help of --model mentions that the command also accepts the folder of a training run.
enum class TrainingRuns { rejected, accepted };
void add_model_options(CLI::App& command, ModelArguments& arguments, TrainingRuns runs = TrainingRuns::rejected);

// How the matrices of the model of this name are rounded, if it is a rounded form of the pulled one.
std::optional<ElementType> rounded_type(std::string_view model);

// Throws std::runtime_error naming `regard pull minilm` if there is no model, and as load_sentence_model does.
SentenceModel load_model(const ModelArguments& arguments);
// As above, for a command that needs an encoder. Throws UsageError if the model is a decoder.
SentenceModel load_encoder_model(const ModelArguments& arguments, const char* command);

}  // namespace regard::program
