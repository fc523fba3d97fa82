// SPDX-License-Identifier: Apache-2.0
//
// An explanation as JSON: the content of the text in full, and how it was computed. docs/guide/own-matrices.md lists
// the fields.
// Read next: json_style.h.
#include <fmt/format.h>

#include <algorithm>

#include "chosen_steps.h"
#include "explain/report/json_style.h"

namespace regard::inline v0 {
namespace {

void write_axis(JsonWriter& json, const Axis& axis, Index count) {
  json.begin_object();
  json.string("name", axis.name);
  json.string("extent", axis.extent);
  json.whole("count", count);
  json.strings("labels", axis.labels, JsonLayout::one_line);
  json.end_object();
}

// The cells whose flag is set, as [head, row, column] of the whole matrix.
void write_flags(JsonWriter& json, std::string_view name, const Matrix& m, const std::vector<std::uint8_t>& flags) {
  if (flags.empty()) return;
  json.name(name);
  json.begin_array();
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index r = 0; r < m.stored_rows(); ++r)
      for (Index c = 0; c < m.stored_columns(); ++c) {
        if (flags[m.index(h, r, c)] == 0) continue;
        json.begin_array(JsonLayout::one_line);
        json.whole(h);
        json.whole(m.kept_rows.empty() ? r : m.kept_rows[static_cast<std::size_t>(r)]);
        json.whole(m.kept_columns.empty() ? c : m.kept_columns[static_cast<std::size_t>(c)]);
        json.end_array();
      }
  json.end_array();
}

void write_cell(JsonWriter& json, const CellDerivation& work, const Cell& cell) {
  json.name("cell");
  json.begin_object();
  json.indices("cell", {cell.head, cell.row, cell.column});
  json.string("what", work.what);
  json.number("result", work.result);
  if (!work.terms.empty()) {
    json.objects("terms", work.terms, [&](const CellTerm& term) {
      json.string("label", term.label);
      json.numbers("factors", term.factors);
      json.number("product", term.product);
      json.number("sum_so_far", term.partial_sum);
    });
  }
  for (const NamedText& line : work.lines) json.string(line.name, line.text);
  json.end_object();
}

void write_sample(JsonWriter& json, std::string_view name, const ScoreSample& sample) {
  json.name(name);
  json.begin_object();
  json.number("low", sample.low);
  json.number("high", sample.high);
  json.indices("counts", sample.counts);
  json.whole("below", sample.below);
  json.whole("above", sample.above);
  json.numbers("ranked_weights", sample.ranked_weights);
  json.end_object();
}

void write_step(JsonWriter& json, const Explanation& explanation, const Step& step, std::size_t index,
                const JsonOptions& options) {
  const Matrix& m = step.result;
  json.begin_object();
  json.whole("index", static_cast<Index>(index));
  json.string("name", step.name);
  json.string("term", step.term);
  if (!step.document_name.empty()) json.string("document_name", step.document_name);
  json.string("operation", operation_name(step.request.operation));
  json.string("symbol", step.symbol);
  json.string("equation", step.equation);
  json.boolean("library", !step.outside_library);
  if (!step.finding.empty()) json.string("finding", step.finding);
  json.name("operands");
  json.begin_array(JsonLayout::one_line);
  for (const Operand& operand : step.operands) json.string(operand.name);
  json.end_array();
  json.name("shape");
  json.begin_array(JsonLayout::one_line);
  if (m.has_heads) json.whole(m.num_heads);
  json.whole(m.num_rows);
  json.whole(m.num_columns);
  json.end_array();
  json.name("rows");
  write_axis(json, step.row_axis, m.num_rows);
  json.name("columns");
  write_axis(json, step.column_axis, m.num_columns);
  json.indices("kept_rows", m.kept_rows);
  json.indices("kept_columns", m.kept_columns);
  json.matrix("result", m);
  write_flags(json, "hidden", m, m.hidden);
  if (step.sums_to_one != SumAxis::none) {
    json.string("sums_to_one", step.sums_to_one == SumAxis::row ? "row" : "column");
    json.numbers("sums", step.sums);
  }
  json.strings("exact", step.exact);
  if (step.request.expected && !step.differs.empty()) {
    const Expected& expected = *step.request.expected;
    json.name("document");
    json.begin_object();
    json.matrix("numbers", expected.numbers);
    json.whole(expected.significant ? "significant_digits" : "digits", expected.digits);
    json.indices("rows", expected.rows);
    json.indices("columns", expected.columns);
    write_flags(json, "differs", m, step.differs);
    json.end_object();
  }
  if (!step.variants.empty()) {
    json.objects("compare", step.variants, [&](const VariantResult& variant) {
      json.string("label", variant.label);
      json.matrix("result", variant.result);
    });
  }
  if (!step.pictures.empty()) {
    json.objects("pictures", step.pictures, [&](const ScalePicture& picture) {
      json.whole("head_size", picture.head_size);
      write_sample(json, "plain", picture.plain);
      write_sample(json, "scaled", picture.scaled);
    });
  }
  json.strings("notes", step.notes);
  json.strings("errata", step.errata);
  if (options.cell && has_cell(m, *options.cell))
    write_cell(json, expand_cell(explanation, step, *options.cell, 6), *options.cell);
  json.end_object();
}

}  // namespace

std::string render_json(const Explanation& explanation, const JsonOptions& options, const std::stop_token& stop) {
  JsonWriter json(json_style(explanation.settings.dtype), stop);
  json.begin_object();
  json.source(options.command);
  json.string("dtype", explanation.settings.dtype == ElementType::float32 ? "f32" : "f64");
  if (!explanation.lesson.empty()) json.string("lesson", explanation.lesson);
  if (!explanation.title.empty()) json.string("title", explanation.title);
  if (!explanation.citation.empty()) json.string("citation", explanation.citation);
  if (!explanation.finding.empty()) json.string("finding", explanation.finding);
  json.strings("settings", explanation.settings_text);
  if (explanation.focus) {
    json.whole("query", *explanation.focus);
  }
  json.name("tokens");
  json.begin_array(JsonLayout::one_line);
  for (const std::string& token : explanation.tokens) json.string(token);
  json.end_array();
  json.name("steps");
  json.begin_array();
  for (const std::size_t i : chosen_steps(explanation, options.step, options.cell))
    write_step(json, explanation, explanation.steps[i], i, options);
  json.end_array();
  json.strings("errata", explanation.errata);
  json.end_object();
  return json.take();
}

}  // namespace regard::inline v0
