// SPDX-License-Identifier: Apache-2.0
//
// `regard explain`: attention in a pretrained model for a sentence, or step by step for the user's matrices, which come
// from a JSON file, or from NPY and CSV files.
//
//     "text"  →  explain_sentence.cpp
//     --input FILE | --matrix NAME=FILE …  →  ExplainInput  →  overriding options  →  steps  →  text or JSON
//
// Read next: explain_sentence.h, explain_options.h, regard/explain/steps.h, docs/guide/own-matrices.md.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "explain_options.h"
#include "explain_sentence.h"
#include "program.h"
#include "regard/io/csv.h"
#include "regard/io/npy.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

// The maximum size of an input file. A larger input cannot reasonably be explained step by step.
constexpr std::uint64_t kLargestFile = std::uint64_t{1} << 30;

std::string shown_name(const std::string& path) { return path == "-" ? "standard input" : path; }

bool is_npy(const std::string& text, const std::string& path) {
  return text.starts_with("\x93NUMPY") || (path.size() > 4 && path.ends_with(".npy"));
}

NamedMatrix read_matrix(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == argument.size())
    reject_value("--matrix", argument, "NAME=FILE such as W_query=w.csv");
  const std::string path = argument.substr(equals + 1);
  const std::string text = read_text(path, kLargestFile, "--matrix");
  const std::string shown = shown_name(path);
  return {argument.substr(0, equals), is_npy(text, path) ? read_npy(text, shown) : read_csv(text, shown)};
}

ExplainInput read_input(const std::string& input, const std::string& max_memory,
                        const std::vector<std::string>& matrices) {
  if (input.empty() && matrices.empty())
    throw UsageError(
        "nothing to explain; give a sentence in quotes, --input FILE (JSON), or --matrix NAME=FILE for each matrix");
  if (!input.empty()) {
    const std::string text = read_text(input, kLargestFile, "--input");
    if (is_npy(text, input) || input.ends_with(".csv"))
      throw UsageError("--input " + input + " is not JSON; give NPY and CSV files as --matrix NAME=" + input);
    std::optional<std::uint64_t> limit;
    if (!max_memory.empty()) limit = parse_bytes("--max-memory", max_memory);
    return read_explain_input(text, shown_name(input), {}, limit);
  }
  std::vector<NamedPath> paths;
  for (const std::string& argument : matrices)
    paths.push_back({"--matrix", argument.substr(std::min(argument.find('='), argument.size() - 1) + 1)});
  if (std::count_if(paths.begin(), paths.end(), [](const NamedPath& p) { return p.path == "-"; }) > 1)
    throw UsageError("--matrix reads standard input (-) more than once");
  ExplainInput read;
  for (const std::string& argument : matrices) {
    read.matrices.push_back(read_matrix(argument));
    const std::string& name = read.matrices.back().name;
    if (std::any_of(read.matrices.begin(), read.matrices.end() - 1,
                    [&](const NamedMatrix& m) { return m.name == name; }))
      throw UsageError("--matrix " + name + " is given twice; give it only once");
  }
  return read;
}

}  // namespace

void add_explain(CLI::App& app) {
  struct Options {
    std::string input, max_memory;
    std::vector<std::string> matrices;
    ExplainText text;
    SentenceTextArguments sentence;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("explain", "Show how attention is computed, for a sentence or for matrices");
  CLI::Option* sentence = command
                              ->add_option("text", options->sentence.text,
                                           "a sentence for a pretrained model, or - to read it\nfrom standard input")
                              ->type_name("\"TEXT\"");
  command->add_option("--input", options->input, "JSON file with the matrices and settings, or - for\nstandard input")
      ->type_name("FILE")
      ->group("MATRICES (--input or --matrix)");
  command
      ->add_option("--max-memory", options->max_memory,
                   "memory limit for --input, such as 8G (default: the\navailable memory)")
      ->type_name("BYTES")
      ->group("MATRICES (--input or --matrix)");
  command
      ->add_option(
          "--matrix", options->matrices,
          "an NPY or CSV file with the matrix NAME; repeatable.\nEither X, W_query, W_key and W_value (and optionally\n"
          "W_output, b_query, …) or Q, K and V are required")
      ->type_name("NAME=FILE")
      ->allow_extra_args(false)
      ->group("MATRICES (--input or --matrix)");
  add_sentence_options(*command, options->sentence);
  add_explain_options(*command, options->text, "SETTINGS (override the settings of the input)");
  exclude_options_of_matrices(*command);
  needs(command->get_option("--max-memory"), command->get_option("--input"), "--max-memory requires --input");
  excludes(command->get_option("--input"), command->get_option("--matrix"),
           "--input and --matrix both name the matrices; give only one of them");
  command->footer(
      "EXAMPLES\n"
      "  regard explain \"he sat on the bank of the river\" --query bank\n"
      "  regard explain \"he sat on the bank of the river\" --query bank --hide river\n"
      "  regard explain --input words.json --query love\n"
      "  regard explain --matrix Q=q.csv --matrix K=k.csv --matrix V=v.npy --causal\n"
      "  regard explain --input words.json --step weights --cell 1,0\n"
      "  regard lesson three-words --export | regard explain --input - --scale sqrt\n"
      "\n"
      "The JSON has the form {\"tokens\": [\"I\", \"love\"], \"X\": [[1, 0], [0, 1]],\n"
      "\"W_query\": …, \"W_key\": …, \"W_value\": …, \"scale\": \"none\"};\n"
      "docs/guide/own-matrices.md describes all members. Defaults: scale sqrt, no\n"
      "mask, layout rows, softmax shifted, dtype f64.");
  command->callback([options, sentence] {
    if (sentence->count() > 0) {
      explain_sentence(options->sentence, options->text);
      return;
    }
    ExplainInput input = read_input(options->input, options->max_memory, options->matrices);
    try {
      override_settings(options->text, input);
      show_explanation(input, options->text);
    } catch (const std::invalid_argument& error) {
      if (options->input.empty()) throw;
      throw std::runtime_error(shown_name(options->input) + ": " + error.what());
    }
  });
}

}  // namespace regard::program
