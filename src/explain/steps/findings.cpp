// SPDX-License-Identifier: Apache-2.0
//
// Findings: the largest weight of a row, the keys that have it, and the uniform weight.
// Read next: steps_text.cpp, which prints them.
#include "findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "expansion.h"
#include "explain/report/terminal.h"

namespace regard::inline v0 {
namespace {

bool columns(const Explanation& explanation) { return explanation.settings.layout == Layout::columns; }

QueryRow row_of(const Matrix& m, bool by_columns, Index head, Index stored) {
  QueryRow row{head, stored, {}, {}};
  const std::vector<Index>& kept = by_columns ? m.kept_columns : m.kept_rows;
  if (!kept.empty()) row.query = kept[static_cast<std::size_t>(stored)];
  const Index keys = by_columns ? m.stored_rows() : m.stored_columns();
  for (Index j = 0; j < keys; ++j) {
    const std::size_t i = by_columns ? m.index(head, j, stored) : m.index(head, stored, j);
    row.numbers.push_back(m.numbers[i]);
    row.hidden.push_back(m.hidden.empty() ? 0 : m.hidden[i]);
  }
  return row;
}

std::size_t seen(const QueryRow& row) {
  return static_cast<std::size_t>(std::count(row.hidden.begin(), row.hidden.end(), 0));
}

double largest(const QueryRow& row) {
  double most = -std::numeric_limits<double>::infinity();
  for (std::size_t j = 0; j < row.numbers.size(); ++j)
    if (row.hidden[j] == 0 && row.numbers[j] > most) most = row.numbers[j];
  return most;
}

std::string label_of(const Axis& axis, Index index) {
  if (static_cast<std::size_t>(index) < axis.labels.size())
    return fmt::format("“{}”", truncate_to_width(axis.labels[static_cast<std::size_t>(index)], 24, true));
  return fmt::format("{} {}", axis.name.empty() ? "row" : axis.name, index);
}

// "I and coding", "I, love and coding", "17 keys equally".
std::string list_of(const Axis& axis, const std::vector<Index>& indices) {
  constexpr std::size_t kMaxNames = 4;
  if (indices.size() > kMaxNames)
    return fmt::format("{} {}s equally", indices.size(), axis.name.empty() ? "key" : axis.name);
  std::vector<std::string> names;
  for (const Index index : indices) names.push_back(label_of(axis, index));
  return and_list(names);
}

}  // namespace

std::optional<QueryRow> row_for_finding(const Step& step, const Explanation& explanation) {
  const Matrix& m = step.result;
  const bool by_columns = columns(explanation);
  const Index queries = by_columns ? m.stored_columns() : m.stored_rows();
  const Index keys = by_columns ? m.stored_rows() : m.stored_columns();
  if (queries == 0 || keys == 0) return std::nullopt;
  Index chosen = -1;
  if (explanation.focus && *explanation.focus < (by_columns ? m.num_columns : m.num_rows))
    chosen = stored_index(by_columns ? m.kept_columns : m.kept_rows, *explanation.focus);
  std::optional<QueryRow> best;
  double best_gain = -1.0;
  for (Index h = 0; h < m.num_heads; ++h)
    for (Index i = 0; i < queries; ++i) {
      if (chosen >= 0 && i != chosen) continue;
      QueryRow row = row_of(m, by_columns, h, i);
      // A query with one visible key gives it all its attention, which is not informative.
      const double gain = seen(row) > 1 ? largest(row) - 1.0 / static_cast<double>(seen(row)) : -0.5;
      if (gain > best_gain || !best) {
        best_gain = gain;
        best = std::move(row);
      }
    }
  return best;
}

std::string finding_of(const Step& step, const Explanation& explanation) {
  const bool weights = step.sums_to_one != SumAxis::none;
  if (!weights && step.request.operation != Operation::scores) return "";
  if (!weights && !explanation.focus) return "";
  const std::optional<QueryRow> row = row_for_finding(step, explanation);
  if (!row || seen(*row) == 0) return "";
  const Axis& query_axis = columns(explanation) ? step.column_axis : step.row_axis;
  const Axis& key_axis = columns(explanation) ? step.row_axis : step.column_axis;
  const double most = largest(*row);
  if (!std::isfinite(most)) return "";
  std::vector<Index> winners;
  for (std::size_t j = 0; j < row->numbers.size(); ++j)
    if (row->hidden[j] == 0 && row->numbers[j] == most) winners.push_back(static_cast<Index>(j));
  const NumberStyle style =
      style_for(Matrix{.num_rows = 1, .num_columns = 1, .numbers = {most}}, explanation.settings.digits, true);
  const std::string each = winners.size() > 1 ? " each" : "";
  const std::string where = step.result.has_heads ? fmt::format("In head {}, ", row->head) : "";
  if (!weights)
    return fmt::format("{}{} matches {} best: {}{}", where, label_of(query_axis, row->query),
                       list_of(key_axis, winners), styled_number(most, style), each);
  if (seen(*row) == 1)
    return fmt::format("{}{} attends only to {}", where, label_of(query_axis, row->query), list_of(key_axis, winners));
  if (step.request.operation == Operation::probabilities)
    return fmt::format("After {}, the most probable next word is {}: {}", label_of(query_axis, row->query),
                       list_of(key_axis, winners), styled_number(most, style));
  if (winners.size() == seen(*row))
    return fmt::format("{}{} attends uniformly to all visible keys: {} each", where, label_of(query_axis, row->query),
                       styled_number(most, style));
  const NumberStyle share_style{.digits = std::max(style.digits, 2), .unicode = true};
  return fmt::format("{}{} attends most to {}: {}{} (uniform: {})", where, label_of(query_axis, row->query),
                     list_of(key_axis, winners), styled_number(most, share_style), each,
                     styled_number(1.0 / static_cast<double>(seen(*row)), share_style));
}

}  // namespace regard::inline v0
