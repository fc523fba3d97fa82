// SPDX-License-Identifier: Apache-2.0
//
// The generators of the tasks: pure functions from the seed of an example to the example. Each has the vocabulary that
// its token ids refer to.
//
// Read next: task_generators.cpp, tasks.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "regard/train/tasks.h"

namespace regard::inline v0::internal {

TaskExample copy_example(std::uint64_t seed);
TaskExample reverse_example(std::uint64_t seed);
TaskExample sort_example(std::uint64_t seed);
std::vector<std::string> letters_vocabulary();  // of copy, reverse and sort

TaskExample induction_example(std::uint64_t seed);
std::vector<std::string> induction_vocabulary();

TaskExample recall_example(std::uint64_t seed);
std::vector<std::string> recall_vocabulary();

TaskExample addition_example(std::uint64_t seed);
std::vector<std::string> addition_vocabulary();

TaskExample modular_addition_example(std::uint64_t seed);
std::vector<std::string> modular_addition_vocabulary();

TaskExample brackets_example(std::uint64_t seed);
std::vector<std::string> brackets_vocabulary();

}  // namespace regard::inline v0::internal
