// SPDX-License-Identifier: Apache-2.0
//
// Lesson why-scale: random queries and keys of growing head size D, ten keys per query; how the scores, the largest
// weight and the slope of softmax change with D, with and without division by √D. The sizes 32, 64, 128 and 4960 are
// mentioned in the document of lesson by-hand. Read next: lesson_operations.cpp, scale_statistics.
#include "lessons.h"

namespace regard::inline v0 {

ExplainInput lesson_why_scale() {
  ExplainInput lesson;
  lesson.citation = "Vaswani et al., Attention Is All You Need, arXiv 1706.03762, section 3.2.1, footnote 4";
  lesson.steps = {
      {.operation = Operation::scale_statistics,
       .result = "measured",
       .name = "statistics",
       .numbers = {0, 256, 3, 8, 32, 64, 128, 4960},
       .digits = 4,
       .notes = {"largest p: mean of the largest of ten weights. Uniform weights would be 0.1; 1 means that one key "
                 "has all the weight.",
                 "slope p: mean of p(1 − p), the derivative of a weight with respect to its own score. Near 0, little "
                 "gradient passes through this softmax."}},
  };
  return lesson;
}

}  // namespace regard::inline v0
