// SPDX-License-Identifier: Apache-2.0
//
// load_encoder: an encoder from the files of a folder.
// Read next: encoder_load.cpp.
#include "encoder_load.h"
#include "model/loading.h"

namespace regard::inline v0 {

Encoder load_encoder(const std::string& folder, const ModelFileOptions& options, const Runtime& runtime) {
  return internal::make_encoder(
      folder, read_model_text(folder, internal::kConfigFile, internal::kMaxConfigBytes, runtime.stop),
      [&] { return Checkpoint::read_folder(folder, options, runtime.stop); }, options, runtime);
}

}  // namespace regard::inline v0
