// SPDX-License-Identifier: Apache-2.0
//
// Five documents that explain attention, as lessons: each an ExplainInput with the document's matrices, its steps in
// its own order and words, the numbers that it prints, and, at the end, its errata. One more, why-scale,
// measures what division by √D does.
//
//     explain(lesson_input("three-words"))      computes it; render_text() shows it
//
// Read next: docs/lessons.md, src/explain/lessons/lesson_three_words.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/steps.h"

namespace regard::inline v0 {

struct LessonEntry {
  std::string name;   // "three-words"
  std::string alias;  // its number, "000"; empty: none
  std::string title;  // what it shows
};

// Every lesson, in the order in which they are best read.
REGARD_EXPORT std::vector<LessonEntry> lesson_entries();

// The lesson of that name or alias. Throws std::invalid_argument with the names there are.
REGARD_EXPORT ExplainInput lesson_input(std::string_view name);

// The same computation with tokens as rows or as columns: every matrix transposed, every product turned round.
REGARD_EXPORT ExplainInput with_layout(ExplainInput input, Layout layout);

// The lesson under the user's settings. Token, digits and layout are taken over; where anything else departs from the
// document, the document's steps stay and the other results stand beside them, under this label.
REGARD_EXPORT ExplainInput with_settings_beside(const ExplainInput& lesson, const ExplainSettings& settings,
                                                const std::string& label);

}  // namespace regard::inline v0
