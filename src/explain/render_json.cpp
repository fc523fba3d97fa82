// SPDX-License-Identifier: Apache-2.0
//
// An explanation as JSON: everything that the text shows, in full, and how it was computed. docs/explain-input.md
// lists the fields.
// Read next: json_text.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "json_text.h"
#include "regard/runtime.h"

namespace regard {
inline namespace v0 {
namespace {

void write_texts(JsonWriter& json, std::string_view name, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  json.name(name);
  json.begin_array();
  for (const std::string& text : texts) json.string(text);
  json.end_array();
}
void write_text(JsonWriter& json, std::string_view name, std::string_view text) {
  json.name(name);
  json.string(text);
}
void write_indices(JsonWriter& json, std::string_view name, const std::vector<Index>& indices) {
  if (indices.empty()) return;
  json.name(name);
  json.begin_array(true);
  for (Index i : indices) json.whole(i);
  json.end_array();
}

void write_axis(JsonWriter& json, const Axis& axis, Index count) {
  json.begin_object();
  write_text(json, "name", axis.name);
  write_text(json, "extent", axis.extent);
  json.name("count");
  json.whole(count);
  if (!axis.labels.empty()) {
    json.name("labels");
    json.begin_array(true);
    for (const std::string& label : axis.labels) json.string(label);
    json.end_array();
  }
  json.end_object();
}

// The cells that a matrix of flags marks, as [head, row, column] of the whole matrix.
void write_flags(JsonWriter& json, std::string_view name, const Matrix& m, const std::vector<std::uint8_t>& flags) {
  if (flags.empty()) return;
  json.name(name);
  json.begin_array();
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index r = 0; r < m.stored_rows(); ++r)
      for (Index c = 0; c < m.stored_columns(); ++c) {
        if (flags[m.place(h, r, c)] == 0) continue;
        json.begin_array(true);
        json.whole(h);
        json.whole(m.kept_rows.empty() ? r : m.kept_rows[static_cast<std::size_t>(r)]);
        json.whole(m.kept_columns.empty() ? c : m.kept_columns[static_cast<std::size_t>(c)]);
        json.end_array();
      }
  json.end_array();
}

void write_cell(JsonWriter& json, const CellWork& work, const Cell& cell) {
  json.name("cell");
  json.begin_object();
  json.name("place");
  json.begin_array(true);
  json.whole(cell.head);
  json.whole(cell.row);
  json.whole(cell.column);
  json.end_array();
  write_text(json, "what", work.what);
  json.name("result");
  json.number(work.result);
  if (!work.terms.empty()) {
    json.name("terms");
    json.begin_array();
    for (const CellTerm& term : work.terms) {
      json.begin_object();
      write_text(json, "label", term.label);
      json.name("factors");
      json.begin_array(true);
      for (double x : term.factors) json.number(x);
      json.end_array();
      json.name("product");
      json.number(term.product);
      json.name("sum_so_far");
      json.number(term.partial_sum);
      json.end_object();
    }
    json.end_array();
  }
  for (const NamedText& line : work.lines) write_text(json, line.name, line.text);
  json.end_object();
}

bool has_cell(const Matrix& m, const Cell& cell) {
  return cell.row >= 0 && cell.row < m.num_rows && cell.column >= 0 && cell.column < m.num_columns && cell.head >= 0 &&
         cell.head < m.num_heads;
}

void write_step(JsonWriter& json, const Explanation& explanation, const Step& step, std::size_t index,
                const JsonOptions& options) {
  const Matrix& m = step.result;
  json.begin_object();
  json.name("index");
  json.whole(static_cast<Index>(index));
  write_text(json, "name", step.name);
  write_text(json, "term", step.term);
  if (!step.called.empty()) write_text(json, "called", step.called);
  write_text(json, "operation", step.request.operation);
  write_text(json, "symbol", step.symbol);
  write_text(json, "equation", step.equation);
  json.name("library");
  json.boolean(!step.not_the_library);
  if (!step.finding.empty()) write_text(json, "finding", step.finding);
  json.name("operands");
  json.begin_array(true);
  for (const Operand& operand : step.operands) json.string(operand.name);
  json.end_array();
  json.name("shape");
  json.begin_array(true);
  if (m.has_heads) json.whole(m.num_heads);
  json.whole(m.num_rows);
  json.whole(m.num_columns);
  json.end_array();
  json.name("rows");
  write_axis(json, step.row_axis, m.num_rows);
  json.name("columns");
  write_axis(json, step.column_axis, m.num_columns);
  write_indices(json, "kept_rows", m.kept_rows);
  write_indices(json, "kept_columns", m.kept_columns);
  json.name("result");
  json.matrix(m);
  write_flags(json, "hidden", m, m.hidden);
  if (step.sums_to_one != SumAxis::none) {
    write_text(json, "sums_to_one", step.sums_to_one == SumAxis::row ? "row" : "column");
    json.name("sums");
    json.begin_array(true);
    for (double sum : step.sums) json.number(sum);
    json.end_array();
  }
  write_texts(json, "exact", step.exact);
  if (step.request.expected && !step.differs.empty()) {
    const Expected& expected = *step.request.expected;
    json.name("document");
    json.begin_object();
    json.name("numbers");
    json.matrix(expected.numbers);
    json.name(expected.significant ? "significant_digits" : "digits");
    json.whole(expected.digits);
    write_indices(json, "rows", expected.rows);
    write_flags(json, "differs", m, step.differs);
    json.end_object();
  }
  if (!step.variants.empty()) {
    json.name("compare");
    json.begin_array();
    for (const VariantResult& variant : step.variants) {
      json.begin_object();
      write_text(json, "label", variant.label);
      json.name("result");
      json.matrix(variant.result);
      json.end_object();
    }
    json.end_array();
  }
  write_texts(json, "notes", step.notes);
  write_texts(json, "slips", step.slips);
  if (options.cell && has_cell(m, *options.cell))
    write_cell(json, unfold_cell(explanation, step, *options.cell, 6), *options.cell);
  json.end_object();
}

bool is_chosen(const Step& step, std::size_t index, const std::string& wanted) {
  return wanted.empty() || step.name == wanted || std::to_string(index) == wanted;
}

}  // namespace

std::string render_json(const Explanation& explanation, const JsonOptions& options) {
  JsonWriter json(explanation.settings.dtype);
  json.begin_object();
  write_text(json, "schema", "regard/1");
  write_text(json, "command", options.command);
  write_text(json, "version", version());
  write_text(json, "instruction_set", active_instruction_set());
  write_text(json, "dtype", explanation.settings.dtype == NumberType::f32 ? "f32" : "f64");
  if (!explanation.title.empty()) write_text(json, "title", explanation.title);
  if (!explanation.citation.empty()) write_text(json, "citation", explanation.citation);
  if (!explanation.finding.empty()) write_text(json, "finding", explanation.finding);
  write_texts(json, "settings", explanation.settings_text);
  if (explanation.focus) {
    json.name("token");
    json.whole(*explanation.focus);
  }
  json.name("tokens");
  json.begin_array(true);
  for (const std::string& token : explanation.tokens) json.string(token);
  json.end_array();
  json.name("steps");
  json.begin_array();
  bool any = false;
  bool any_cell = !options.cell;
  for (std::size_t i = 0; i < explanation.steps.size(); ++i) {
    const Step& step = explanation.steps[i];
    if (!is_chosen(step, i, options.step)) continue;
    any = true;
    any_cell = any_cell || has_cell(step.result, *options.cell);
    write_step(json, explanation, step, i, options);
  }
  // The text renderer says which steps and cells there are; both refuse alike.
  if (!any || !any_cell) (void)render_text_pages(explanation, TextOptions{.step = options.step, .cell = options.cell});
  json.end_array();
  write_texts(json, "slips", explanation.slips);
  json.end_object();
  return json.take();
}

}  // namespace v0
}  // namespace regard
