// SPDX-License-Identifier: Apache-2.0
//
// An explanation as a page. The page reads two JSON texts: "explanation", the output of --json, and "page", data for
// drawing only, such as the operands of each step.
//
//     matrices    those that are not the result of a step: parameters, row_max, row_sum
//     steps       same indices as in "explanation": how numbers are printed, operands, factor, document's figures
//
// Read next: html_page.h, docs/reference/page.md, web/explanation.js.
#include <algorithm>
#include <cmath>

#include "expansion.h"
#include "explain/report/html_page.h"
#include "explain/report/json_style.h"
#include "explain/report/terminal.h"
#include "operations.h"

namespace regard::inline v0 {
namespace {

bool same_matrix(const Matrix& a, const Matrix& b) {
  return a.num_heads == b.num_heads && a.num_rows == b.num_rows && a.num_columns == b.num_columns &&
         a.has_heads == b.has_heads && a.kept_rows == b.kept_rows && a.kept_columns == b.kept_columns &&
         a.hidden == b.hidden && a.numbers.size() == b.numbers.size() &&
         std::equal(a.numbers.begin(), a.numbers.end(), b.numbers.begin(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

std::string_view rule_name(const Scale& scale) {
  switch (scale.rule) {
    case ScaleRule::none:
      return "none";
    case ScaleRule::sqrt:
      return "sqrt";
    case ScaleRule::number:
      return "number";
    case ScaleRule::floor_half:
      break;
  }
  return "floor_half";
}

class PageData {
 public:
  PageData(const Explanation& explanation, const HtmlOptions& options, const std::stop_token& stop)
      : explanation_(explanation), options_(options), json_(json_style(ElementType::float64), stop) {}

  std::string write() {
    json_.begin_object();
    json_.string("schema", "regard/1");
    json_.string("subject", "explanation");
    json_.string("layout", explanation_.settings.layout == Layout::columns ? "columns" : "rows");
    if (explanation_.settings.digits) json_.whole("digits", *explanation_.settings.digits);
    json_.name("key_tokens");
    json_.begin_array(JsonLayout::one_line);
    for (const std::string& token : explanation_.key_tokens) json_.string(token);
    json_.end_array();
    json_.name("steps");
    json_.begin_array();
    for (std::size_t i = 0; i < explanation_.steps.size(); ++i) step(i);
    json_.end_array();
    json_.objects("matrices", matrices_, [&](const Matrix* m) { matrix(*m); });
    json_.end_object();
    return json_.take();
  }

 private:
  void step(std::size_t index) {
    const Step& s = explanation_.steps[index];
    json_.begin_object();
    style("style", step_style(explanation_, s, s.result, options_.digits, true));
    json_.number("factor", s.factor);
    json_.whole("causal_offset", s.causal_offset);
    json_.string("scale", rule_name(s.request.scale.value_or(explanation_.settings.scale)));
    operands("requested_operands", s.requested_operands, index);
    operands("operands", s.operands, index);
    // With dtype f32 the JSON of a result may have fewer digits than a step computed in double.
    if (explanation_.settings.dtype == ElementType::float32 &&
        std::any_of(s.result.numbers.begin(), s.result.numbers.end(),
                    [](double x) { return std::isfinite(x) && static_cast<double>(static_cast<float>(x)) != x; }))
      json_.whole("exact_result", index_of(s.result));
    if (!s.variants.empty()) {
      json_.objects("variants", s.variants, [&](const VariantResult& variant) {
        style("style", step_style(explanation_, s, variant.result, options_.digits, true));
        json_.whole("matrix", index_of(variant.result));
      });
    }
    document(s);
    works(s, step_style(explanation_, s, s.result, options_.digits, true).digits);
    json_.end_object();
  }

  // How each cell was computed, in the order of the numbers; only for small steps.
  void works(const Step& s, int digits) {
    constexpr std::size_t kMaxTerms = 20000;
    const Matrix& m = s.result;
    if (m.numbers.size() > 4096 || !m.kept_rows.empty() || !m.kept_columns.empty()) return;
    if (operation_info(s.request.operation).expand == nullptr) return;
    std::vector<CellDerivation> all;
    std::size_t num_terms = 0;
    for (Index h = 0; h < m.num_heads; ++h)
      for (Index r = 0; r < m.num_rows; ++r)
        for (Index c = 0; c < m.num_columns; ++c) {
          all.push_back(expand_cell(explanation_, s, Cell{.row = r, .column = c, .head = h}, digits));
          num_terms += all.back().terms.size() + 1;
          if (num_terms > kMaxTerms) return;
        }
    json_.objects("works", all, [&](const CellDerivation& work) {
      json_.name("terms");
      json_.begin_array(JsonLayout::one_line);
      for (const CellTerm& one : work.terms) term(one);
      json_.end_array();
      json_.name("lines");
      json_.begin_array(JsonLayout::one_line);
      for (const NamedText& line : work.lines) {
        json_.begin_array(JsonLayout::one_line);
        json_.string(line.name);
        json_.string(line.text);
        json_.end_array();
      }
      json_.end_array();
    });
  }
  void term(const CellTerm& one) {
    json_.begin_array(JsonLayout::one_line);
    json_.string(one.label);
    double product = 1.0;
    json_.begin_array(JsonLayout::one_line);
    for (double x : one.factors) {
      json_.number(x);
      product *= x;
    }
    json_.end_array();
    if (product != one.product) json_.number(one.product);
    json_.end_array();
  }

  void style(std::string_view name, const NumberStyle& style) {
    json_.name(name);
    json_.begin_object();
    json_.whole("digits", style.digits);
    json_.boolean("scientific", style.scientific);
    json_.end_object();
  }

  // Each operand: its name, and its numbers as the result of an earlier step or one of `matrices`.
  void operands(std::string_view name, const std::vector<Operand>& all, std::size_t before) {
    json_.objects(name, all, [&](const Operand& operand) {
      json_.string("name", operand.name);
      std::size_t earlier = before;
      while (earlier > 0 && !same_matrix(explanation_.steps[earlier - 1].result, *operand.matrix)) --earlier;
      if (earlier > 0) {
        json_.whole("step", static_cast<Index>(earlier - 1));
      } else {
        json_.whole("matrix", index_of(*operand.matrix));
      }
    });
  }

  Index index_of(const Matrix& m) {
    const auto same =
        std::find_if(matrices_.begin(), matrices_.end(), [&](const Matrix* other) { return same_matrix(*other, m); });
    if (same != matrices_.end()) return same - matrices_.begin();
    matrices_.push_back(&m);
    return static_cast<Index>(matrices_.size()) - 1;
  }

  void matrix(const Matrix& m) {
    json_.whole("heads", m.num_heads);
    json_.whole("rows", m.num_rows);
    json_.whole("columns", m.num_columns);
    json_.boolean("has_heads", m.has_heads);
    json_.indices("kept_rows", m.kept_rows);
    json_.indices("kept_columns", m.kept_columns);
    json_.name("numbers");
    json_.begin_array(JsonLayout::one_line);
    for (double x : m.numbers) json_.number(x);
    json_.end_array();
    std::vector<Index> hidden;
    for (std::size_t i = 0; i < m.hidden.size(); ++i)
      if (m.hidden[i] != 0) hidden.push_back(static_cast<Index>(i));
    json_.indices("hidden", hidden);
  }

  // Where our figures and the document's differ: [head, row, column, ours, theirs], with the document's digits.
  void document(const Step& s) {
    if (s.differs.empty() || !s.request.expected) return;
    const Expected& expected = *s.request.expected;
    const Matrix& m = s.result;
    json_.name("document");
    json_.begin_array();
    for_each_printed(expected, m, [&](std::size_t i, double theirs, const Cell& cell) {
      if (s.differs[i] == 0) return;
      json_.begin_array(JsonLayout::one_line);
      json_.whole(cell.head);
      json_.whole(cell.row);
      json_.whole(cell.column);
      json_.string(document_number(m.numbers[i], expected, true));
      json_.string(document_number(theirs, expected, true));
      json_.end_array();
    });
    json_.end_array();
  }

  const Explanation& explanation_;
  const HtmlOptions& options_;
  JsonWriter json_;
  std::vector<const Matrix*> matrices_;
};

}  // namespace

std::vector<NamedText> page_data(const Explanation& explanation, const HtmlOptions& options,
                                 const std::stop_token& stop) {
  return {{"explanation", render_json(explanation, JsonOptions{.command = options.command}, stop)},
          {"page", PageData(explanation, options, stop).write()}};
}

std::string render_html(const Explanation& explanation, const HtmlOptions& options, const std::stop_token& stop) {
  std::string title = explanation.title.empty() ? "Attention, step by step" : explanation.title;
  if (!explanation.lesson.empty()) title = explanation.lesson + ": " + title;
  return page_html(title, page_data(explanation, options, stop));
}

}  // namespace regard::inline v0
