// SPDX-License-Identifier: Apache-2.0
//
// load_sentence_model: an encoder or a decoder from the files of a folder. rounded_model: an encoder, rounded.
//
//     config.json ── model_type "bert" ──▶ encoder, tokenizer.json
//                 └─ any other, or a folder of checkpoints ──▶ decoder, vocabulary.json
//
// Read next: sentence_model.cpp, regard/model/encoder.h, regard/train/trained_model.h.
#include "regard/error.h"
#include "regard/io/json.h"
#include "regard/io/rounding.h"
#include "regard/train/checkpoint.h"
#include "sentence_model.h"

namespace regard::inline v0 {
namespace {

constexpr std::string_view kConfigFile = "config.json";
constexpr std::uint64_t kMaxConfigBytes = 4 << 20;
constexpr auto kMaxTokenizerBytes = static_cast<std::uint64_t>(TokenizerOptions{}.max_text_bytes);

// Whether the folder is a run, or holds the description of a decoder. Everything else is left to load_encoder(), which
// reports what is wrong with it.
bool is_decoder_folder(const std::string& folder, const ModelFileOptions& options, const Runtime& runtime) {
  try {
    const std::string text = read_model_text(folder, kConfigFile, kMaxConfigBytes, runtime.stop);
    const JsonValue config = read_json(text, "config.json", 64, runtime.stop, options.max_memory_bytes);
    const JsonValue* type = config.kind() == JsonValue::Kind::object ? config.find("model_type") : nullptr;
    return type != nullptr && (type->text() == "llama" || type->text() == "regard_decoder");
  } catch (const DataError&) {
    try {
      return trained_model_folder(folder) != folder;
    } catch (const DataError&) {
      return false;
    }
  }
}

}  // namespace

SentenceModel load_sentence_model(const std::string& folder, const ModelFileOptions& options, const Runtime& runtime) {
  if (!is_decoder_folder(folder, options, runtime)) {
    Encoder encoder = load_encoder(folder, options, runtime);
    return encoder_model(folder, std::move(encoder),
                         Tokenizer::read_folder(folder, {.max_memory_bytes = options.max_memory_bytes}, runtime.stop));
  }
  SentenceModel model{.folder = folder};
  model.trained = load_trained_model(folder, options, runtime);
  return model;
}

ModelInMemory rounded_model(const std::string& folder, ElementType type, std::string name,
                            const ModelFileOptions& options, const std::stop_token& stop) {
  ModelInMemory files{.name = std::move(name),
                      .config_json = read_model_text(folder, kConfigFile, kMaxConfigBytes, stop),
                      .tokenizer_json = read_model_text(folder, "tokenizer.json", kMaxTokenizerBytes, stop)};
  const Checkpoint checkpoint = Checkpoint::read_folder(folder, options, stop);
  files.safetensors =
      round_tensors(checkpoint, encoder_tensors(files.config_json, checkpoint, folder, options, stop), type, stop);
  return files;
}

}  // namespace regard::inline v0
