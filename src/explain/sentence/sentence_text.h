// SPDX-License-Identifier: Apache-2.0
//
// Helpers of a sentence's screen and of its --full report: names of words, numbers in fixed decimals, paragraphs.
// Read next: sentence_text.cpp, sentence_text_full.cpp.
#pragma once

#include <string>
#include <vector>

#include "explain/report/table.h"
#include "explain/report/terminal.h"
#include "regard/explain/sentence_report.h"

namespace regard::inline v0 {

class AnalysisText {
 public:
  AnalysisText(const SentenceAnalysis& analyzed, const SentenceTextOptions& asked, const std::stop_token& asked_stop);

  // ".71"; "-1.20"; "0" for exactly 0, "<.01" for nonzero values that would print as 0.
  std::string number(double x) const { return styled_number(x, style); }
  // "71 %", with two decimal places fewer.
  std::string percent(double share) const;
  // A word as word_names names it, escaped and truncated: river, can#1; word() with its mark: embeddings‡.
  std::string name(Index index, int most = 24) const;
  std::string word(Index index) const;
  // What a row of the table is: "word", or "token" of a decoder; with an s unless count is 1.
  std::string noun(Index count = 1) const;
  // “river”: quoted, followed by its mark; a special token is not quoted.
  std::string quoted(Index index) const;
  // † for a word outside the vocabulary, ‡ for a word of several pieces, or nothing.
  std::string mark(Index index) const;
  std::string piece(Index token) const;
  // A token by itself: its word's name and mark where it is a whole word (the#1), else the piece with the word's mark.
  std::string token(Index token) const;
  // The program's own text, converted for terminals without Unicode.
  std::string own(std::string_view words) const { return paint.shown(words); }

  // "31.21 is 32 products …": the label, then the text; its later lines are aligned below its first.
  std::vector<std::string> item(const std::string& label, int label_width, const std::string& words) const;

  const SentenceAnalysis& analysis;
  const SentenceTextOptions& options;
  const std::stop_token& stop;
  Paint paint;
  NumberStyle style;
  int width;

 private:
  std::vector<std::string> names_;
};

template <class T>
const T& element_at(const std::vector<T>& all, Index index) {
  return all[static_cast<std::size_t>(index)];
}

// " + 6.12", " - 4.83", after a first term.
std::string signed_term(const AnalysisText& text, double x);
// "; rounded figures sum to 31.20", or nothing if the printed digits add up to the printed total.
std::string rounding_note(const NumberStyle& style, const std::vector<double>& terms, double total);

SentenceFindings findings_in(const AnalysisText& text);

std::vector<std::string> sentence_detail_lines(const AnalysisText& text, const SentenceDetails& work);

}  // namespace regard::inline v0
