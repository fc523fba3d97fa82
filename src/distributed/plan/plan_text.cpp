// SPDX-License-Identifier: Apache-2.0
//
// A plan as a table; see plan_text in regard/distributed/shards.h.
// Read next: plans.cpp.
#include <algorithm>
#include <array>
#include <cstdio>

#include "regard/distributed/shards.h"
#include "row_intervals.h"

namespace regard::inline v0 {
namespace {

std::string range_text(const IndexRange& range) {
  return range.size() == 0 ? "-" : std::to_string(range.first) + ":" + std::to_string(range.end);
}

// At most three of them, and then the number of the others.
std::string ranges_text(const std::vector<IndexRange>& ranges) {
  constexpr std::size_t kMaxShown = 3;
  std::string text = ranges.empty() ? "-" : "";
  for (std::size_t i = 0; i < std::min(ranges.size(), kMaxShown); ++i)
    text += (i == 0 ? "" : ",") + range_text(ranges[i]);
  return ranges.size() <= kMaxShown ? text : text + "+" + std::to_string(ranges.size() - kMaxShown);
}

std::string bytes_text(Index bytes) {
  constexpr std::array<const char*, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", size, kUnits[unit]);
  return text.data();
}

std::string ratio_text(double ratio) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", ratio);
  return text.data();
}

// Columns are aligned on the right and separated by three spaces.
std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c)
      text += std::string(c == 0 ? 0 : 3, ' ') + std::string(widths[c] - row[c].size(), ' ') + row[c];
    text += '\n';
  }
  return text;
}

}  // namespace

std::string_view scheme_name(DistributedScheme scheme) {
  switch (scheme) {
    case DistributedScheme::heads:
      return "heads";
    case DistributedScheme::rows:
      return "rows";
    case DistributedScheme::keys:
      break;
  }
  return "keys";
}

std::string plan_text(const DistributedProblem& problem, const DistributedPlan& plan) {
  const std::size_t num_ranks = plan.ranks.size();
  std::vector<Index> received(num_ranks), sent(num_ranks);
  for (const RankTransfer& transfer : plan.transfers) {
    received[static_cast<std::size_t>(transfer.to)] += transfer.bytes;
    sent[static_cast<std::size_t>(transfer.from)] += transfer.bytes;
  }
  double pairs = 0;
  for (const RankWork& work : plan.ranks) pairs += static_cast<double>(work.pairs);
  std::vector<std::vector<std::string>> rows{{"rank", "holds rows", "holds keys", "computes rows", "heads", "keys seen",
                                              "work", "receives", "sends", "memory"}};
  for (std::size_t r = 0; r < num_ranks; ++r) {
    const RankWork& work = plan.ranks[r];
    const double share = pairs > 0 ? static_cast<double>(work.pairs) * static_cast<double>(num_ranks) / pairs : 0;
    rows.push_back({std::to_string(r), range_text({problem.row_starts[r], problem.row_starts[r + 1]}),
                    range_text({problem.key_starts[r], problem.key_starts[r + 1]}), ranges_text(work.rows),
                    range_text(work.heads), std::to_string(internal::total_size(work.keys)), ratio_text(share),
                    bytes_text(received[r]), bytes_text(sent[r]), bytes_text(work.buffer_bytes)});
  }
  return "scheme " + std::string(scheme_name(plan.scheme)) + ", " + std::to_string(num_ranks) +
         (num_ranks == 1 ? " rank\n" : " ranks\n") + table_text(rows) + "imbalance " + ratio_text(plan.imbalance()) +
         ": the most work of a rank, divided by the mean\n";
}

}  // namespace regard::inline v0
