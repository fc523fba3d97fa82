// SPDX-License-Identifier: Apache-2.0
//
// `regard explain "text"`: runs a pretrained model on a sentence and shows one head's attention for one query word.
//
//     text ── model folder ── analyze_sentence ──▶ one screen, all numbers (--full), or JSON
//
// Read next: explain_sentence.h, regard/explain/sentence_report.h, docs/guide/sentence.md.
#include "explain_sentence.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "program.h"
#include "progress.h"
#include "regard/explain/compare.h"
#include "regard/explain/sentence_html.h"
#include "regard/explain/sentence_report.h"
#include "save_sentence.h"

namespace regard::program {
namespace {

constexpr std::uint64_t kLargestSentence = std::uint64_t{16} << 20;

Index parse_index(const std::string& option, const std::string& text) {
  const Index n = parse_integer(option, text);
  if (n < 0) throw UsageError(fmt::format("{} is {}; expected 0 or more", option, n));
  return n;
}

RowOrder parse_order(const std::string& text) {
  if (text.empty() || text == "text") return RowOrder::text;
  if (text == "weight") return RowOrder::weight;
  if (text == "contribution") return RowOrder::contribution;
  reject_value("--sort", text, "weight, contribution or text");
}

// The text as given, or standard input without its final newline.
std::string given_text(const std::string& argument) {
  if (argument != "-") return argument;
  std::string text = read_text(argument, kLargestSentence);
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

SentenceAnalysis analysis_of(const SentenceModel& model, const std::string& sentence,
                             const SentenceAnalysisOptions& options) {
  Progress progress("hiding each word");
  Runtime runtime;
  runtime.progress = progress.report();
  return analyze_sentence(model, sentence, options, runtime);
}

// Compares the word's vectors in this sentence and in the others, before and after hiding the word that it attends to.
std::optional<Comparison> comparison_of(const SentenceTextArguments& arguments, const std::string& sentence,
                                        const SentenceAnalysis& analysis, const SentenceModel& model) {
  if (arguments.compare_with.empty()) return std::nullopt;
  const std::vector<SentenceWord>& words = analysis.sentence.words;
  const SentenceWord& word = words[static_cast<std::size_t>(analysis.chosen.word)];
  const SentenceWord& attended = words[static_cast<std::size_t>(analysis.chosen.target)];
  std::vector<std::string> sentences{sentence};
  sentences.insert(sentences.end(), arguments.compare_with.begin(), arguments.compare_with.end());
  CompareOptions options{.hide = arguments.hide, .control = {}, .truncate = arguments.model.truncate};
  const bool attended_once = std::count_if(words.begin(), words.end(),
                                           [&](const SentenceWord& other) { return other.text == attended.text; }) == 1;
  if (options.hide.empty() && attended_once && !attended.special) options.hide = {attended.text};
  // In this sentence the word is given by its index, in the others by its name. A name with a comma would be split.
  std::string names = word.text;
  if (names.find(',') == std::string::npos) {
    names = fmt::format("@{}", word.tokens.front());
    for (std::size_t s = 1; s < sentences.size(); ++s) names += "," + word.text;
  }
  return compare_word(model, names, sentences, options);
}

}  // namespace

void add_sentence_options(CLI::App& command, SentenceTextArguments& arguments) {
  const char* group = "SENTENCE (--query selects the query word)";
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help) {
    command.add_option(name, value, help)->type_name(type)->group(group);
  };
  add("--layer", arguments.layer, "N",
      "show a head of this layer, numbered from 0; requires\n--head (default: the most informative head)");
  add("--head", arguments.head, "N", "show this head, numbered from 0; requires --layer");
  command
      .add_option("--hide", arguments.hide,
                  "mask this word in every layer, and show the results\nbefore and after; repeatable")
      ->type_name("WORD")
      ->allow_extra_args(false)
      ->group(group);
  add("--top", arguments.top, "K", "number of words in the table");
  add("--sort", arguments.sort, "text|weight|contribution", "order of the words in the table (default: text)");
  command.add_flag("--no-special", arguments.no_special, "combine special tokens, such as [CLS], in one row")
      ->group(group);
  command.add_flag("--all-heads", arguments.all_heads, "list the most informative query-key pair of every\nhead")
      ->group(group);
  command
      .add_option(
          "--compare-with", arguments.compare_with,
          "compare the vectors of the query word with those in\nanother sentence (see regard compare); repeatable")
      ->type_name("\"TEXT\"")
      ->allow_extra_args(false)
      ->group(group);
  add("--save", arguments.save, "FOLDER", "write the arrays as NPY files, and the tokens as\ntokens.json");
  add("--arrays", arguments.arrays, "NAMES",
      "names of the arrays to save, separated by commas:\nweights, scores, query, key, value, context,\n"
      "hidden_states (default: all)");
  add_model_options(command, arguments.model, TrainingRuns::accepted);
  for (CLI::Option* option : command.get_options()) {
    if (option->get_group() == group || option->get_group() == kModelGroup)
      needs(option, command.get_option("text"), option->get_name() + " applies only to a sentence; give one in quotes");
  }
  for (const auto& [option, other] : {std::pair{"--layer", "--head"}, std::pair{"--head", "--layer"}})
    needs(command.get_option(option), command.get_option(other),
          "--layer and --head together select a head; give both or neither");
  needs(command.get_option("--arrays"), command.get_option("--save"),
        "--arrays selects what --save writes; add --save FOLDER");
}

void exclude_options_of_matrices(CLI::App& command) {
  CLI::Option* const sentence = command.get_option("text");
  for (const char* name : {"--causal", "--scale", "--layout", "--softmax", "--softmax-base", "--heads", "--dtype",
                           "--tokens", "--step", "--cell"})
    excludes(command.get_option(name), sentence,
             std::string(name) + " applies only to matrices (--input or --matrix), not to a sentence");
  excludes(command.get_option("--pause"), sentence,
           "--pause applies only to matrices (--input or --matrix); --full shows every number of a sentence");
  for (const char* name : {"--input", "--matrix"})
    excludes(command.get_option(name), sentence,
             "both a sentence and --input or --matrix are given; give only one of them");
  excludes(command.get_option("--compare-with"), command.get_option("--json"),
           "--compare-with has no JSON output; for that, use regard compare … --json");
}

void explain_sentence(const SentenceTextArguments& arguments, const ExplainText& shared) {
  SentenceAnalysisOptions options{
      .query = shared.query, .hide = arguments.hide, .truncate = arguments.model.truncate, .full = shared.full};
  if (!arguments.layer.empty()) {
    options.layer = parse_index("--layer", arguments.layer);
    options.head = parse_index("--head", arguments.head);
  }
  SentenceTextOptions text{.width = output_width(),
                           .color = use_color(shared.color),
                           .unicode = terminal_is_unicode(),
                           .all_heads = arguments.all_heads,
                           .no_special = arguments.no_special,
                           .order = parse_order(arguments.sort),
                           .label = arguments.compare_with.empty() ? "" : "A"};
  if (!arguments.top.empty()) {
    text.top = parse_integer("--top", arguments.top);
    if (*text.top < 1) throw UsageError(fmt::format("--top is {}; expected 1 or more", *text.top));
  }
  if (!shared.digits.empty()) {
    const Index digits = parse_integer("--digits", shared.digits);
    if (digits < 0 || digits > 17)
      throw UsageError(fmt::format("--digits is {}; expected an integer from 0 to 17", digits));
    text.digits = static_cast<int>(digits);
  }
  std::optional<SentenceSaver> saver;
  if (!arguments.save.empty()) saver.emplace(arguments.save, arguments.arrays);
  if (shared.html == "-" && shared.json) throw UsageError("--html - and --json both write to standard output");
  const std::string sentence = given_text(arguments.text);
  const SentenceModel model = load_model(arguments.model);
  try {
    const SentenceAnalysis analysis = analysis_of(model, sentence, options);
    if (saver) saver->write(model, analysis.sentence);
    const std::optional<Comparison> comparison = comparison_of(arguments, sentence, analysis, model);
    OutputFiles page;
    if (!shared.html.empty()) {
      const std::string html = render_sentence_html(
          model, analysis, {.command = command_line(), .comparison = comparison ? &*comparison : nullptr});
      page.write(page.add(shared.html), html.data(), html.size());
    }
    if (shared.json) {
      write_stdout(render_sentence_json(analysis, {.command = command_line()}));
    } else if (shared.html != "-") {
      std::string screen = render_sentence_text(analysis, text);
      if (comparison)
        screen +=
            "\n" + render_compare_text(
                       *comparison, {.width = text.width, .color = text.color, .unicode = text.unicode, .brief = true});
      if (!shared.html.empty()) {
        const std::string page_address = page_line(
            shared.html,
            fmt::format("step by step, all {} heads", model.extents().num_layers * model.extents().num_heads));
        screen += comparison ? page_address.substr(1) : page_address;  // ./demo must fit on one screen
      }
      write_stdout(screen);
    }
    if (saver) saver->commit();
    page.commit();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
}

}  // namespace regard::program
