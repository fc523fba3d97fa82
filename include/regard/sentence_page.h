// SPDX-License-Identifier: Apache-2.0
//
// A sentence's story as a page: every head of every layer, from any word, rebuilt in the page from query, key and
// value.
//
//     SentenceStory ── render_sentence_html() ──▶ one HTML file, which asks no host for anything
//
// 64 tokens of all-MiniLM-L6-v2 take about 3 MB, 512 about 20. Read next: docs/page.md, src/explain/sentence_page.cpp.
#pragma once

#include <string>

#include "regard/sentence_story.h"

namespace regard {
inline namespace v0 {

struct SentenceHtmlOptions {
  std::string command{};
};
// The model must be the one that the story was made with.
REGARD_EXPORT std::string render_sentence_html(const SentenceModel& model, const SentenceStory& story,
                                               const SentenceHtmlOptions& options);

}  // namespace v0
}  // namespace regard
