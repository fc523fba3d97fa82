// SPDX-License-Identifier: Apache-2.0
/// @file
/// Renders attention over the caller's arrays as an HTML page: individual rows as weighted sums, with their context,
/// and entire heads.
///
/// @verbatim
///     query, key, value ── attention_forward() ──▶ context, row_max, row_sum
///            └──────────────────────┬────────────────────────┘
///                        render_attention_html() ──▶ one HTML file, which makes no network requests
/// @endverbatim
///
/// The page shows the scores and weights that the kernel computed, in their element type. The page itself computes only
/// q · k, in double.
///
/// Extents are as in attention.h. docs/reference/page.md describes the page.
///
/// Read next: docs/reference/page.md, src/explain/arrays/attention_html.cpp, web/arrays.js.
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

/// The inspection of all heads, with their pooled maps, for inputs of any length.
///
/// Strips of the maps are merged so that the maps of all heads take up at most 3 MiB and no map has more than 360 rows
/// or columns.
struct AttentionHtmlInspection {
  Inspection heads;                   ///< The report on each head.
  std::vector<Index> row_edges{};     ///< Start of each strip of queries, and the end of the last one.
  std::vector<Index> column_edges{};  ///< Start of each strip of keys, and the end of the last one.
  std::vector<float> maps{};          ///< Mean weight of each cell, (B · H, rows, columns).
};

/// Creates the inspection for a page from a report and the pooled maps.
///
/// @tparam T          float or double, the type of the maps.
/// @param inspection  Report of inspect_heads() for the same call.
/// @param pooled_map  Means of weights, (B, H, Ga, Gb), as attention_columns() wrote them in the call whose key
///                    masses `inspection` was computed from.
/// @return The report and the maps, with strips merged where necessary.
template <class T>
REGARD_EXPORT AttentionHtmlInspection
attention_html_inspection(const Inspection& inspection, std::type_identity_t<TensorView<const T, 4>> pooled_map);

/// Options for render_attention_html().
struct AttentionHtmlOptions {
  std::vector<RowRange> rows{};  ///< Queries whose rows the page contains, each once; if empty, all.
  std::string command{};         ///< The command line as typed.
  /// The query that is selected when the page opens, one of `rows`. If absent, the page selects a query.
  std::optional<Index> focus{};
  std::vector<std::string> query_tokens{};  ///< L words; if empty, queries are named by their indices.
  std::vector<std::string> key_tokens{};    ///< S words; if empty, keys are named by their indices.
  /// The inspection to show, or nullptr. It must stay valid until the call returns.
  const AttentionHtmlInspection* inspection = nullptr;
  /// Whether to show the inspection without any rows. In that case, the elements of value and `computed` are not read.
  bool only_inspection = false;
};

/// Maximum size of a page, in bytes.
inline constexpr double kMaxAttentionHtmlBytes = 24.0 * (1 << 20);

/// Estimates the size of the page from the shapes alone.
///
/// @code{.unparsed}
/// about 200 kB for the script, the style sheet and the text + 4/3 of the size of the arrays that the page contains
/// @endcode
///
/// @tparam T             float or double, the type of the arrays.
/// @param query          Shape of query, (B, H, L, D).
/// @param key            Shape of key, (B, Hkv, S, D).
/// @param value          Shape of value, (B, Hkv, S, Dv).
/// @param rows           As in AttentionHtmlOptions.
/// @param has_additions  Whether a bias or ALiBi slopes are given.
/// @return The size, in bytes.
template <class T>
REGARD_EXPORT double attention_html_bytes(const std::array<Index, 4>& query, const std::array<Index, 4>& key,
                                          const std::array<Index, 4>& value, const std::vector<RowRange>& rows,
                                          bool has_additions);

/// Renders the page of one call to attention_forward().
///
/// query, key, value and options must be those of the call to attention_forward() that wrote `computed`. Scores and
/// weights of the rows are computed by attention_weights().
///
/// @tparam T        float or double, the type of the arrays.
/// @param query     Queries, (B, H, L, D).
/// @param key       Keys, (B, Hkv, S, D).
/// @param value     Values, (B, Hkv, S, Dv).
/// @param computed  Outputs of attention_forward(): context, row_max, row_sum and, with sinks, sink_weights are read.
/// @param options   Options for attention_forward().
/// @param html      Options for the page.
/// @param runtime   Threads, scratch memory and cancellation.
/// @return The HTML text.
/// @throws InvalidArgument  in any of the following cases (the message states which one):
///                          - only_inspection is set without an inspection
///                          - a row is outside 0 … L − 1
///                          - there is no row or no key to show
///                          - the number of tokens differs from the number of queries or keys
///                          - a result is missing, or the shape of value does not match that of key
///                          - the page would exceed kMaxAttentionHtmlBytes
///
/// Also throws the exceptions that attention_weights() throws.
///
/// @par Example
/// @code{.cpp}
/// attention_forward(query, key, value, outputs, options);
/// const std::string page = render_attention_html<float>(query, key, value, outputs, options, {});
/// @endcode
template <class T>
REGARD_EXPORT std::string render_attention_html(std::type_identity_t<TensorView<const T, 4>> query,
                                                std::type_identity_t<TensorView<const T, 4>> key,
                                                std::type_identity_t<TensorView<const T, 4>> value,
                                                const AttentionOutputs& computed, const AttentionOptions& options,
                                                const AttentionHtmlOptions& html, const Runtime& runtime = {});

}  // namespace regard::inline v0
