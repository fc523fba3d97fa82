// SPDX-License-Identifier: Apache-2.0
//
// What `regard train` prints around a run: the tasks, the model and its work, the result, the time of each part.
// Read next: train.cpp.
#pragma once

#include <span>
#include <string>

#include "train_options.h"

namespace regard::program {

std::string task_list_text();
std::string task_list_json();
// The model, the steps, and the share of operations of each part.
std::string plan_text(const TrainingSubject& subject);
std::string result_text(const Evaluation& held_out, const WatchedRun& run);
std::string profile_text(const Trainer& trainer, double seconds);
std::string stopped_text(const Trainer& trainer, const std::string& run);
std::string curve_csv(std::span<const CurvePoint> curve);

}  // namespace regard::program
