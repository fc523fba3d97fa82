// SPDX-License-Identifier: Apache-2.0
//
// The three divisions of an attention call, and the choice among them; see regard/distributed/shards.h.
//
//     what a rank computes ── what it therefore needs ── minus what it holds ──▶ one transfer per pair of ranks
//
// Read next: plan_text.cpp, docs/derivations/ranks.md.
#include <algorithm>
#include <iterator>
#include <tuple>

#include "plan_choice.h"
#include "regard/distributed/shards.h"
#include "regard/error.h"
#include "row_intervals.h"

namespace regard::inline v0 {
namespace {

using internal::intersection;
using internal::RowIntervals;
using internal::total_size;

class Planner {
 public:
  // Checks the problem.
  Planner(const DistributedProblem& problem, DistributedScheme scheme, const char* function)
      : p_(checked(problem, function)),
        num_ranks_(static_cast<Index>(p_.row_starts.size()) - 1),
        num_rows_(p_.row_starts.back()),
        intervals_(p_.visibility, num_rows_, p_.key_starts.back(), function) {
    plan_.scheme = scheme;
  }

  Index num_ranks() const { return num_ranks_; }
  std::vector<IndexRange> all_rows() const { return internal::merged({{0, num_rows_}}); }
  Index num_rows() const { return num_rows_; }
  IndexRange all_heads() const { return {0, p_.num_heads}; }
  IndexRange all_kv_heads() const { return {0, p_.num_kv_heads}; }
  IndexRange held_rows(Index rank) const { return range(p_.row_starts, rank); }
  IndexRange held_keys(Index rank) const { return range(p_.key_starts, rank); }
  const RowIntervals& intervals() const { return intervals_; }

  static IndexRange range(std::span<const Index> starts, Index rank) {
    return {starts[static_cast<std::size_t>(rank)], starts[static_cast<std::size_t>(rank) + 1]};
  }

  Index query_bytes(Index rows, Index heads) const { return p_.batch * rows * heads * p_.head_size * p_.element_bytes; }
  Index context_bytes(Index rows, Index heads) const {
    return p_.batch * rows * heads * p_.value_head_size * p_.element_bytes;
  }
  Index key_bytes(Index keys, Index kv_heads) const {
    return p_.batch * keys * kv_heads * (p_.head_size + p_.value_head_size) * p_.element_bytes;
  }
  Index partial_bytes(Index chunks, Index rows, Index heads) const {
    return p_.batch * chunks * rows * heads * (p_.value_head_size + 2) * p_.partial_bytes;
  }

  // Each of these sends nothing if there is nothing to send, or from a rank to itself.
  void send_query(Index from, Index to, const std::vector<IndexRange>& rows, const IndexRange& heads) {
    std::vector<IndexRange> sent = intersection(rows, held_rows(from));
    const Index bytes = query_bytes(total_size(sent), heads.size());
    send(TransferContent::query, from, to, std::move(sent), heads, 1, bytes);
  }
  void send_keys(Index from, Index to, const std::vector<IndexRange>& keys, const IndexRange& kv_heads) {
    std::vector<IndexRange> sent = intersection(keys, held_keys(from));
    const Index bytes = key_bytes(total_size(sent), kv_heads.size());
    send(TransferContent::keys, from, to, std::move(sent), kv_heads, 1, bytes);
  }
  void send_partials(Index from, Index to, Index chunks, const IndexRange& heads) {
    send(TransferContent::partials, from, to, all_rows(), heads, chunks,
         partial_bytes(chunks, num_rows_, heads.size()));
  }
  // Of rows that the sender has computed, to their holder.
  void send_context(Index from, Index to, const std::vector<IndexRange>& rows, const IndexRange& heads) {
    std::vector<IndexRange> sent = intersection(rows, held_rows(to));
    const Index bytes = context_bytes(total_size(sent), heads.size());
    send(TransferContent::context, from, to, std::move(sent), heads, 1, bytes);
  }
  // Rank r receives the rows and keys that its work reads, and returns the context to the ranks that hold the rows.
  void gather(Index r, const RankWork& work) {
    for (Index s = 0; s < num_ranks(); ++s) {
      send_query(s, r, work.rows, work.heads);
      send_keys(s, r, work.keys, work.kv_heads);
      send_context(r, s, work.rows, work.heads);
    }
  }
  void add(RankWork work) { plan_.ranks.push_back(std::move(work)); }

  DistributedPlan finish() && {
    std::sort(plan_.transfers.begin(), plan_.transfers.end(), [](const RankTransfer& a, const RankTransfer& b) {
      return std::tie(a.content, a.to, a.from) < std::tie(b.content, b.to, b.from);
    });
    return std::move(plan_);
  }

 private:
  static const DistributedProblem& checked(const DistributedProblem& p, const char* function) {
    const auto reject = [function](const std::string& what) {
      throw InvalidArgument(std::string(function) + ": " + what);
    };
    internal::check_starts(p.row_starts, "row_starts", function, p.row_starts.empty() ? 0 : p.row_starts.back());
    internal::check_starts(p.key_starts, "key_starts", function, p.key_starts.empty() ? 0 : p.key_starts.back());
    if (p.row_starts.size() != p.key_starts.size()) {
      reject("row_starts has " + std::to_string(p.row_starts.size()) + " entries and key_starts " +
             std::to_string(p.key_starts.size()) + "; expected one per rank and one more in both");
    }
    for (const auto& [name, extent] : {std::pair{"batch", p.batch},
                                       {"num_heads", p.num_heads},
                                       {"num_kv_heads", p.num_kv_heads},
                                       {"head_size", p.head_size},
                                       {"value_head_size", p.value_head_size},
                                       {"element_bytes", p.element_bytes},
                                       {"partial_bytes", p.partial_bytes}}) {
      if (extent < 1) reject(std::string(name) + " is " + std::to_string(extent) + "; expected at least 1");
    }
    if (p.num_heads % p.num_kv_heads != 0) {
      reject("num_kv_heads is " + std::to_string(p.num_kv_heads) + "; expected a divisor of num_heads, " +
             std::to_string(p.num_heads));
    }
    const auto real = [](Index n) { return static_cast<double>(n); };
    const double rows = real(p.row_starts.back()), keys = real(p.key_starts.back());
    const double pairs = rows * keys * real(p.num_heads);
    const double bytes = (rows + keys) * (1 + keys / kAttentionChunkKeys) * real(p.batch) * real(p.num_heads) *
                         (real(p.head_size) + real(p.value_head_size) + 2) *
                         real(std::max(p.element_bytes, p.partial_bytes));
    constexpr double kMax = 4611686018427387904;  // 2^62
    if (rows >= kMax / 2 || keys >= kMax / 2 || pairs >= kMax || bytes >= kMax)
      reject("the extents are too large; expected products below 2^62");
    return p;
  }

  void send(TransferContent content, Index from, Index to, std::vector<IndexRange> indices, const IndexRange& heads,
            Index chunks, Index bytes) {
    if (from == to || bytes == 0) return;
    plan_.transfers.push_back({content, from, to, std::move(indices), heads, chunks, bytes});
  }

  const DistributedProblem& p_;
  Index num_ranks_, num_rows_;
  RowIntervals intervals_;
  DistributedPlan plan_;
};

// The conditions of plan_keys, apart from those of every problem.
bool has_whole_chunks(const DistributedProblem& problem) {
  return std::all_of(problem.key_starts.begin(), problem.key_starts.end(), [&](Index start) {
    return start % kAttentionChunkKeys == 0 || start == problem.key_starts.back();
  });
}
// Throws InvalidArgument unless the ranks compute each row once.
void check_partition(std::span<const std::vector<IndexRange>> computed_rows, Index num_ranks, Index num_rows) {
  if (static_cast<Index>(computed_rows.size()) != num_ranks) {
    throw InvalidArgument("plan_rows: computed_rows has " + std::to_string(computed_rows.size()) +
                          " entries; expected one per rank, " + std::to_string(num_ranks));
  }
  std::vector<IndexRange> all;
  for (const std::vector<IndexRange>& ranges : computed_rows) {
    std::copy_if(ranges.begin(), ranges.end(), std::back_inserter(all),
                 [](const IndexRange& r) { return r.size() != 0; });
  }
  std::sort(all.begin(), all.end(), [](const IndexRange& a, const IndexRange& b) { return a.first < b.first; });
  Index end = 0;
  for (const IndexRange& range : all) {
    if (range.first != end || range.end < range.first) break;
    end = range.end;
  }
  if (end != num_rows || (!all.empty() && all.back().end != end))
    throw InvalidArgument("plan_rows: computed_rows is invalid; expected each of the " + std::to_string(num_rows) +
                          " rows once");
}

bool has_packed_sequences(const DistributedProblem& problem) { return !problem.visibility.query_starts.empty(); }

}  // namespace

DistributedPlan internal::cheapest_plan(const std::vector<DistributedPlan>& plans) {
  // Balanced plans come before others, and are compared by bytes; others are compared by imbalance first.
  const auto rank = [](const DistributedPlan& plan) {
    return std::pair(std::max(plan.imbalance(), kMaxImbalance), plan.max_received_bytes());
  };
  return *std::min_element(plans.begin(), plans.end(),
                           [&](const DistributedPlan& a, const DistributedPlan& b) { return rank(a) < rank(b); });
}

DistributedPlan plan_heads(const DistributedProblem& problem) {
  Planner planner(problem, DistributedScheme::heads, "plan_heads");
  const Index group = problem.num_heads / problem.num_kv_heads;
  const std::vector<Index> starts = split_evenly(problem.num_kv_heads, planner.num_ranks());
  const std::vector<IndexRange> rows = planner.all_rows();
  const std::vector<IndexRange> seen = planner.intervals().keys_of(rows);
  const Index pairs = planner.intervals().pairs(rows);
  for (Index r = 0; r < planner.num_ranks(); ++r) {
    RankWork work;
    work.kv_heads = Planner::range(starts, r);
    work.heads = {work.kv_heads.first * group, work.kv_heads.end * group};
    if (work.heads.size() > 0) {
      work.rows = rows;
      work.keys = seen;
      work.pairs = pairs * work.heads.size();
      work.buffer_bytes = planner.query_bytes(planner.num_rows(), work.heads.size()) +
                          planner.context_bytes(planner.num_rows(), work.heads.size()) +
                          planner.key_bytes(total_size(seen), work.kv_heads.size());
    }
    planner.gather(r, work);
    planner.add(std::move(work));
  }
  return std::move(planner).finish();
}

DistributedPlan plan_rows(const DistributedProblem& problem, std::span<const std::vector<IndexRange>> computed_rows) {
  Planner planner(problem, DistributedScheme::rows, "plan_rows");
  if (!computed_rows.empty()) check_partition(computed_rows, planner.num_ranks(), planner.num_rows());
  for (Index r = 0; r < planner.num_ranks(); ++r) {
    RankWork work;
    work.rows = internal::merged(computed_rows.empty() ? std::vector{planner.held_rows(r)}
                                                       : computed_rows[static_cast<std::size_t>(r)]);
    work.heads = planner.all_heads();
    work.kv_heads = planner.all_kv_heads();
    work.keys = planner.intervals().keys_of(work.rows);
    work.pairs = planner.intervals().pairs(work.rows) * work.heads.size();
    const Index moved = total_size(work.rows) - total_size(intersection(work.rows, planner.held_rows(r)));
    work.buffer_bytes = planner.key_bytes(total_size(work.keys), std::min<Index>(2, work.kv_heads.size())) +
                        planner.query_bytes(moved, work.heads.size()) + planner.context_bytes(moved, work.heads.size());
    planner.gather(r, work);
    planner.add(std::move(work));
  }
  return std::move(planner).finish();
}

DistributedPlan plan_keys(const DistributedProblem& problem) {
  Planner planner(problem, DistributedScheme::keys, "plan_keys");
  if (!has_whole_chunks(problem))
    throw InvalidArgument("plan_keys: key_starts is invalid; expected multiples of " +
                          std::to_string(kAttentionChunkKeys));
  if (has_packed_sequences(problem))
    throw InvalidArgument("plan_keys: query_starts is given; expected one sequence, as for attention_partials");
  const std::vector<IndexRange> rows = planner.all_rows();
  const std::vector<IndexRange> seen = planner.intervals().keys_of(rows);
  const std::vector<Index> pairs = planner.intervals().pairs_by_keys(problem.key_starts);
  const std::vector<Index> starts = split_evenly(problem.num_heads, planner.num_ranks());
  std::vector<Index> chunks;  // of each rank: those that are visible to some row
  for (Index r = 0; r < planner.num_ranks(); ++r) {
    Index count = 0, end = 0;
    for (const IndexRange& keys : intersection(seen, planner.held_keys(r))) {
      const Index first = std::max(end, keys.first / kAttentionChunkKeys);
      end = attention_num_chunks(keys.end);
      count += end - first;
    }
    chunks.push_back(count);
  }
  Index all_chunks = 0;
  for (const Index count : chunks) all_chunks += count;
  for (Index r = 0; r < planner.num_ranks(); ++r) {
    const Index own_chunks = chunks[static_cast<std::size_t>(r)];
    RankWork work;
    work.rows = rows;
    work.heads = Planner::range(starts, r);
    work.kv_heads = planner.all_kv_heads();
    work.keys = intersection(seen, planner.held_keys(r));
    work.pairs = pairs[static_cast<std::size_t>(r)] * problem.num_heads;
    work.buffer_bytes = planner.query_bytes(own_chunks > 0 ? planner.num_rows() : 0, problem.num_heads) +
                        planner.partial_bytes(own_chunks, planner.num_rows(), problem.num_heads) +
                        planner.partial_bytes(all_chunks, planner.num_rows(), work.heads.size());
    for (Index s = 0; s < planner.num_ranks(); ++s) {
      if (own_chunks > 0) planner.send_query(s, r, rows, planner.all_heads());
      planner.send_partials(s, r, chunks[static_cast<std::size_t>(s)], work.heads);
      planner.send_context(r, s, rows, work.heads);
    }
    planner.add(std::move(work));
  }
  return std::move(planner).finish();
}

DistributedPlan choose_plan(const DistributedProblem& problem) {
  std::vector<DistributedPlan> candidates{plan_rows(problem)};
  const auto num_ranks = static_cast<Index>(problem.row_starts.size()) - 1;
  candidates.push_back(
      plan_rows(problem, balance_rows(problem.visibility, problem.row_starts, problem.key_starts.back())));
  if (num_ranks <= problem.num_kv_heads) candidates.push_back(plan_heads(problem));
  if (has_whole_chunks(problem) && !has_packed_sequences(problem)) candidates.push_back(plan_keys(problem));
  return internal::cheapest_plan(candidates);
}

Index DistributedPlan::received_bytes(Index rank) const {
  Index sum = 0;
  for (const RankTransfer& transfer : transfers) sum += transfer.to == rank ? transfer.bytes : 0;
  return sum;
}

Index DistributedPlan::max_received_bytes() const {
  std::vector<Index> received(ranks.size());
  for (const RankTransfer& transfer : transfers) received[static_cast<std::size_t>(transfer.to)] += transfer.bytes;
  return received.empty() ? 0 : *std::max_element(received.begin(), received.end());
}

double DistributedPlan::imbalance() const {
  double sum = 0, largest = 0;
  for (const RankWork& work : ranks) {
    sum += static_cast<double>(work.pairs);
    largest = std::max(largest, static_cast<double>(work.pairs));
  }
  return sum > 0 ? largest * static_cast<double>(ranks.size()) / sum : 1;
}

}  // namespace regard::inline v0
