// SPDX-License-Identifier: Apache-2.0
//
// An explanation as text for a terminal: a first page with the finding and the settings, then one page per step:
//
//     number, term, the document's name        the finding
//     equation, shape                          tables next to each other: operand, result, fractions, variants
//     one cell worked out, bars, sums, the document's figures, notes, errata
//
// Read next: table.h and steps_text_parts.h, which build these parts.
#include <fmt/format.h>

#include <algorithm>

#include "chosen_steps.h"
#include "explain/report/table.h"
#include "explain/report/terminal.h"
#include "findings.h"
#include "operations.h"
#include "regard/error.h"
#include "steps_text_parts.h"

namespace regard::inline v0 {
namespace {

constexpr int kIndent = 3;
constexpr Index kMaxHeads = 4;

class PageWriter {
 public:
  PageWriter(const Explanation& explanation, const TextOptions& options, const std::stop_token& stop)
      : explanation_(explanation),
        options_(options),
        stop_(stop),
        paint_{.color = options.color, .unicode = options.unicode},
        width_(std::clamp(options.width, 40, 400)) {}

  std::string first_page() {
    std::string text;
    if (!explanation_.title.empty())
      for (const std::string& line : wrap_words(paint_.shown(explanation_.title), width_, 0))
        text += paint_.bold(line) + "\n";
    if (!explanation_.citation.empty())
      for (const std::string& line : wrap_words(paint_.shown(explanation_.citation), width_, 2))
        text += paint_.dim(line) + "\n";
    if (!text.empty()) text += "\n";
    if (!explanation_.finding.empty()) {
      for (const std::string& line : wrap_words(sentence(explanation_.finding), width_, 0)) text += line + "\n";
      text += "\n";
    }
    std::string settings;
    for (const std::string& line : explanation_.settings_text)
      settings += (settings.empty() ? "" : "; ") + paint_.shown(line);
    for (const std::string& line : wrap_words(settings, width_, 0)) text += paint_.dim(line) + "\n";
    return text;
  }

  std::string step_page(std::size_t index) {
    const Step& step = explanation_.steps[index];
    throw_if_stopped(stop_, "the explanation");
    text_.clear();
    heading(index, step);
    if (!step.finding.empty()) {
      paragraph(sentence(step.finding));
      text_ += "\n";
    }
    tables(step);
    details(step);
    return text_;
  }

  std::string last_page() {
    text_.clear();
    if (explanation_.errata.empty()) return text_;
    text_ += paint_.bold("Errata in the document") + "\n";
    for (const std::string& erratum : explanation_.errata)
      for (const std::string& line : wrap_words("- " + paint_.shown(erratum), width_, 2)) text_ += line + "\n";
    return text_;
  }

 private:
  int inner_width() const { return width_ - kIndent; }
  void line(const std::string& text) {
    const std::size_t length = text.find_last_not_of(' ') + 1;
    text_ += length == 0 ? "\n" : std::string(kIndent, ' ') + text.substr(0, length) + "\n";
  }
  void paragraph(const std::string& text) {
    for (const std::string& l : wrap_words(text, inner_width(), 0)) line(l);
  }
  void lines(const std::vector<std::string>& all) {
    for (const std::string& l : all) line(l);
  }
  std::string sentence(const std::string& finding) const {
    const std::string text = paint_.shown(finding);
    return text.ends_with('.') ? text : text + ".";
  }

  // "(L, S) = (3, 3)": extents by their letters.
  std::string shape(const Step& step) const {
    const Matrix& m = step.result;
    std::string letters;
    std::string numbers;
    if (m.has_heads) {
      letters = "H, ";
      numbers = fmt::format("{}, ", m.num_heads);
    }
    numbers += fmt::format("{}, {}", m.num_rows, m.num_columns);
    if (step.row_axis.extent.empty() || step.column_axis.extent.empty()) return "(" + numbers + ")";
    return fmt::format("({}{}, {}) = ({})", letters, step.row_axis.extent, step.column_axis.extent, numbers);
  }

  void heading(std::size_t index, const Step& step) {
    std::string title = fmt::format("{:<2} {}", index, paint_.shown(step.term));
    if (step.term.find(step.name) == std::string::npos) title += fmt::format(" ({})", paint_.shown(step.name));
    if (!step.document_name.empty()) title += fmt::format(", in the document: {}", paint_.shown(step.document_name));
    for (const std::string& l : wrap_words(title, width_, kIndent)) text_ += paint_.bold(l) + "\n";
    const std::string equation = paint_.shown(step.equation);
    const std::string size = paint_.shown(shape(step));
    const int available = inner_width() - display_width(equation) - display_width(size);
    if (available >= 2) {
      line(equation + std::string(static_cast<std::size_t>(std::min(available, 4)), ' ') + paint_.dim(size));
    } else {
      for (const std::string& l : wrap_words(equation, inner_width(), 2)) line(l);
      line(paint_.dim(size));
    }
    if (step.outside_library) line(paint_.dim(paint_.shown("not computed by the library")));
    // A blank line separates the heading from the finding or the tables.
    text_ += "\n";
  }

  NumberStyle style_of(const Step& step, const Matrix& m) const {
    return step_style(explanation_, step, m, options_.digits, paint_.unicode);
  }

  TableRequest table_request(const Step& step, const Matrix& m, Index head) const {
    TableRequest request{.matrix = m,
                         .head = head,
                         .row_axis = step.row_axis,
                         .column_axis = step.column_axis,
                         .style = style_of(step, m),
                         .width = inner_width(),
                         .full = options_.full,
                         .stop = stop_};
    mark_focus(step.row_axis, m.num_rows, request.wanted_rows, request.marked_row);
    mark_focus(step.column_axis, m.num_columns, request.wanted_columns, request.marked_column);
    // In a square of queries and keys only the query is marked.
    if (request.marked_row && request.marked_column)
      (explanation_.settings.layout == Layout::columns ? request.marked_row : request.marked_column).reset();
    if (options_.cell) {
      request.wanted_rows.push_back(options_.cell->row);
      request.wanted_columns.push_back(options_.cell->column);
    }
    return request;
  }
  void mark_focus(const Axis& axis, Index count, std::vector<Index>& wanted, std::optional<Index>& marked) const {
    if (!explanation_.focus || *explanation_.focus >= count) return;
    const bool key = axis.name == "key" && explanation_.key_tokens != explanation_.tokens;
    if ((axis.name != "query" && axis.name != "token" && axis.name != "key") || key) return;
    wanted.push_back(*explanation_.focus);
    marked = explanation_.focus;
  }

  // The parameters of a projection, if they are small enough to be shown next to its result.
  void operand_block(const Step& step, std::vector<Block>& blocks) const {
    if (step.request.operation != Operation::linear) return;
    const Matrix& w = *step.operands[1].matrix;
    constexpr Index kSmall = 8;
    if (w.num_rows > kSmall || w.num_columns > kSmall) return;
    const Axis plain;
    TableRequest request{
        .matrix = w, .row_axis = plain, .column_axis = plain, .style = style_of(step, w), .width = inner_width()};
    request.title = paint_.shown(step.operands[1].name);
    Table table = make_table(request, paint_);
    if (table.blocks.size() == 1) blocks.push_back(std::move(table.blocks[0]));
  }

  void tables(const Step& step) {
    const Matrix& m = step.result;
    if (m.numbers.empty()) {
      line("no numbers");
      return;
    }
    std::vector<Block> blocks;
    operand_block(step, blocks);
    const bool titled = !blocks.empty() || !step.variants.empty() || m.has_heads || !step.exact.empty();
    std::vector<Index> heads = chosen_indices(m.num_heads, options_.full ? m.num_heads : kMaxHeads, wanted_heads(step));
    Table last;
    for (Index h : heads) {
      TableRequest request = table_request(step, m, h);
      request.sums = step.sums.empty() ? nullptr : &step.sums;
      request.sums_to_one = step.sums_to_one;
      if (titled) request.title = paint_.shown(step.symbol) + (m.has_heads ? fmt::format(", head {}", h) : "");
      last = make_table(request, paint_);
      for (Block& block : last.blocks) blocks.push_back(std::move(block));
    }
    if (!step.exact.empty()) {
      TableRequest request = table_request(step, m, 0);
      request.exact = &step.exact;
      request.title = paint_.shown(step.symbol) + ", exactly";
      for (Block& block : make_table(request, paint_).blocks) blocks.push_back(std::move(block));
    }
    for (const VariantResult& variant : step.variants)
      for (Index h = 0; h < std::min(variant.result.num_heads, kMaxHeads); ++h) {
        TableRequest request = table_request(step, variant.result, h);
        request.title = paint_.shown(variant.label) + (variant.result.has_heads ? fmt::format(", head {}", h) : "");
        for (Block& block : make_table(request, paint_).blocks) blocks.push_back(std::move(block));
      }
    for (const Line& l : side_by_side(blocks, inner_width())) line(l.text);
    if (step.sums_to_one != SumAxis::none) lines(sum_lines(context(), step, last, heads.back(), style_of(step, m)));
    if (last.shortened) paragraph(shortened_text(m, last));
    if (static_cast<Index>(heads.size()) < m.num_heads)
      line(fmt::format("shown: {} of {} heads; --full prints every one", heads.size(), m.num_heads));
  }
  std::vector<Index> wanted_heads(const Step& step) const {
    std::vector<Index> wanted;
    if (options_.cell) wanted.push_back(options_.cell->head);
    if (step.sums_to_one != SumAxis::none)
      if (const std::optional<QueryRow> row = row_for_finding(step, explanation_)) wanted.push_back(row->head);
    return wanted;
  }
  std::string shortened_text(const Matrix& m, const Table& table) const {
    std::vector<std::string> parts;
    if (static_cast<Index>(table.shown_rows.size()) < m.num_rows)
      parts.push_back(fmt::format("{} of {} rows", table.shown_rows.size(), m.num_rows));
    if (static_cast<Index>(table.shown_columns.size()) < m.num_columns)
      parts.push_back(fmt::format("{} of {} columns", table.shown_columns.size(), m.num_columns));
    return fmt::format("shown: {}; --full prints every number", fmt::join(parts, ", "));
  }

  TextContext context() const { return {explanation_, options_, paint_, inner_width()}; }

  void details(const Step& step) {
    if (step.result.numbers.empty()) return;
    const NumberStyle style = style_of(step, step.result);
    if (step.sums_to_one != SumAxis::none) {
      const std::vector<std::string> bars = bar_lines(context(), step, style);
      if (!bars.empty()) text_ += "\n";
      lines(bars);
    }
    const std::vector<std::string> picture = picture_lines(context(), step);
    if (!picture.empty()) text_ += "\n";
    lines(picture);
    std::vector<std::string> working = options_.cell && has_cell(step.result, *options_.cell)
                                           ? cell_lines(context(), step, style)
                                           : example_lines(context(), step, style);
    if (!working.empty()) text_ += "\n";
    lines(working);
    const std::vector<std::string> document = document_lines(context(), step);
    if (!document.empty()) text_ += "\n";
    for (const std::string& l : document)
      for (const std::string& part : wrap_words(l, inner_width(), 2)) line(part);
    if (!step.notes.empty() || !step.errata.empty()) text_ += "\n";
    for (const std::string& note : step.notes) paragraph(paint_.shown(note));
    for (const std::string& erratum : step.errata)
      for (const std::string& l : wrap_words("erratum: " + paint_.shown(erratum), inner_width(), 2))
        line(paint_.warn(l));
  }

  const Explanation& explanation_;
  const TextOptions& options_;
  const std::stop_token& stop_;
  Paint paint_;
  int width_;
  std::string text_;
};

}  // namespace

std::vector<std::string> render_text_pages(const Explanation& explanation, const TextOptions& options,
                                           const std::stop_token& stop) {
  const std::vector<std::size_t> steps = chosen_steps(explanation, options.step, options.cell);
  PageWriter writer(explanation, options, stop);
  std::vector<std::string> pages;
  if (options.step.empty()) pages.push_back(writer.first_page());
  for (std::size_t i : steps) pages.push_back(writer.step_page(i));
  if (options.step.empty()) pages.push_back(writer.last_page());
  std::erase(pages, "");
  return pages;
}

std::string render_text(const Explanation& explanation, const TextOptions& options, const std::stop_token& stop) {
  std::string text;
  for (const std::string& page : render_text_pages(explanation, options, stop))
    text += (text.empty() ? "" : "\n") + page;
  return text;
}

}  // namespace regard::inline v0
