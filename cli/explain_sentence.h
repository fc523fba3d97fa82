// SPDX-License-Identifier: Apache-2.0
//
// `regard explain "text"`: the options that a sentence in a model has in addition to those of explain_options.h.
// Read next: explain_sentence.cpp, explain.cpp.
#pragma once

#include <string>
#include <vector>

#include "explain_options.h"
#include "model_options.h"

namespace regard::program {

// As they were typed; empty where not given.
struct SentenceTextArguments {
  std::string text, layer, head, top, sort, save, arrays;
  std::vector<std::string> hide, compare_with;
  bool no_special = false;
  bool all_heads = false;
  ModelArguments model;
};
void add_sentence_options(CLI::App& command, SentenceTextArguments& arguments);

// What a sentence cannot be given with; to be called when all options of the command are added.
void exclude_options_of_matrices(CLI::App& command);

// Reads the model, runs it on the text, writes the screen or, with --json, the data.
void explain_sentence(const SentenceTextArguments& arguments, const ExplainText& shared);

}  // namespace regard::program
