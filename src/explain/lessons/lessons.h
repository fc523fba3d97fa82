// SPDX-License-Identifier: Apache-2.0
//
// One function a lesson: its matrices, steps and expected numbers as data. lesson.cpp lists them.
// Read next: lesson_000.cpp.
#pragma once

#include "regard/explain/lesson.h"

namespace regard {
inline namespace v0 {

ExplainInput lesson_000();
ExplainInput lesson_001();
ExplainInput lesson_002();
ExplainInput lesson_003();
ExplainInput lesson_004();
ExplainInput lesson_why_scale();

}  // namespace v0
}  // namespace regard
