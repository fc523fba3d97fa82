// SPDX-License-Identifier: Apache-2.0
//
// The files of one checkpoint; checkpoint.cpp decides in which folder they are.
// Read next: checkpoint_files.cpp.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "regard/train/checkpoint.h"

namespace regard::inline v0::internal {

inline constexpr std::string_view kConfigName = "config.json";
inline constexpr std::string_view kModelName = "model.safetensors";
inline constexpr std::string_view kOptimizerName = "optimizer.safetensors";
inline constexpr std::string_view kTrainingName = "training.json";

inline std::string path_in(const std::string& folder, std::string_view name) {
  return (std::filesystem::path(folder) / std::filesystem::path(name)).string();
}

// Whether the active instruction set has fused multiply-add.
bool has_fused_multiply_add();

// Throws InvalidArgument unless the arrays have the size of the model and the files have distinct plain names that no
// file of the checkpoint has.
template <class T>
void check_to_save(const TrainingState& state, const TrainingArrays<const T>& arrays);

// Writes all files of a checkpoint into an empty folder.
template <class T>
void write_checkpoint(const std::string& folder, const TrainingState& state, const TrainingArrays<const T>& arrays);

}  // namespace regard::inline v0::internal
