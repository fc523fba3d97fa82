// SPDX-License-Identifier: Apache-2.0
//
// Lesson why-scale: random queries and keys of growing length D, ten keys a query; what the scores, the largest
// weight and the slope of softmax do, with and without division by √D. Lengths 32, 64, 128 and 4960 are those that
// the document of by-hand asks its readers to imagine. Read next: lesson_operations.cpp, scale_statistics.
#include "lessons.h"

namespace regard::inline v0 {

ExplainInput lesson_why_scale() {
  ExplainInput lesson;
  lesson.citation = "Vaswani et al., Attention Is All You Need, arXiv 1706.03762, section 3.2.1, note 4";
  lesson.steps = {
      {.operation = Operation::scale_statistics,
       .result = "measured",
       .name = "statistics",
       .numbers = {0, 256, 3, 8, 32, 64, 128, 4960},
       .digits = 4,
       .notes =
           {"largest p: mean of the largest of ten weights. Uniform weights would be 0.1; 1 means that one key "
            "has all the weight.",
            "slope p: mean of p(1 − p), by which a weight changes when its own score does. Near 0, little gradient "
            "passes through this softmax."}},
  };
  return lesson;
}

}  // namespace regard::inline v0
