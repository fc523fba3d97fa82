// SPDX-License-Identifier: Apache-2.0
//
// A program that uses regard::explain: the first random number of NumPy's generator with seed 0, and a lesson as data.
// Read next: ../run.sh.
#include "regard/explain/lesson.h"
#include "regard/explain/random.h"

int main() {
  regard::NumpyRandomState generator(0);
  return generator.uniform(1)[0] == 0.5488135039273248 && regard::lesson_entries().size() > 4 ? 0 : 1;
}
