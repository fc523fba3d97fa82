// SPDX-License-Identifier: Apache-2.0
//
// One function per lesson: its matrices, steps and expected numbers as data. lesson.cpp lists them.
// Read next: lesson_three_words.cpp.
#pragma once

#include "regard/explain/lesson.h"

namespace regard::inline v0 {

ExplainInput lesson_three_words();
ExplainInput lesson_roles();
ExplainInput lesson_one_function();
ExplainInput lesson_from_seed();
ExplainInput lesson_by_hand();
ExplainInput lesson_why_scale();
ExplainInput lesson_learning();

}  // namespace regard::inline v0
