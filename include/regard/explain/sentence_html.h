// SPDX-License-Identifier: Apache-2.0
/// @file
/// Renders the analysis of a sentence as an HTML page: every head of every layer, for any query word. Also renders a
/// comparison, as a separate page or within such a page.
///
/// @verbatim
///     SentenceAnalysis ── render_sentence_html() ──▶ one HTML file, which makes no network requests
///     Comparison       ── render_compare_html()  ──▶ one HTML file, which makes no network requests
/// @endverbatim
///
/// The page's script recomputes rows of weights from query, key and value. With all-MiniLM-L6-v2, a page of 64 tokens
/// is about 3 MB, and a page of 512 tokens about 20 MB.
///
/// Read next: docs/reference/page.md, src/explain/sentence/sentence_html.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/compare.h"
#include "regard/explain/sentence_report.h"
#include "regard/explain/steps.h"

namespace regard::inline v0 {

/// Options for render_sentence_html().
struct SentenceHtmlOptions {
  std::string command{};  ///< The command line as typed.
  /// A comparison of the same word in other sentences, shown below "What it becomes", or nullptr. It must stay
  /// valid until the call returns.
  const Comparison* comparison = nullptr;
};
/// Renders the page of a sentence.
///
/// @param model     The model with which the analysis was computed.
/// @param analysis  The analysis.
/// @param options   Options for the page.
/// @param runtime   Threads, scratch memory and cancellation.
/// @return The HTML text.
/// @throws Cancelled  if a stop is requested.
///
/// @par Example
/// @code{.cpp}
/// const SentenceAnalysis analysis = analyze_sentence(model, "he sat on the bank of the river");
/// const std::string page = render_sentence_html(model, analysis, {});
/// @endcode
REGARD_EXPORT std::string render_sentence_html(const SentenceModel& model, const SentenceAnalysis& analysis,
                                               const SentenceHtmlOptions& options, const Runtime& runtime = {});

/// Options for sentence_page_data().
struct SentencePageOptions {
  std::string command{};  ///< The command line as typed.
  /// Whether to write the matrix from which contributions are computed. It depends only on the model.
  bool gram = true;
  /// Whether to write the sums that yield the elements of q, k and v, for the head and the words of the analysis.
  bool sums = true;
  /// If it is not nullptr, receives the bytes of the arrays. Instead of base64, the data then contain "@" and the index
  /// of the array in this list.
  std::vector<std::vector<std::byte>>* arrays = nullptr;
};
/// Renders the data of a page in the form that its script reads; docs/reference/page.md describes this form.
///
/// @param model     The model with which the analysis was computed.
/// @param analysis  The analysis.
/// @param options   Content options.
/// @param runtime   Threads, scratch memory and cancellation.
/// @return JSON strings by name: "explanation", as render_sentence_json() writes it, and "page".
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::vector<NamedText> sentence_page_data(const SentenceModel& model, const SentenceAnalysis& analysis,
                                                        const SentencePageOptions& options = {},
                                                        const Runtime& runtime = {});

/// Renders the page of one word in several sentences: its cosine similarities at each layer, with the floor and the
/// controls, and the share of each head in the difference.
///
/// @param comparison  The comparison.
/// @param command     The command line as typed.
/// @param stop        Stop token.
/// @return The HTML text.
/// @throws Cancelled  if a stop is requested.
REGARD_EXPORT std::string render_compare_html(const Comparison& comparison, std::string_view command,
                                              const std::stop_token& stop = {});

}  // namespace regard::inline v0
