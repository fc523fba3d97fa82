// SPDX-License-Identifier: Apache-2.0
//
// Shared by load_encoder, which reads a folder, and read_encoder, which reads memory.
// Read next: encoder_load.cpp, encoder_folder.cpp.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "regard/model/encoder.h"

namespace regard::inline v0::internal {

// name: that of the folder or of the model. read_checkpoint is called after config_json has been checked.
Encoder make_encoder(const std::string& name, std::string_view config_json,
                     const std::function<Checkpoint()>& read_checkpoint, const ModelFileOptions& options,
                     const Runtime& runtime);

}  // namespace regard::inline v0::internal
