// SPDX-License-Identifier: Apache-2.0
//
// Loads the decoder and the vocabulary of a run.
// Read next: checkpoint.cpp, vocabulary_json.cpp.
#include "regard/train/trained_model.h"

#include <fmt/format.h>

#include "regard/error.h"
#include "regard/io/utf8.h"
#include "regard/train/checkpoint.h"

namespace regard::inline v0 {
namespace {

constexpr std::string_view kVocabularyFile = "vocabulary.json";
// 2^24 tokens of a few bytes.
constexpr std::uint64_t kMaxVocabularyBytes = 512 << 20;

}  // namespace

TrainedModel load_trained_model(const std::string& path, const ModelFileOptions& options, const Runtime& runtime) {
  const std::string folder = trained_model_folder(path);
  const std::string source = fmt::format("{}/{}", folder, kVocabularyFile);
  // The vocabulary first: it is small, and a folder without one is rejected before its parameters are read.
  Vocabulary vocabulary = Vocabulary::read(read_model_text(folder, kVocabularyFile, kMaxVocabularyBytes, runtime.stop),
                                           source, runtime.stop, options.max_memory_bytes);
  TrainedModel model{folder, load_decoder(folder, options, runtime), std::move(vocabulary)};
  if (model.vocabulary.size() != model.decoder.config.vocabulary) {
    throw DataError(fmt::format("{}: has {} tokens; config.json has a vocab_size of {}", escape_for_terminal(source),
                                model.vocabulary.size(), model.decoder.config.vocabulary));
  }
  return model;
}

}  // namespace regard::inline v0
