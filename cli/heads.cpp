// SPDX-License-Identifier: Apache-2.0
//
// `regard heads "text"` or `regard heads < lines`: measures of every attention head of a model.
//
//     one text, or each line of standard input  →  HeadSurveyor  →  text or JSON
//
// Read next: regard/explain/heads.h, model_options.h.
#include "regard/explain/heads.h"

#include <fmt/format.h>

#include <memory>

#include "model_options.h"
#include "program.h"
#include "progress.h"

namespace regard::program {
namespace {

constexpr std::uint64_t kLargestTexts = std::uint64_t{64} << 20;

struct HeadsArguments {
  std::string text, by, sort, layer, head, min, max, color;
  bool full = false, json = false;
  ModelArguments model;
};

HeadFilter parse_filter(const HeadsArguments& arguments) {
  HeadFilter filter;
  if (!arguments.sort.empty()) filter.sort = usage("--sort", [&] { return parse_head_measure(arguments.sort); });
  if (!arguments.layer.empty()) filter.layer = parse_integer("--layer", arguments.layer);
  if (!arguments.head.empty()) filter.head = parse_integer("--head", arguments.head);
  if (!arguments.min.empty()) filter.min = parse_number("--min", arguments.min);
  if (!arguments.max.empty()) filter.max = parse_number("--max", arguments.max);
  return filter;
}

struct NumberedText {
  Index line;  // from 1; 0 for a text on the command line
  std::string text;
};

// The lines that are not blank.
std::vector<NumberedText> lines_of(const std::string& text) {
  std::vector<NumberedText> lines;
  Index number = 0;
  for (std::string_view line : split(text, '\n')) {
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) lines.push_back({number, std::string(line)});
  }
  return lines;
}

HeadSurvey survey_of(const std::vector<NumberedText>& texts, bool piped, const HeadsArguments& arguments) {
  const SentenceModel model = load_model(arguments.model);
  HeadSurveyor surveyor(model, arguments.by == "sentence");
  Progress progress("heads");
  Index done = 0;
  for (const NumberedText& text : texts) {
    try {
      const Sentence sentence = read_sentence(model, text.text, {.hide = {}, .truncate = arguments.model.truncate});
      check_has_words(sentence.words);
      surveyor.add(sentence, text.line);
    } catch (const std::invalid_argument& error) {
      if (!piped) throw UsageError(error.what());
      throw std::runtime_error(fmt::format("standard input: line {}: {}", text.line, error.what()));
    }
    progress.update(++done, static_cast<Index>(texts.size()));
  }
  return surveyor.survey();
}

void heads(const HeadsArguments& arguments) {
  const HeadFilter filter = parse_filter(arguments);
  if (!arguments.by.empty() && arguments.by != "query" && arguments.by != "sentence")
    reject_value("--by", arguments.by, "query or sentence");
  const HeadsTextOptions text{.width = output_width(),
                              .color = use_color(arguments.color),
                              .unicode = terminal_is_unicode(),
                              .full = arguments.full};
  const bool piped = arguments.text.empty() || arguments.text == "-";
  if (arguments.text.empty() && reads_from_terminal())
    throw UsageError("no text is given; pass one as an argument, or one per line on standard input");
  std::vector<NumberedText> texts;
  if (piped) {
    texts = lines_of(read_text("-", kLargestTexts));
    if (texts.empty()) throw std::runtime_error("standard input: no text found; expected one text per line");
  } else {
    texts.push_back({0, arguments.text});
  }
  const HeadSurvey survey = survey_of(texts, piped, arguments);
  write_stdout(usage("", [&] {
    return arguments.json ? render_heads_json(survey, filter, command_line()) : render_heads_text(survey, filter, text);
  }));
}

}  // namespace

void add_heads(CLI::App& app) {
  auto arguments = std::make_shared<HeadsArguments>();
  CLI::App* command = app.add_subcommand("heads", "Measure every attention head of a model on one or more texts");
  command
      ->add_option("text", arguments->text,
                   "the text (default: -, standard input, with one text\nper line; empty lines are skipped)")
      ->type_name("\"TEXT\"");
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help) {
    command->add_option(name, value, help)->type_name(type);
  };
  add("--by", arguments->by, "query|sentence",
      "average over all queries (default), or first over\nthe queries of each text, then over texts");
  add("--sort", arguments->sort, "entropy|special|self|previous|next|distance|contribution",
      "sort by the mean of this measure, largest first");
  add("--min", arguments->min, "X", "show only heads for which the mean of the --sort\nmeasure is at least X");
  add("--max", arguments->max, "X", "show only heads for which the mean of the --sort\nmeasure is at most X");
  for (const char* name : {"--min", "--max"})
    needs(command->get_option(name), command->get_option("--sort"),
          "--min and --max limit the mean of the measure given by --sort; add --sort");
  add("--layer", arguments->layer, "N", "show only this layer, numbered from 0");
  add("--head", arguments->head, "N", "show only this head of each layer, numbered from 0");
  command->add_flag("--full", arguments->full, "print four decimal places, and the values for\nuniform attention");
  command->add_flag("--json", arguments->json, "print the data as JSON");
  add_color_option(*command, arguments->color);
  add_model_options(*command, arguments->model, TrainingRuns::accepted);
  command->footer(
      "EXAMPLES\n"
      "  regard heads \"he sat on the bank of the river\"\n"
      "  regard heads --sort previous --min 0.3 < sentences.txt\n"
      "  regard heads --by sentence --layer 0 < sentences.txt\n"
      "\n"
      "docs/reference/notation.md defines each measure.");
  command->callback([arguments] { heads(*arguments); });
}

}  // namespace regard::program
