// SPDX-License-Identifier: Apache-2.0
//
// Implements explain_long.h. Read next: attend_inspect.cpp, regard/explain/attention_html.h.
#include "explain_long.h"

#include <algorithm>
#include <string_view>

#include "attend_inspect.h"
#include "progress.h"
#include "regard/explain/attention_html.h"

namespace regard::program {
namespace {

constexpr Index kMaxRows = 16;  // shown in full in addition to the maps

const Matrix* find(const ExplainInput& input, std::string_view name) {
  for (const NamedMatrix& named : input.matrices) {
    if (named.name == name) return &named.matrix;
  }
  return nullptr;
}

// The number of tokens in X, Q or K.
Index num_tokens(const Matrix& matrix, Layout layout) {
  return layout == Layout::rows ? matrix.num_rows : matrix.num_columns;
}

// The matrix with this name in the steps, as (1, H, tokens, D).
template <class T>
Tensor<T, 4> heads_of(const Explanation& explanation, std::string_view name) {
  const auto found = std::find_if(explanation.steps.rbegin(), explanation.steps.rend(),
                                  [&](const Step& step) { return step.request.result == name; });
  const Matrix& matrix = found->result;
  const bool columns = explanation.settings.layout == Layout::columns;
  const Index tokens = columns ? matrix.num_columns : matrix.num_rows;
  const Index head_size = columns ? matrix.num_rows : matrix.num_columns;
  Tensor<T, 4> heads({1, matrix.num_heads, tokens, head_size});
  for (Index h = 0; h < matrix.num_heads; ++h) {
    for (Index i = 0; i < tokens; ++i) {
      for (Index d = 0; d < head_size; ++d) {
        const std::size_t index = columns ? matrix.index(h, d, i) : matrix.index(h, i, d);
        heads(0, h, i, d) = static_cast<T>(matrix.numbers[index]);
      }
    }
  }
  return heads;
}

template <class T>
AttentionOptions options_of(const ExplainSettings& settings) {
  AttentionOptions options;
  options.causal = settings.causal.rule != CausalRule::off;
  if (settings.causal.rule == CausalRule::top_left) options.query_offset = QueryAlignment::top_left;
  if (settings.causal.rule == CausalRule::bottom_right) options.query_offset = QueryAlignment::bottom_right;
  if (settings.causal.rule == CausalRule::number) options.query_offset = settings.causal.offset;
  if (settings.scale.rule == ScaleRule::none) options.scale = 1;
  if (settings.scale.rule == ScaleRule::number) options.scale = settings.scale.number;
  return options;
}

// The query in focus, and others at even intervals from the first to the last; fewer if a page would be too large.
template <class T>
std::vector<RowRange> rows_of(const Explanation& explanation, const std::array<const Tensor<T, 4>*, 3>& arrays) {
  const Index num_queries = arrays[0]->shape()[2];
  for (Index count = kMaxRows; count > 0; count /= 2) {
    std::vector<Index> chosen;
    if (explanation.focus) chosen.push_back(*explanation.focus);
    for (Index n = 0; n + 1 < count; ++n) chosen.push_back(n * (num_queries - 1) / std::max<Index>(count - 2, 1));
    if (chosen.empty()) chosen.push_back(num_queries - 1);
    std::sort(chosen.begin(), chosen.end());
    chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
    std::vector<RowRange> rows;
    for (const Index row : chosen) rows.push_back({row, row + 1});
    if (attention_html_bytes<T>(arrays[0]->shape(), arrays[1]->shape(), arrays[2]->shape(), rows, false) <=
        kMaxAttentionHtmlBytes)
      return rows;
  }
  return {};
}

template <class T>
void write_page(const ExplainInput& input, const Explanation& projections, const ExplainText& text) {
  const Tensor<T, 4> query = heads_of<T>(projections, "Q"), key = heads_of<T>(projections, "K"),
                     value = heads_of<T>(projections, "V");
  const AttentionOptions options = options_of<T>(projections.settings);
  const std::array<Index, 3> rows{1, query.shape()[1], query.shape()[2]};
  Tensor<T, 4> context({1, rows[1], rows[2], value.shape()[3]});
  Tensor<T, 3> row_max(rows), row_sum(rows);
  const AttentionOutputs outputs{.context = context.view(), .row_max = row_max.view(), .row_sum = row_sum.view()};
  RowStatistics<T> statistics(rows, 0, false);
  Runtime runtime;
  {
    Progress progress("attention");
    runtime.progress = progress.report();
    attention_with_statistics(query.view(), key.view(), value.view(), outputs, statistics.views(), options, runtime);
  }
  const InspectSettings settings;
  const Inspected<T> inspected =
      inspect<T>(query.view(), key.view(), {.row_max = row_max.view(), .row_sum = row_sum.view()}, settings,
                 inspect_cells(settings, query.shape(), key.shape()), statistics.views(), options, {});
  const AttentionHtmlInspection maps = attention_html_inspection<T>(inspected.heads, inspected.pooled_map.view());
  const std::vector<RowRange> shown = rows_of<T>(projections, {&query, &key, &value});
  const std::string html =
      render_attention_html<T>(query.view(), key.view(), value.view(), outputs, options,
                               {.rows = shown,
                                .command = command_line(),
                                .focus = projections.focus,
                                .query_tokens = input.tokens,
                                .key_tokens = input.key_tokens.empty() ? input.tokens : input.key_tokens,
                                .inspection = &maps,
                                .only_inspection = shown.empty()});
  OutputFiles files;
  const std::size_t file = files.add(text.html);
  files.write(file, html.data(), html.size());
  if (text.json) {
    write_stdout(render_inspection_json(inspected.heads));
  } else if (text.html != "-") {
    write_stdout(render_inspection_text(inspected.heads,
                                        {.width = output_width(), .unicode = terminal_is_unicode(), .one_line = true}) +
                 page_line(text.html, "maps of the heads, and some rows in full"));
  }
  files.commit();
}

}  // namespace

bool has_long_page(const ExplainInput& input) {
  const ExplainSettings& settings = input.settings;
  if (!input.steps.empty() || !input.variants.empty() || settings.softmax != SoftmaxRule::shifted ||
      settings.softmax_base || settings.scale.rule == ScaleRule::floor_half)
    return false;
  const Matrix* const tokens = find(input, "X");
  const Matrix* const query = tokens ? tokens : find(input, "Q");
  const Matrix* const key = tokens ? tokens : find(input, "K");
  if (query == nullptr || key == nullptr) return false;
  const double heads = static_cast<double>(std::max(query->num_heads, settings.heads));
  return heads * static_cast<double>(num_tokens(*query, settings.layout)) *
             static_cast<double>(num_tokens(*key, settings.layout)) >
         static_cast<double>(kMaxKeptElements);
}

void write_long_page(const ExplainInput& input, const ExplainText& text) {
  ExplainInput projections = input;
  projections.steps = standard_steps(input);
  const auto scores = std::find_if(projections.steps.begin(), projections.steps.end(),
                                   [](const StepRequest& step) { return step.operation == Operation::scores; });
  projections.steps.erase(scores, projections.steps.end());
  projections.settings.heads = 1;  // the steps already have the heads
  projections.names.clear();
  projections.expected.clear();
  projections.notes.clear();
  // Used only by the steps that were removed.
  std::erase_if(projections.matrices,
                [](const NamedMatrix& m) { return m.name == "W_output" || m.name == "b_output"; });
  const Explanation explanation = explain(projections, Keep{.all = true});
  if (input.settings.dtype == ElementType::float32) {
    write_page<float>(input, explanation, text);
  } else {
    write_page<double>(input, explanation, text);
  }
}

}  // namespace regard::program
