// SPDX-License-Identifier: Apache-2.0
//
// `regard explain "text" --save FOLDER`: the arrays that the model computes for a text, as NPY files, and tokens.json,
// which describes them.
//
//     SentenceSaver saver(folder, arrays); checks the names in `arrays` before any work
//     saver.write(model, sentence);        writes under temporary names
//     saver.commit();                      renames the files: either all are created, or none
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

// The values of --arrays, separated by commas; docs/reference/save.md lists the shapes.
inline constexpr std::string_view kSavedNames = "weights, scores, query, key, value, context, hidden_states";

class SentenceSaver {
 public:
  // arrays: names in kSavedNames (or q, k and v), separated by commas; empty means all. Throws UsageError for other
  // names.
  SentenceSaver(std::string folder, std::string_view arrays);
  SentenceSaver(const SentenceSaver&) = delete;
  SentenceSaver& operator=(const SentenceSaver&) = delete;

  // Creates the folder, but not its parents. Can be called once. Throws std::runtime_error naming a path that cannot be
  // written.
  void write(const SentenceModel& model, const Sentence& sentence);
  void commit();

 private:
  std::string folder_;
  std::vector<std::string> names_;
  // Without commit() the folder is removed, too, if it was created here.
  std::optional<OutputFolder> made_;
  std::optional<OutputFiles> files_;
};

}  // namespace regard::program
