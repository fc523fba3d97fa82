// SPDX-License-Identifier: Apache-2.0
//
// `regard explain "text" --save FOLDER`: what the model computed for a text, as NPY files, and tokens.json, which names
// their axes.
//
//     SentenceSaver saver(folder, arrays); the names in `arrays` are checked before any work
//     saver.write(model, sentence);        under temporary names
//     saver.commit();                      all files appear, or none
//
// Read next: docs/reference/save.md, save_sentence.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program.h"
#include "regard/explain/sentence.h"

namespace regard::program {

// What --arrays takes, commas between; docs/reference/save.md has the shapes.
inline constexpr std::string_view kSavedNames = "weights, scores, query, key, value, context, hidden_states";

class SentenceSaver {
 public:
  // arrays: names of kSavedNames with commas between, q, k and v for short; empty: all. Throws UsageError for others.
  SentenceSaver(std::string folder, std::string_view arrays);
  SentenceSaver(const SentenceSaver&) = delete;
  SentenceSaver& operator=(const SentenceSaver&) = delete;

  // Makes the folder, but not those above it. Once. Throws std::runtime_error naming the path that cannot be written.
  void write(const SentenceModel& model, const Sentence& sentence);
  void commit();

 private:
  std::string folder_;
  std::vector<std::string> names_;
  // Without commit() the folder goes too, if it was made here.
  std::optional<OutputFolder> made_;
  std::optional<OutputFiles> files_;
};

}  // namespace regard::program
