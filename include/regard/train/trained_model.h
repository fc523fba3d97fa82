// SPDX-License-Identifier: Apache-2.0
/// @file
/// The result of a training run: a decoder with its vocabulary.
///
/// @verbatim
///     RUN ── newest checkpoint ──▶ RUN/step-00002000 ── config.json, model.safetensors ──▶ decoder
///                                                    └─ vocabulary.json ────────────────▶ vocabulary
/// @endverbatim
///
/// Read next: checkpoint.h, vocabulary.h, regard/model/generate.h, src/train/checkpoint/trained_model.cpp.
#pragma once

#include <string>

#include "regard/model/decoder_inference.h"
#include "regard/train/vocabulary.h"

namespace regard::inline v0 {

/// A decoder with its vocabulary. Copies share the memory of the parameters and of the vocabulary.
struct TrainedModel {
  std::string folder;     ///< The folder that the model was loaded from.
  Decoder decoder;        ///< The decoder.
  Vocabulary vocabulary;  ///< The vocabulary.
};

/// Loads the model of a training run.
///
/// @param path     Path of a checkpoint, or of a run's folder. In the latter case, the newest checkpoint is loaded.
/// @param options  File reading options and limits.
/// @param runtime  Threads, scratch memory and cancellation.
/// @return The model.
/// @throws DataError  as trained_model_folder(), load_decoder() and Vocabulary::read() do, and if the vocabulary
///                    and the decoder have different numbers of tokens.
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const TrainedModel model = load_trained_model("run");
/// const Generated generated = generate(model.decoder, model.vocabulary.encode("Once "));
/// std::puts(model.vocabulary.decode(generated.ids).c_str());
/// @endcode
REGARD_EXPORT TrainedModel load_trained_model(const std::string& path, const ModelFileOptions& options = {},
                                              const Runtime& runtime = {});

}  // namespace regard::inline v0
