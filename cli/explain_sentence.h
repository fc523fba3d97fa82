// SPDX-License-Identifier: Apache-2.0
//
// `regard explain "text"`: the options for a sentence in a model, in addition to those of explain_options.h.
// Read next: explain_sentence.cpp, explain.cpp.
#pragma once

#include <string>
#include <vector>

#include "explain_options.h"
#include "model_options.h"

namespace regard::program {

// The options as typed; empty if not given.
struct SentenceTextArguments {
  std::string text, layer, head, top, sort, save, arrays;
  std::vector<std::string> hide, compare_with;
  bool no_special = false;
  bool all_heads = false;
  ModelArguments model;
};
void add_sentence_options(CLI::App& command, SentenceTextArguments& arguments);

// Excludes the options that do not apply to a sentence. To be called when all options of the command have been added.
void exclude_options_of_matrices(CLI::App& command);

// Loads the model, runs it on the text, and prints the screen or, with --json, the data.
void explain_sentence(const SentenceTextArguments& arguments, const ExplainText& shared);

}  // namespace regard::program
