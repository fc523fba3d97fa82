// SPDX-License-Identifier: Apache-2.0
//
// `regard similar "text" < lines`: the lines whose vectors have the largest cosine similarity to that of the text.
//
//     text ── vector ┐
//     lines ─ vectors ┴ cosine ── the N highest, earlier lines first if equal ──▶ a table, or JSON
//
// Read next: line_vectors.h, docs/guide/sentence-vectors.md.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "line_vectors.h"
#include "model_options.h"
#include "program.h"
#include "regard/io/json_writer.h"
#include "regard/io/utf8.h"

namespace regard::program {
namespace {

struct SimilarArguments {
  std::string text, input, top;
  bool json = false;
  ModelArguments model;
};

struct Found {
  double cosine;
  Index line;
  std::string text;
};
bool comes_before(const Found& a, const Found& b) {
  return a.cosine != b.cosine ? a.cosine > b.cosine : a.line < b.line;
}

// Keeps the first N by comes_before of all that are added.
class Best {
 public:
  explicit Best(std::size_t most) : most_(most) {}
  void add(Found found) {
    if (found_.size() == most_ && !comes_before(found, found_.front())) return;
    if (found_.size() == most_) {
      std::pop_heap(found_.begin(), found_.end(), comes_before);
      found_.pop_back();
    }
    found_.push_back(std::move(found));
    std::push_heap(found_.begin(), found_.end(), comes_before);
  }
  std::vector<Found> in_order() && {
    std::sort_heap(found_.begin(), found_.end(), comes_before);
    return std::move(found_);
  }

 private:
  std::size_t most_;
  std::vector<Found> found_;  // a heap with the last of them in front
};

// The text, truncated to width with an ellipsis.
std::string shortened(const std::string& text, int width) {
  std::string shown = escape_for_terminal(text);
  if (display_width(shown) <= width) return shown;
  const std::string ellipsis = terminal_is_unicode() ? "…" : "...";
  std::string front;
  int used = display_width(ellipsis);
  for (std::size_t at = 0; at < shown.size();) {
    const std::string character = shown.substr(at, character_bytes(std::string_view(shown).substr(at)));
    used += display_width(character);
    if (used > width) break;
    front += character;
    at += character.size();
  }
  return front + ellipsis;
}

std::string table(const std::vector<Found>& found) {
  Index last = 0;
  for (const Found& line : found) last = std::max(last, line.line);
  const std::size_t digits = std::max<std::size_t>(4, std::to_string(last).size());
  std::string text = fmt::format("cosine  {:>{}}\n", "line", digits);
  for (const Found& line : found) {
    const std::string_view sign = !std::signbit(line.cosine) ? "" : terminal_is_unicode() ? "−" : "-";
    std::string row =
        fmt::format("{:>6}  {:>{}}  ", fmt::format("{}{:.3f}", sign, std::fabs(line.cosine)), line.line, digits);
    // Lines are truncated only on a terminal.
    row += writes_to_terminal() ? shortened(line.text, std::max(10, output_width() - display_width(row)))
                                : escape_for_terminal(line.text);
    text += row + "\n";
  }
  return text;
}

std::string document(const std::vector<Found>& found, const SimilarArguments& arguments, const SentenceModel& model,
                     Index num_lines) {
  JsonWriter json;
  json.begin_object();
  json.source(command_line());
  write_model(json, model);
  json.string("text", arguments.text);
  json.list("token_ids", fitted_tokens(model, arguments.text, arguments.model.truncate).tokens.ids,
            JsonLayout::compact);
  json.whole("num_lines", num_lines);
  const auto write_line = [&json](const Found& line) {
    json.whole("line", line.line);
    json.number("cosine", line.cosine);
    json.string("text", line.text);
  };
  json.objects("similar", found, write_line, JsonLayout::lines, JsonLayout::one_line);
  json.end_object();
  return json.take();
}

void similar(const SimilarArguments& arguments) {
  const Index top = arguments.top.empty() ? 10 : parse_integer("--top", arguments.top);
  if (top < 1) throw UsageError(fmt::format("--top is {}; expected 1 or more", top));
  if (arguments.text.empty())
    throw UsageError("give a text to compare with, for example: regard similar \"a river bank\" < lines.txt");
  if (arguments.input.empty() && reads_from_terminal())
    throw UsageError("no lines are given; give --input FILE, or one text per line on standard input");
  TextLines lines(arguments.input.empty() ? "-" : arguments.input);
  const SentenceModel model = load_encoder_model(arguments.model, "similar");
  const std::vector<float> wanted =
      usage("", [&] { return text_vector(model, arguments.text, arguments.model.truncate); });
  Best best(static_cast<std::size_t>(top));
  bool any = false;
  const Index num_lines = for_each_line_vector(
      model, lines, EmptyLines::skip, arguments.model.truncate, "similar", [&](const LineVectors& batch) {
        for (std::size_t i = 0; i < batch.texts.size(); ++i) {
          if (batch.ids[i].empty()) continue;
          any = true;
          best.add({cosine(wanted, batch.vector(i)), batch.first_line + static_cast<Index>(i), batch.texts[i]});
        }
      });
  if (!any) throw std::runtime_error(lines.name() + ": no text found; expected one text per line");
  const std::vector<Found> found = std::move(best).in_order();
  write_stdout(arguments.json ? document(found, arguments, model, num_lines) : table(found));
}

}  // namespace

void add_similar(CLI::App& app) {
  auto arguments = std::make_shared<SimilarArguments>();
  CLI::App* command = app.add_subcommand("similar", "Find the lines that are most similar to a text");
  command->add_option("text", arguments->text, "the text that the lines are compared with")->type_name("\"TEXT\"");
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help) {
    command->add_option(name, value, help)->type_name(type);
  };
  add("--input", arguments->input, "FILE",
      "file with one text per line (default: -, standard\ninput); empty lines are skipped");
  add("--top", arguments->top, "N", "number of lines to print (default: 10)");
  command->add_flag("--json", arguments->json, "print the data as JSON");
  add_model_options(*command, arguments->model);
  command->footer(
      "EXAMPLES\n"
      "  regard similar \"a walk by the water\" < sentences.txt\n"
      "  regard similar \"a walk by the water\" --input sentences.txt --top 3 --json\n"
      "\n"
      "A cosine of 1 means that two vectors have the same direction. Lines are\n"
      "numbered from 1. See docs/guide/sentence-vectors.md.");
  command->callback([arguments] { similar(*arguments); });
}

}  // namespace regard::program
