// SPDX-License-Identifier: Apache-2.0
//
// A sentence's analysis as a page: every head of every layer, from any word, rebuilt in the page from query, key and
// value; and a comparison, by itself or within such a page.
//
//     SentenceAnalysis ── render_sentence_html() ──▶ one HTML file, which asks no host for anything
//     Comparison    ── render_compare_html()  ──▶ likewise
//
// 64 tokens of all-MiniLM-L6-v2 take about 3 MB, 512 about 20. Read next: docs/page.md,
// src/explain/sentence/sentence_html.cpp.
#pragma once

#include <string>
#include <string_view>

#include "regard/explain/compare.h"
#include "regard/explain/sentence_report.h"

namespace regard::inline v0 {

struct SentenceHtmlOptions {
  std::string command{};
  const Comparison* comparison =
      nullptr;  // the same word in other sentences: shown between the word's path and the head
};
// The model must be the one that the analysis was made with. Throws Cancelled where runtime.stop is requested.
REGARD_EXPORT std::string render_sentence_html(const SentenceModel& model, const SentenceAnalysis& analysis,
                                               const SentenceHtmlOptions& options, const Runtime& runtime = {});

// One word in several sentences, as a page: cosines from layer to layer with floor and control, and the heads.
// Throws Cancelled likewise.
REGARD_EXPORT std::string render_compare_html(const Comparison& comparison, std::string_view command,
                                              const std::stop_token& stop = {});

}  // namespace regard::inline v0
