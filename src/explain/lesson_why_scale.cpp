// SPDX-License-Identifier: Apache-2.0
//
// Lesson why-scale: random queries and keys of growing length D, ten keys a query; what the scores, the largest
// weight and the slope of softmax do, with and without division by √D. Lengths 32, 64, 128 and 4960 are those that
// document 004 asks its readers to imagine. Read next: lesson_operations.cpp, scale_statistics.
#include "lessons.h"

namespace regard {
inline namespace v0 {

ExplainInput lesson_why_scale() {
  ExplainInput lesson;
  lesson.title = "Why scores are divided by √D: variance, largest weight, slope";
  lesson.citation = "Vaswani et al., Attention Is All You Need, arXiv 1706.03762, section 3.2.1, note 4";
  lesson.steps = {
      {.operation = "scale_statistics",
       .result = "measured",
       .name = "statistics",
       .numbers = {0, 256, 3, 8, 32, 64, 128, 4960},
       .digits = 4,
       .notes =
           {"var(q·k) grows like D; divided by √D it stays near 1.",
            "largest: mean of the largest of ten weights. Equal shares would be 0.1; 1 means that one key takes all.",
            "slope: mean of p(1 − p), by which a weight moves when its score does. Near 0 nothing is learned."}},
  };
  return lesson;
}

}  // namespace v0
}  // namespace regard
