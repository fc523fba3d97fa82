// SPDX-License-Identifier: Apache-2.0
/// @file
/// Five documents that explain attention, as lessons. Two more lessons go beyond them: why-scale measures the effect of
/// division by √D, and learning trains the matrices of the first lesson.
///
/// A lesson is an ExplainInput. It contains
/// - the document's matrices,
/// - its steps, in the document's order and wording,
/// - the values that the document prints,
/// - the errata of the document.
///
/// @code{.cpp}
/// const Explanation explanation = explain(lesson_input("three-words"));  // for render_text()
/// @endcode
///
/// Read next: docs/guide/lessons.md, src/explain/lessons/lesson_three_words.cpp.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/steps.h"

namespace regard::inline v0 {

/// An entry in the list of lessons.
struct LessonEntry {
  std::string name;   ///< Name of the lesson, such as "three-words".
  std::string alias;  ///< Number of the lesson, such as "000"; may be empty.
  std::string title;  ///< Title, which states what the lesson shows.
};

/// Lists all lessons, in the recommended order.
///
/// @return The lessons.
REGARD_EXPORT std::vector<LessonEntry> lesson_entries();

/// Creates the input of a lesson.
///
/// @param name  Name or alias of the lesson.
/// @return The input, for explain().
/// @throws InvalidArgument  if no lesson has that name or alias. The message lists all lessons.
REGARD_EXPORT ExplainInput lesson_input(std::string_view name);

/// Converts an input to another layout: the same computation with tokens as rows or as columns.
///
/// Every matrix and the expected result of every step is transposed, and the factors of every product are swapped.
/// Biases, and tables that do not depend on the layout, are unchanged.
///
/// @param input   The input.
/// @param layout  The new layout.
/// @return The input in that layout.
///
/// @par Example
/// @code{.cpp}
/// const Explanation explanation = explain(with_layout(lesson_input("three-words"), Layout::columns));
/// @endcode
REGARD_EXPORT ExplainInput with_layout(ExplainInput input, Layout layout);

/// Applies the user's settings to a lesson.
///
/// The query in focus, the digits and the layout are applied to the lesson itself. If any other setting differs from
/// that of the document, the steps of the document are kept, and the results with the user's settings are shown next
/// to them, instead of the lesson's variants.
///
/// @param lesson    The lesson.
/// @param settings  The user's settings.
/// @param label     Label of the results with those settings.
/// @return The input, with a variant if settings differ.
REGARD_EXPORT ExplainInput with_compared_settings(const ExplainInput& lesson, const ExplainSettings& settings,
                                                  const std::string& label);

}  // namespace regard::inline v0
