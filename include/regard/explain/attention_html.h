// SPDX-License-Identifier: Apache-2.0
//
// Attention over arrays of one's own as a page: any row as a sum, what it becomes, the whole head.
//
//     query, key, value ── attention_forward() ──▶ context, row_max, row_sum
//            └──────────────────────┬────────────────────────┘
//                        render_attention_html() ──▶ one HTML file, which asks no host for anything
//
// Scores and weights on the page are the kernel's, in its type; only q · k is built in the page, in double.
// Read next: docs/page.md, src/explain/arrays/attention_html.cpp, web/arrays.js.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "regard/attention.h"
#include "regard/explain/inspection_report.h"
#include "regard/export.h"

namespace regard::inline v0 {

// Heads of any length: what is said of them, and their maps, with strips joined so that all of them take 3 MiB at most.
struct AttentionHtmlInspection {
  Inspection heads;
  std::vector<Index> row_edges{}, column_edges{};  // where the strips begin, and the end
  std::vector<float> maps{};                       // (B · H, rows, columns): means of weights
};

// pooled_map (B, H, Ga, Gb) holds means, as attention_columns wrote it for the same call as the masses of inspection.
template <class T>
REGARD_EXPORT AttentionHtmlInspection
attention_html_inspection(const Inspection& inspection, std::type_identity_t<TensorView<const T, 4>> pooled_map);

struct AttentionHtmlOptions {
  std::vector<RowRange> rows{};  // the queries whose rows the page holds, each once; empty: all
  std::string command{};
  std::optional<Index> focus{};             // the query that the page opens with, one of rows; else it chooses
  std::vector<std::string> query_tokens{};  // L words, or none: queries and keys are called by their numbers
  std::vector<std::string> key_tokens{};    // S words, or none
  const AttentionHtmlInspection* inspection = nullptr;
  bool only_inspection = false;  // no row is shown, and nothing of value and computed is read
};

// The most that a page may take.
inline constexpr double kMaxAttentionHtmlBytes = 24.0 * (1 << 20);

// About how many bytes the page will take, from shapes alone: 4/3 of the arrays that it carries.
//   query (B, H, L, D), key (B, Hkv, S, D), value (B, Hkv, S, Dv); rows as in AttentionHtmlOptions;
//   has_additions: a bias or ALiBi slopes are given.
template <class T>
REGARD_EXPORT double attention_html_bytes(const std::array<Index, 4>& query, const std::array<Index, 4>& key,
                                          const std::array<Index, 4>& value, const std::vector<RowRange>& rows,
                                          bool has_additions);

// query, key, value and options as in the call of attention_forward that wrote `computed`: its context, row_max and
// row_sum, and with sinks its sink_weights, are read; scores and weights of the rows are attention_weights'.
// Throws std::invalid_argument, naming what is wrong: only_inspection without inspection, a row beyond L, no row or no
// key to show, tokens of another number, a result that is missing, a page of more than kMaxAttentionHtmlBytes;
// otherwise as attention_weights.
template <class T>
REGARD_EXPORT std::string render_attention_html(std::type_identity_t<TensorView<const T, 4>> query,
                                                std::type_identity_t<TensorView<const T, 4>> key,
                                                std::type_identity_t<TensorView<const T, 4>> value,
                                                const AttentionOutputs& computed, const AttentionOptions& options,
                                                const AttentionHtmlOptions& html, const Runtime& runtime = {});

}  // namespace regard::inline v0
