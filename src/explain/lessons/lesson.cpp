// SPDX-License-Identifier: Apache-2.0
//
// The list of lessons, lookup by name, and the effect of options on a lesson. Read next: lesson_three_words.cpp.
#include "regard/explain/lesson.h"

#include <algorithm>
#include <array>
#include <utility>

#include "explain/steps/operations.h"
#include "lessons.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace {

struct Lesson {
  const char* name;
  const char* alias;  // its number; empty if it has none
  const char* title;
  ExplainInput (*input)();
};
constexpr std::array kLessons = {
    Lesson{"three-words", "000", "One head, number by number: queries, keys, values, weights", lesson_three_words},
    Lesson{"roles", "001", "Query, key, value: the same words, four choices of projection", lesson_roles},
    Lesson{"one-function", "002", "All in one function: the mask, variances, two forms of softmax",
           lesson_one_function},
    Lesson{"from-seed", "003", "From a seed: naive attention, keys, queries, one sum in two orders", lesson_from_seed},
    Lesson{"by-hand", "004", "By hand, in columns: fractions, two heads, a transformer block", lesson_by_hand},
    Lesson{"why-scale", "", "Why scores are divided by √D: variance, largest weight, slope", lesson_why_scale},
    Lesson{"learning", "", "How the matrices are learned: loss, gradients, AdamW, training", lesson_learning},
};

Matrix transposed(const Matrix& matrix) {
  Matrix t = matrix;
  std::swap(t.num_rows, t.num_columns);
  for (Index h = 0; h < t.num_heads; ++h) {
    for (Index r = 0; r < t.num_rows; ++r) {
      for (Index c = 0; c < t.num_columns; ++c) t.numbers[t.index(h, r, c)] = matrix.numbers[matrix.index(h, c, r)];
    }
  }
  return t;
}

void transpose_all(std::vector<NamedMatrix>& matrices) {
  for (NamedMatrix& named : matrices) {
    if (!named.name.starts_with("b_")) named.matrix = transposed(named.matrix);
  }
}

}  // namespace

std::vector<LessonEntry> lesson_entries() {
  std::vector<LessonEntry> entries;
  for (const Lesson& lesson : kLessons) entries.push_back({lesson.name, lesson.alias, lesson.title});
  return entries;
}

ExplainInput lesson_input(std::string_view name) {
  std::string names;
  for (const Lesson& lesson : kLessons) {
    if (name == lesson.name || (!name.empty() && name == lesson.alias)) {
      ExplainInput input = lesson.input();
      input.lesson = lesson.name;
      input.title = lesson.title;
      return input;
    }
    names += (names.empty() ? "" : ", ") + std::string(lesson.name);
  }
  throw InvalidArgument("unknown lesson \"" + escape_for_terminal(name) + "\"; expected one of " + names);
}

ExplainInput with_layout(ExplainInput input, Layout layout) {
  if (layout == input.settings.layout) return input;
  input.settings.layout = layout;
  transpose_all(input.matrices);
  for (Variant& variant : input.variants) {
    variant.settings.layout = layout;
    transpose_all(variant.matrices);
  }
  for (StepRequest& step : input.steps) {
    // (A · B)ᵀ = Bᵀ · Aᵀ, (Aᵀ · B)ᵀ = Bᵀ · A.
    if (step.operation == Operation::product) {
      std::swap(step.operands[0], step.operands[1]);
      if (!step.transpose.empty()) step.transpose = step.transpose == "left" ? "right" : "left";
    }
    if (!step.expected || operation_info(step.operation).traits.ignores_layout) continue;
    step.expected->numbers = transposed(step.expected->numbers);
    std::swap(step.expected->rows, step.expected->columns);
  }
  return input;
}

ExplainInput with_compared_settings(const ExplainInput& lesson, const ExplainSettings& settings,
                                    const std::string& label) {
  ExplainInput input = with_layout(lesson, settings.layout);
  input.settings.query = settings.query;
  input.settings.digits = settings.digits;
  for (Variant& variant : input.variants) {
    variant.settings.query = settings.query;
    variant.settings.digits = settings.digits;
  }
  if (!(settings == input.settings)) input.variants = {{.label = label, .settings = settings}};
  return input;
}

}  // namespace regard::inline v0
