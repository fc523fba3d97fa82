// SPDX-License-Identifier: Apache-2.0
//
// A program that uses regard::explain: the first word that the Mersenne Twister of its authors' paper draws, and a
// lesson as data.
// Read next: ../run.sh.
#include "regard/explain/lesson.h"
#include "regard/explain/random.h"

int main() {
  regard::Mt19937 generator(5489);
  return generator.next_word() == 3499211612u && regard::lesson_entries().size() > 4 ? 0 : 1;
}
