// SPDX-License-Identifier: Apache-2.0
//
// The options that `explain` and `lesson` share: settings that win over the input's own, and how the steps are shown.
// Read next: explain_options.cpp, explain.cpp.
#pragma once

#include <string>

#include "program.h"
#include "regard/explain/steps.h"

namespace regard::program {

// Options as they were typed; empty where not given.
struct ExplainText {
  std::string causal, scale, layout, softmax, softmax_base, heads, dtype, query, tokens;
  std::string step, cell, digits, color, html;
  bool full = false;
  bool json = false;
  bool pause = false;
};
// settings is the heading over the options that change what is computed.
void add_explain_options(CLI::App& command, ExplainText& text, const char* settings);

// Writes what was given over the settings. Throws UsageError.
void override_settings(const ExplainText& text, ExplainInput& input);
// Computes and writes to standard output: text, page by page with --pause, or JSON; with --html the page to its file,
// and no text. Throws what explain() throws for the input itself.
void show_explanation(const ExplainInput& input, const ExplainText& text);

}  // namespace regard::program
