// SPDX-License-Identifier: Apache-2.0
//
// Measures how much two words differ; see suggestion.h. Read next: cli/main.cpp.
#include "suggestion.h"

#include <algorithm>
#include <string_view>

namespace regard::program {
namespace {

// The number of characters to insert, delete, replace or exchange with the next one, so that one word becomes another.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::vector<std::size_t>> cost(from.size() + 1, std::vector<std::size_t>(to.size() + 1));
  for (std::size_t i = 0; i <= from.size(); ++i) {
    for (std::size_t j = 0; j <= to.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = i + j;
        continue;
      }
      const bool same = from[i - 1] == to[j - 1];
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[from.size()][to.size()];
}

}  // namespace

std::string suggestion(const std::string& word, const std::vector<std::string>& names) {
  constexpr std::size_t kLongestWord = 64;
  if (word.size() > kLongestWord) return "";
  std::size_t least = word.size() < 7 ? 2 : 3;  // a distance of at least this is no resemblance
  std::string found;
  for (const std::string& name : names) {
    if (const std::size_t distance = edit_distance(word, name); distance < least) {
      least = distance;
      found = " (did you mean " + name + "?)";
    }
  }
  return found;
}

}  // namespace regard::program
