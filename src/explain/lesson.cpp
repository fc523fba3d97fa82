// SPDX-License-Identifier: Apache-2.0
//
// The list of lessons and the way to one by its name. Read next: lesson_000.cpp.
#include "regard/lesson.h"

#include <array>
#include <stdexcept>

#include "lessons.h"

namespace regard {
inline namespace v0 {
namespace {

struct Lesson {
  const char* name;
  ExplainInput (*input)();
};
constexpr std::array kLessons = {
    Lesson{"000", lesson_000}, Lesson{"001", lesson_001}, Lesson{"002", lesson_002},
    Lesson{"003", lesson_003}, Lesson{"004", lesson_004}, Lesson{"why-scale", lesson_why_scale},
};

}  // namespace

std::vector<LessonEntry> lesson_entries() {
  std::vector<LessonEntry> entries;
  for (const Lesson& lesson : kLessons) entries.push_back({lesson.name, lesson.input().title});
  return entries;
}

ExplainInput lesson_input(std::string_view name) {
  std::string names;
  for (const Lesson& lesson : kLessons) {
    if (name == lesson.name) return lesson.input();
    names += (names.empty() ? "" : ", ") + std::string(lesson.name);
  }
  throw std::invalid_argument("lesson: there is no lesson \"" + escape_for_terminal(name) + "\"; there are " + names);
}

}  // namespace v0
}  // namespace regard
