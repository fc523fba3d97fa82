// SPDX-License-Identifier: Apache-2.0
//
// Intervals of visible keys from causal, window and packed sequences (docs/reference/semantics.md, section 2), and the
// cuts that follow from them.
// Read next: plans.cpp.
#include "row_intervals.h"

#include <algorithm>
#include <numeric>

#include "regard/error.h"

namespace regard::inline v0::internal {
namespace {

constexpr Index kMaxOffset = Index{1} << 60;

[[noreturn]] void reject(const char* function, const std::string& what) {
  throw InvalidArgument(std::string(function) + ": " + what);
}

}  // namespace

void check_starts(std::span<const Index> starts, const char* name, const char* function, Index end) {
  if (starts.size() < 2 || starts.front() != 0 || !std::is_sorted(starts.begin(), starts.end()) ||
      starts.back() != end) {
    reject(function, std::string(name) + " is invalid; expected at least two entries, ascending from 0 to " +
                         std::to_string(end));
  }
}

IndexRange intersection(const IndexRange& a, const IndexRange& b) {
  const IndexRange both{std::max(a.first, b.first), std::min(a.end, b.end)};
  return both.size() > 0 ? both : IndexRange{};
}

std::vector<IndexRange> intersection(const std::vector<IndexRange>& ranges, const IndexRange& range) {
  std::vector<IndexRange> found;
  auto at =
      std::partition_point(ranges.begin(), ranges.end(), [&](const IndexRange& r) { return r.end <= range.first; });
  for (; at != ranges.end() && at->first < range.end; ++at) {
    if (const IndexRange both = intersection(*at, range); both.size() > 0) found.push_back(both);
  }
  return found;
}

std::vector<IndexRange> merged(std::vector<IndexRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const IndexRange& a, const IndexRange& b) { return a.first < b.first; });
  std::vector<IndexRange> found;
  for (const IndexRange& range : ranges) {
    if (range.size() == 0) continue;
    if (!found.empty() && range.first <= found.back().end) {
      found.back().end = std::max(found.back().end, range.end);
    } else {
      found.push_back(range);
    }
  }
  return found;
}

Index total_size(const std::vector<IndexRange>& ranges) {
  Index sum = 0;
  for (const IndexRange& range : ranges) sum += range.size();
  return sum;
}

RowIntervals::RowIntervals(const RowVisibility& visibility, Index num_rows, Index num_keys, const char* function)
    : visibility_(visibility), num_rows_(num_rows), num_keys_(num_keys) {
  if (num_rows < 0 || num_keys < 0) reject(function, "the number of rows or of keys is negative");
  const Window& window = visibility.window;
  if (window.left.value_or(0) < 0 || window.right.value_or(0) < 0)
    reject(function, "window is negative; expected at least 0");
  if (const Index* offset = std::get_if<Index>(&visibility.query_offset);
      offset != nullptr && (*offset > kMaxOffset || *offset < -kMaxOffset))
    reject(function, "query_offset is " + std::to_string(*offset) + "; expected at most 2^60 in magnitude");
  if (visibility.query_starts.empty() && visibility.key_starts.empty()) return;
  check_starts(visibility.query_starts, "query_starts", function, num_rows);
  check_starts(visibility.key_starts, "key_starts", function, num_keys);
  if (visibility.query_starts.size() != visibility.key_starts.size())
    reject(function,
           "query_starts and key_starts differ in length; expected one entry per packed sequence and one more");
}

IndexRange RowIntervals::of(Index row) const {
  const std::vector<Index>& row_starts = visibility_.query_starts;
  IndexRange rows{0, num_rows_}, keys{0, num_keys_};
  if (!row_starts.empty()) {
    const auto sequence =
        static_cast<std::size_t>(std::upper_bound(row_starts.begin(), row_starts.end(), row) - row_starts.begin()) - 1;
    rows = {row_starts[sequence], row_starts[sequence + 1]};
    keys = {visibility_.key_starts[sequence], visibility_.key_starts[sequence + 1]};
  }
  const Index* const offset = std::get_if<Index>(&visibility_.query_offset);
  const bool bottom_right =
      offset == nullptr && std::get<QueryAlignment>(visibility_.query_offset) == QueryAlignment::bottom_right;
  const Index position = row - rows.first +
                         (offset != nullptr ? *offset
                          : bottom_right    ? keys.size() - rows.size()
                                            : 0);
  Index begin = 0, end = keys.size();
  // Extents are below 2^61, so that a window cannot overflow once it is limited to this value.
  constexpr Index kOpen = Index{1} << 61;
  if (visibility_.causal) end = std::min(end, position + 1);
  if (visibility_.window.left) begin = std::max(begin, position - std::min(*visibility_.window.left, kOpen));
  if (visibility_.window.right) end = std::min(end, position + std::min(*visibility_.window.right, kOpen) + 1);
  return begin < end ? IndexRange{keys.first + begin, keys.first + end} : IndexRange{};
}

std::vector<IndexRange> RowIntervals::keys_of(const std::vector<IndexRange>& rows) const {
  std::vector<IndexRange> keys;
  for (const IndexRange& range : rows) {
    for (Index row = range.first; row < range.end; ++row) {
      const IndexRange seen = of(row);
      if (seen.size() == 0) continue;
      if (!keys.empty() && seen.first <= keys.back().end) {
        keys.back().end = std::max(keys.back().end, seen.end);
      } else {
        keys.push_back(seen);
      }
    }
  }
  return keys;
}

Index RowIntervals::pairs(const std::vector<IndexRange>& rows) const {
  Index sum = 0;
  for (const IndexRange& range : rows) {
    for (Index row = range.first; row < range.end; ++row) sum += of(row).size();
  }
  return sum;
}

// With the keys [a, b) of a row, before(x) = Σ min(b, x) − min(a, x) over rows. Since a and b never decrease, two
// pointers follow x: to the rows with a < x, and to those with b <= x.
std::vector<Index> RowIntervals::pairs_by_keys(std::span<const Index> starts) const {
  struct Pointer {
    Index row = 0, count = 0, sum = 0;
  };
  Pointer begun, ended;
  const auto advance = [this](Pointer& at, Index IndexRange::* bound, Index limit) {
    for (; at.row < num_rows_; ++at.row) {
      const IndexRange seen = of(at.row);
      if (seen.size() == 0) continue;
      if (seen.*bound > limit) return;
      ++at.count;
      at.sum += seen.*bound;
    }
  };
  std::vector<Index> pairs;
  Index previous = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    advance(begun, &IndexRange::first, starts[i] - 1);
    advance(ended, &IndexRange::end, starts[i]);
    const Index before = ended.sum + (begun.count - ended.count) * starts[i] - begun.sum;
    if (i > 0) pairs.push_back(before - previous);
    previous = before;
  }
  return pairs;
}

}  // namespace regard::inline v0::internal

namespace regard::inline v0 {

IndexRange visible_keys(const RowVisibility& visibility, Index num_rows, Index num_keys, Index row) {
  const internal::RowIntervals intervals(visibility, num_rows, num_keys, "visible_keys");
  if (row < 0 || row >= num_rows) {
    throw InvalidArgument("visible_keys: row is " + std::to_string(row) + "; expected 0 to " +
                          std::to_string(num_rows - 1));
  }
  return intervals.of(row);
}

std::vector<Index> split_evenly(Index length, Index ranks, Index grain) {
  if (length < 0 || ranks < 1 || grain < 1)
    throw InvalidArgument("split_evenly: expected a length of at least 0, and ranks and grain of at least 1");
  const Index grains = length / grain + (length % grain != 0 ? 1 : 0);
  std::vector<Index> starts;
  for (Index r = 0; r < ranks; ++r) starts.push_back((grains / ranks * r + grains % ranks * r / ranks) * grain);
  starts.push_back(length);
  return starts;
}

std::vector<Index> split_by_work(const RowVisibility& visibility, Index num_rows, Index num_keys, Index ranks) {
  const internal::RowIntervals intervals(visibility, num_rows, num_keys, "split_by_work");
  if (ranks < 1) throw InvalidArgument("split_by_work: ranks is " + std::to_string(ranks) + "; expected at least 1");
  const Index total = intervals.pairs({{0, num_rows}});
  if (total == 0) return split_evenly(num_rows, ranks);
  std::vector<Index> starts{0};
  Index done = 0;  // pairs of the rows before this one
  for (Index row = 0; row < num_rows; ++row) {
    const Index after = done + intervals.of(row).size();
    while (static_cast<Index>(starts.size()) < ranks) {
      const auto r = static_cast<Index>(starts.size());
      const Index wanted = total / ranks * r + total % ranks * r / ranks;
      if (after < wanted) break;
      starts.push_back(wanted - done < after - wanted ? row : row + 1);
    }
    done = after;
  }
  starts.resize(static_cast<std::size_t>(ranks), num_rows);
  starts.push_back(num_rows);
  return starts;
}

std::vector<std::vector<IndexRange>> balance_rows(const RowVisibility& visibility, std::span<const Index> row_starts,
                                                  Index num_keys) {
  internal::check_starts(row_starts, "row_starts", "balance_rows", row_starts.empty() ? 0 : row_starts.back());
  const internal::RowIntervals intervals(visibility, row_starts.back(), num_keys, "balance_rows");
  const auto num_ranks = static_cast<Index>(row_starts.size()) - 1;
  std::vector<Index> work;
  std::vector<std::vector<IndexRange>> rows;
  for (std::size_t r = 0; r + 1 < row_starts.size(); ++r) {
    rows.push_back({{row_starts[r], row_starts[r + 1]}});
    work.push_back(intervals.pairs(rows.back()));
  }
  const Index mean = std::accumulate(work.begin(), work.end(), Index{0}) / num_ranks;
  // The rows that ranks give away, starting with the first rank. Totals of the pairs to give away and given away are
  // kept, so that the errors of rounding to whole rows do not add up.
  std::vector<IndexRange> given;
  Index wanted = 0, done = 0;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    wanted += std::max<Index>(0, work[r] - mean);
    IndexRange& own = rows[r].front();
    IndexRange gift{own.end, own.end};
    if (work[r] <= mean) continue;
    for (Index next; own.first < gift.first; done += next, --gift.first) {
      next = intervals.of(gift.first - 1).size();
      if (done + next - wanted > wanted - done) break;
    }
    own.end = gift.first;
    given.push_back(gift);
  }
  // The rows go to the other ranks, with the same totals, starting with the last rank. For a causal mask, the rank with
  // the least work then takes the rows with the most work, and so the fewest rows.
  wanted = done = 0;
  auto gift = given.begin();
  for (std::size_t r = rows.size(); r-- > 0 && gift != given.end();) {
    if (work[r] >= mean) continue;
    wanted += mean - work[r];
    while (gift != given.end()) {
      IndexRange taken{gift->first, gift->first};
      bool enough = false;
      for (; taken.end < gift->end; ++taken.end) {
        const Index next = intervals.of(taken.end).size();
        enough = done + next - wanted > wanted - done;
        if (enough) break;
        done += next;
      }
      rows[r].push_back(taken);
      gift->first = taken.end;
      if (enough) break;
      ++gift;
    }
  }
  // Rows that remain after the last rounding return to the ranks that hold them.
  for (; gift != given.end(); ++gift) {
    const auto holder = std::upper_bound(row_starts.begin(), row_starts.end(), gift->first) - row_starts.begin() - 1;
    if (gift->size() > 0) rows[static_cast<std::size_t>(holder)].push_back(*gift);
  }
  for (std::vector<IndexRange>& ranges : rows) ranges = internal::merged(std::move(ranges));
  return rows;
}

}  // namespace regard::inline v0
