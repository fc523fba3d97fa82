// SPDX-License-Identifier: Apache-2.0
//
// The options that `explain` and `lesson` share: settings that override those of the input, and the form of the output.
// Read next: explain_options.cpp, explain.cpp.
#pragma once

#include <string>

#include "program.h"
#include "regard/explain/steps.h"

namespace regard::program {

// The options as typed; empty if not given.
struct ExplainText {
  std::string causal, scale, layout, softmax, softmax_base, heads, dtype, query, tokens;
  std::string step, cell, digits, color, html;
  bool full = false;
  bool json = false;
  bool pause = false;
};
// settings: the heading of the options that change what is computed.
void add_explain_options(CLI::App& command, ExplainText& text, const char* settings);

// Overrides the settings of the input with the given options. Throws UsageError.
void override_settings(const ExplainText& text, ExplainInput& input);
// Computes the steps and writes them to standard output as text (page by page with --pause) or JSON. With --html,
// writes the page to its file, and no text. Throws what explain() throws for the input.
void show_explanation(const ExplainInput& input, const ExplainText& text);

}  // namespace regard::program
