// SPDX-License-Identifier: Apache-2.0
//
// `regard compare WORD "sentence" "sentence" …`: how far one word's vectors differ, compared with those of other words.
// Read next: regard/explain/compare.h, model_options.h.
#include "regard/explain/compare.h"

#include <memory>

#include "model_options.h"
#include "program.h"
#include "regard/explain/sentence_html.h"

namespace regard::program {
namespace {

struct CompareArguments {
  std::string word, control, color, html;
  std::vector<std::string> sentences, hide;
  bool full = false, json = false;
  ModelArguments model;
};

void compare(const CompareArguments& arguments) {
  if (arguments.word.empty() || arguments.sentences.size() < 2)
    throw UsageError("give a word and at least two sentences, for example: regard compare bank \"…\" \"…\"");
  const CompareTextOptions text{.width = output_width(),
                                .color = use_color(arguments.color),
                                .unicode = terminal_is_unicode(),
                                .full = arguments.full};
  if (arguments.html == "-" && arguments.json) throw UsageError("--html - and --json both write to standard output");
  const SentenceModel model = load_encoder_model(arguments.model, "compare");
  try {
    const Comparison comparison =
        compare_word(model, arguments.word, arguments.sentences,
                     {.hide = arguments.hide, .control = arguments.control, .truncate = arguments.model.truncate});
    OutputFiles page;
    if (!arguments.html.empty()) {
      const std::string html = render_compare_html(comparison, command_line());
      page.write(page.add(arguments.html), html.data(), html.size());
    }
    if (arguments.json) {
      write_stdout(render_compare_json(comparison, command_line()));
    } else if (arguments.html != "-") {
      std::string screen = render_compare_text(comparison, text);
      if (!arguments.html.empty()) screen += page_line(arguments.html, "cosine similarity by layer");
      write_stdout(screen);
    }
    page.commit();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace

void add_compare(CLI::App& app) {
  auto arguments = std::make_shared<CompareArguments>();
  CLI::App* command = app.add_subcommand("compare", "Compare a word's vectors across sentences, layer by layer");
  command
      ->add_option(
          "word", arguments->word,
          "a word that occurs in every sentence, or one word\nper sentence, separated by commas: bank,bank#1,@4\n"
          "(bank#1: the second occurrence of bank; @4: the word\nthat contains token 4)")
      ->type_name("WORD");
  command->add_option("sentences", arguments->sentences, "two or more sentences, labeled A, B, …")
      ->type_name("\"TEXT\"");
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help) {
    command->add_option(name, value, help)->type_name(type);
  };
  command
      ->add_option(
          "--hide", arguments->hide,
          "in the sentences that contain this word, mask it in\nevery layer, and show the results before and after;\n"
          "repeatable")
      ->type_name("WORD")
      ->allow_extra_args(false);
  add("--control", arguments->control, "WORD",
      "use only this word for comparison, as the control\n(default: every other word that occurs in at least\n"
      "two sentences)");
  command->add_flag("--full", arguments->full, "show every pair of sentences, every control word and\nevery head");
  command->add_flag("--json", arguments->json, "print the data as JSON");
  add("--html", arguments->html, "FILE", "also write a self-contained HTML page");
  add_color_option(*command, arguments->color);
  add_model_options(*command, arguments->model);
  command->footer(
      "EXAMPLES\n"
      "  regard compare bank \"he sat on the bank of the river\" \\\n"
      "    \"she put her money in the bank\"\n"
      "  regard compare bank \"he sat on the bank of the river\" \\\n"
      "    \"they walked along the river bank at dawn\" --hide river\n"
      "  regard compare bank,bank#1 \"the bank by the river\" \"no bank is a river bank\"\n"
      "\n"
      "docs/reference/notation.md defines each quantity.");
  command->callback([arguments] { compare(*arguments); });
}

}  // namespace regard::program
