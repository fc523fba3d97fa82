// SPDX-License-Identifier: Apache-2.0
//
// The options of `regard train`: which task or text, and every setting of its recipe that can be replaced.
// Read next: train.cpp, regard/train/settings.h.
#pragma once

#include <string>
#include <vector>

#include "program.h"
#include "regard/train/watched_run.h"

namespace regard::program {

// As typed; empty if not given.
struct TrainArguments {
  std::string task, text, vocabulary;
  // Settings, by the names of kTrainSettings.
  std::vector<std::string> settings;
  bool untied = false, biases = false, recompute = false, shuffled = false;
  std::string run, checkpoint_every, evaluate;
  bool resume = false;
  std::string watch, snapshots, log, plot;
  bool list = false, json = false, profile = false, dry_run = false, ranks = false;
  std::string color, timeout;
};

// Registers the options of the settings.
void add_train_settings(CLI::App& command, TrainArguments& arguments);

// The task or text with the given settings. With a stored run, its settings are the ones that options replace. Throws
// UsageError.
TrainingSubject subject_of(const TrainArguments& arguments, const TrainingState* stored);

}  // namespace regard::program
