// SPDX-License-Identifier: Apache-2.0
//
// Plans of distributed attention. Small plans are carried out on sets of items, one rank after the other: every pair of
// a row and a key that it sees is computed once, by a rank that has both; nothing is sent twice or in vain; and the
// context of every row reaches its holder. Large plans are compared with the formulas for bytes and balance.
// Read next: include/regard/distributed/shards.h.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>
#include <span>

#include "regard/distributed/cost.h"
#include "regard/distributed/shards.h"
#include "support/rejection.h"
#include "support/test_size.h"

namespace regard::shards_test {
namespace {

using Starts = std::vector<Index>;

// Rows or keys of heads.
class Items {
 public:
  explicit Items(Index num_heads) : num_heads_(num_heads) {}
  // False if it is there already, or if there is no such head.
  bool insert(Index i, Index head) {
    if (!has(head)) return false;
    const std::size_t at = place(i, head);
    if (at >= there_.size()) there_.resize(at + 1);
    if (there_[at]) return false;
    there_[at] = true;
    ++size_;
    return true;
  }
  bool contains(Index i, Index head) const {
    return has(head) && place(i, head) < there_.size() && there_[place(i, head)];
  }
  bool includes(const Items& others) const {
    for (std::size_t at = 0; at < others.there_.size(); ++at) {
      if (others.there_[at] && (at >= there_.size() || !there_[at])) return false;
    }
    return true;
  }
  Index size() const { return size_; }

 private:
  bool has(Index head) const { return head >= 0 && head < num_heads_; }
  std::size_t place(Index i, Index head) const { return static_cast<std::size_t>(i * num_heads_ + head); }

  Index num_heads_, size_ = 0;
  std::vector<char> there_;
};

// The definition of AttentionOptions, pair by pair.
bool sees(const RowVisibility& v, Index num_rows, Index num_keys, Index row, Index key) {
  const std::array<Index, 2> all_rows{0, num_rows}, all_keys{0, num_keys};
  const std::span<const Index> rows = v.query_starts.empty() ? std::span<const Index>(all_rows) : v.query_starts;
  const std::span<const Index> keys = v.key_starts.empty() ? std::span<const Index>(all_keys) : v.key_starts;
  for (std::size_t s = 0; s + 1 < rows.size(); ++s) {
    if (row < rows[s] || row >= rows[s + 1]) continue;
    if (key < keys[s] || key >= keys[s + 1]) return false;
    const Index j = key - keys[s];
    Index p = row - rows[s];
    if (const Index* offset = std::get_if<Index>(&v.query_offset)) {
      p += *offset;
    } else if (std::get<QueryAlignment>(v.query_offset) == QueryAlignment::bottom_right) {
      p += (keys[s + 1] - keys[s]) - (rows[s + 1] - rows[s]);
    }
    return (!v.causal || j <= p) && (!v.window.left || j >= p - *v.window.left) &&
           (!v.window.right || j <= p + *v.window.right);
  }
  return false;
}

std::vector<RowVisibility> visibilities(Index num_rows, Index num_keys) {
  std::vector<RowVisibility> all{{},
                                 {.causal = true},
                                 {.causal = true, .query_offset = QueryAlignment::bottom_right},
                                 {.causal = true, .query_offset = Index{-2}},
                                 {.window = {.left = 1, .right = 0}},
                                 {.causal = true, .query_offset = QueryAlignment::bottom_right, .window = {.left = 2}},
                                 {.query_offset = Index{3}, .window = {.left = 0, .right = 1}}};
  const Starts rows{0, num_rows / 3, num_rows / 3, num_rows}, keys{0, num_keys / 2, num_keys * 3 / 4, num_keys};
  all.push_back({.query_starts = rows, .key_starts = keys});
  all.push_back({.causal = true, .window = {.left = 1}, .query_starts = rows, .key_starts = keys});
  all.push_back(
      {.causal = true, .query_offset = QueryAlignment::bottom_right, .query_starts = rows, .key_starts = keys});
  return all;
}

// Every way to cut a length into ranges for the ranks.
std::vector<Starts> all_cuts(Index length, Index ranks) {
  std::vector<Starts> cuts{{0}};
  for (Index r = 1; r < ranks; ++r) {
    std::vector<Starts> longer;
    for (const Starts& cut : cuts) {
      for (Index next = cut.back(); next <= length; ++next) {
        longer.push_back(cut);
        longer.back().push_back(next);
      }
    }
    cuts = std::move(longer);
  }
  for (Starts& cut : cuts) cut.push_back(length);
  return cuts;
}

Index rank_of(const Starts& starts, Index i) {
  return static_cast<Index>(std::upper_bound(starts.begin(), starts.end(), i) - starts.begin()) - 1;
}

// Adds the items of ranges × heads; none may be there already.
void put(Items& items, const std::vector<IndexRange>& ranges, const IndexRange& heads) {
  for (const IndexRange& range : ranges) {
    for (Index i = range.first; i < range.end; ++i) {
      for (Index h = heads.first; h < heads.end; ++h) ASSERT_TRUE(items.insert(i, h)) << i << " " << h;
    }
  }
}

Starts indices_of(const std::vector<IndexRange>& ranges) {
  Starts indices;
  for (const IndexRange& range : ranges) {
    for (Index i = range.first; i < range.end; ++i) indices.push_back(i);
  }
  return indices;
}

bool ascending(const std::vector<IndexRange>& ranges) {
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].size() <= 0 || (i > 0 && ranges[i].first <= ranges[i - 1].end)) return false;
  }
  return true;
}

Index bytes_of(const DistributedProblem& p, const RankTransfer& t) {
  Index count = 0;
  for (const IndexRange& range : t.indices) count += range.size();
  count *= p.batch * t.heads.size();
  switch (t.content) {
    case TransferContent::query:
      return count * p.head_size * p.element_bytes;
    case TransferContent::keys:
      return count * (p.head_size + p.value_head_size) * p.element_bytes;
    case TransferContent::partials:
      return count * t.chunks * (p.value_head_size + 2) * p.partial_bytes;
    case TransferContent::context:
      break;
  }
  return count * p.value_head_size * p.element_bytes;
}

// Carries out a plan of the schemes heads and rows.
void carry_out(const DistributedProblem& p, const DistributedPlan& plan) {
  const Index num_ranks = static_cast<Index>(p.row_starts.size()) - 1;
  const Index num_rows = p.row_starts.back(), num_keys = p.key_starts.back();
  const Index group = p.num_heads / p.num_kv_heads;
  ASSERT_EQ(static_cast<Index>(plan.ranks.size()), num_ranks);
  std::vector<Items> query(plan.ranks.size(), Items(p.num_heads)), keys(plan.ranks.size(), Items(p.num_kv_heads)),
      sent_keys = keys, context = query;
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    put(query[r], {{p.row_starts[r], p.row_starts[r + 1]}}, {0, p.num_heads});
    put(keys[r], {{p.key_starts[r], p.key_starts[r + 1]}}, {0, p.num_kv_heads});
  }
  const RankTransfer* previous = nullptr;
  for (const RankTransfer& t : plan.transfers) {
    ASSERT_NE(t.from, t.to);
    ASSERT_TRUE(ascending(t.indices));
    ASSERT_GT(t.bytes, 0);
    ASSERT_EQ(t.bytes, bytes_of(p, t));
    if (previous != nullptr) {
      ASSERT_LT(std::tie(previous->content, previous->to, previous->from), std::tie(t.content, t.to, t.from));
    }
    previous = &t;
    const auto to = static_cast<std::size_t>(t.to), from = static_cast<std::size_t>(t.from);
    for (const IndexRange& range : t.indices) {  // the sender holds what it sends, or has computed it
      const Starts& starts = t.content == TransferContent::keys ? p.key_starts : p.row_starts;
      const std::size_t holder = t.content == TransferContent::context ? to : from;
      ASSERT_GE(range.first, starts[holder]);
      ASSERT_LE(range.end, starts[holder + 1]);
    }
    if (t.content == TransferContent::query) put(query[to], t.indices, t.heads);
    if (t.content == TransferContent::keys) {
      put(keys[to], t.indices, t.heads);
      put(sent_keys[to], t.indices, t.heads);
    }
    if (t.content == TransferContent::context) put(context[to], t.indices, t.heads);
  }
  Items computed(p.num_heads);
  for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
    const RankWork& work = plan.ranks[r];
    ASSERT_TRUE(ascending(work.keys));
    Items read(p.num_kv_heads);
    Index pairs = 0;
    ASSERT_TRUE(ascending(work.rows));
    for (const Index i : indices_of(work.rows)) {
      for (Index h = work.heads.first; h < work.heads.end; ++h) {
        ASSERT_TRUE(computed.insert(i, h));
        ASSERT_TRUE(query[r].contains(i, h));
        const Index kv_head = h / group;
        ASSERT_TRUE(kv_head >= work.kv_heads.first && kv_head < work.kv_heads.end);
        for (Index j = 0; j < num_keys; ++j) {
          if (!sees(p.visibility, num_rows, num_keys, i, j)) continue;
          ++pairs;
          read.insert(j, kv_head);
          ASSERT_TRUE(keys[r].contains(j, kv_head));
        }
        const Index holder = rank_of(p.row_starts, i);
        ASSERT_EQ(context[static_cast<std::size_t>(holder)].contains(i, h), holder != static_cast<Index>(r));
      }
    }
    ASSERT_EQ(work.pairs, pairs);
    Items listed(p.num_kv_heads);
    put(listed, work.keys, work.kv_heads);
    ASSERT_TRUE(listed.includes(read) && read.includes(listed));
    ASSERT_TRUE(read.includes(sent_keys[r]));
  }
  ASSERT_EQ(computed.size(), num_rows * p.num_heads);
}

TEST(VisibleKeys, AreThoseOfTheDefinition) {
  for (Index rows = 0; rows <= 7; ++rows) {
    for (Index keys = 0; keys <= 7; ++keys) {
      for (const RowVisibility& v : visibilities(rows, keys)) {
        for (Index i = 0; i < rows; ++i) {
          const IndexRange seen = visible_keys(v, rows, keys, i);
          for (Index j = 0; j < keys; ++j) {
            ASSERT_EQ(j >= seen.first && j < seen.end, sees(v, rows, keys, i, j))
                << rows << " " << keys << " " << i << " " << j;
          }
        }
      }
    }
  }
}

TEST(VisibleKeys, OfHugeWindowsAndOffsetsDoNotOverflow) {
  constexpr Index kMax = std::numeric_limits<Index>::max();
  EXPECT_EQ(visible_keys({.query_offset = Index{1} << 60, .window = {.left = kMax, .right = kMax}}, 2, 5, 1),
            (IndexRange{0, 5}));
  EXPECT_EQ(visible_keys({.query_offset = -(Index{1} << 60), .window = {.left = kMax, .right = 3}}, 2, 5, 1),
            (IndexRange{0, 0}));
}

TEST(Shards, EverySmallPlanIsCompleteAndSendsNothingInVain) {
  for (Index ranks = 1; ranks <= 3; ++ranks) {
    for (Index rows = 0; rows <= test_size(4, 3); ++rows) {
      for (Index keys : {rows, test_size<Index>(5, 4)}) {
        for (const RowVisibility& v : visibilities(rows, keys)) {
          DistributedProblem p{
              .batch = 2, .num_heads = 4, .num_kv_heads = 2, .head_size = 3, .value_head_size = 5, .visibility = v};
          for (const Starts& row_starts : all_cuts(rows, ranks)) {
            p.row_starts = row_starts;
            for (const Starts& key_starts : all_cuts(keys, ranks)) {
              p.key_starts = key_starts;
              carry_out(p, plan_heads(p));
              carry_out(p, plan_rows(p));
              carry_out(p, plan_rows(p, balance_rows(v, row_starts, keys)));
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(Shards, RandomPlansAreCompleteAndSendNothingInVain) {
  std::mt19937 random(7);
  const auto below = [&](Index n) { return static_cast<Index>(random() % static_cast<unsigned>(n)); };
  const auto cut = [&](Index length, Index ranks) {
    Starts starts{0, length};
    for (Index r = 1; r < ranks; ++r) starts.push_back(below(length + 1));
    std::sort(starts.begin(), starts.end());
    return starts;
  };
  for (int round = 0; round < test_size(300, 100); ++round) {
    const Index rows = below(30), keys = below(30), ranks = 1 + below(9), kv_heads = 1 + below(5);
    DistributedProblem p{.row_starts = cut(rows, ranks),
                         .key_starts = cut(keys, ranks),
                         .num_heads = kv_heads * (1 + below(3)),
                         .num_kv_heads = kv_heads};
    const std::vector<RowVisibility> all = visibilities(rows, keys);
    p.visibility = all[static_cast<std::size_t>(below(static_cast<Index>(all.size())))];
    carry_out(p, plan_heads(p));
    carry_out(p, plan_rows(p, balance_rows(p.visibility, p.row_starts, keys)));
    std::vector<std::vector<IndexRange>> any(static_cast<std::size_t>(ranks));
    for (Index i = 0; i < rows; ++i) any[static_cast<std::size_t>(below(ranks))].push_back({i, i + 1});
    carry_out(p, plan_rows(p, any));
    if (HasFatalFailure()) return;
  }
}

// ---- the scheme keys

TEST(Shards, EverySeenChunkReachesTheMergerOfEachHeadOnce) {
  constexpr Index kChunk = kAttentionChunkKeys;
  for (Index ranks = 1; ranks <= 5; ++ranks) {
    for (const Index keys : {Index{0}, Index{1}, kChunk, 3 * kChunk + 5, 9 * kChunk}) {
      for (const RowVisibility& v :
           {RowVisibility{},
            RowVisibility{.causal = true, .query_offset = QueryAlignment::bottom_right, .window = {.left = 1500}}}) {
        DistributedProblem p{.row_starts = split_evenly(3, ranks),
                             .key_starts = split_evenly(keys, ranks, kChunk),
                             .num_heads = 4,
                             .num_kv_heads = 2,
                             .visibility = v};
        const DistributedPlan plan = plan_keys(p);
        std::vector<Index> chunks(static_cast<std::size_t>(ranks));  // of each rank, those that a row sees
        Index pairs = 0;
        for (Index c = 0; c * kChunk < keys; ++c) {
          bool seen = false;
          for (Index i = 0; i < 3; ++i) {
            const IndexRange found = visible_keys(v, 3, keys, i);
            const Index count =
                std::max<Index>(0, std::min(found.end, (c + 1) * kChunk) - std::max(found.first, c * kChunk));
            pairs += count;
            seen = seen || count > 0;
          }
          if (seen) ++chunks[static_cast<std::size_t>(rank_of(p.key_starts, c * kChunk))];
        }
        Index planned_pairs = 0;
        Items merged(p.num_heads);
        std::set<std::array<Index, 2>> partials, queries;
        for (std::size_t r = 0; r < plan.ranks.size(); ++r) {
          const RankWork& work = plan.ranks[r];
          planned_pairs += work.pairs;
          put(merged, {{0, 3}}, work.heads);
        }
        EXPECT_EQ(planned_pairs, pairs * 4);
        EXPECT_EQ(merged.size(), 12);
        for (const RankTransfer& t : plan.transfers) {
          EXPECT_EQ(t.bytes, bytes_of(p, t));
          EXPECT_NE(t.from, t.to);
          EXPECT_NE(t.content, TransferContent::keys);
          const RankWork& to = plan.ranks[static_cast<std::size_t>(t.to)];
          if (t.content == TransferContent::partials) {
            EXPECT_EQ(t.chunks, chunks[static_cast<std::size_t>(t.from)]);
            EXPECT_EQ(t.heads, to.heads);
            EXPECT_EQ(t.indices, (std::vector<IndexRange>{{0, 3}}));
            EXPECT_TRUE(partials.insert({t.from, t.to}).second);
          } else if (t.content == TransferContent::query) {
            EXPECT_EQ(t.heads, (IndexRange{0, 4}));
            EXPECT_TRUE(queries.insert({t.from, t.to}).second);
          } else {
            EXPECT_EQ(t.heads, plan.ranks[static_cast<std::size_t>(t.from)].heads);
          }
        }
        for (Index from = 0; from < ranks; ++from) {
          for (Index to = 0; to < ranks; ++to) {
            const bool computes = chunks[static_cast<std::size_t>(from)] > 0;
            const bool merges = plan.ranks[static_cast<std::size_t>(to)].heads.size() > 0;
            EXPECT_EQ(partials.contains({from, to}), computes && merges && from != to);
            const bool holds =
                p.row_starts[static_cast<std::size_t>(from)] < p.row_starts[static_cast<std::size_t>(from) + 1];
            EXPECT_EQ(queries.contains({from, to}), holds && chunks[static_cast<std::size_t>(to)] > 0 && from != to);
          }
        }
      }
    }
  }
}

// ---- bytes

DistributedProblem even_problem(Index length, Index ranks, Index heads, Index kv_heads, Index size = 128) {
  return {.row_starts = split_evenly(length, ranks),
          .key_starts = split_evenly(length, ranks),
          .num_heads = heads,
          .num_kv_heads = kv_heads,
          .head_size = size,
          .value_head_size = size};
}

TEST(Shards, BytesAreThoseOfTheFormulas) {
  for (const Index ranks : {1, 2, 4, 8}) {
    const Index length = 4096, heads = 32, kv_heads = 8, sizes = 256;
    const DistributedProblem p = even_problem(length, ranks, heads, kv_heads);
    const DistributedPlan by_heads = plan_heads(p), by_rows = plan_rows(p);
    for (Index r = 0; r < ranks; ++r) {
      EXPECT_EQ(by_heads.received_bytes(r), (ranks - 1) * (length / ranks) * (heads + kv_heads) * sizes * 4 / ranks);
      EXPECT_EQ(by_rows.received_bytes(r), (ranks - 1) * (length / ranks) * kv_heads * sizes * 4);
    }
    EXPECT_EQ(by_rows.ranks[0].buffer_bytes, 2 * length * sizes * 4);
  }
  // Decoding: a million keys on eight ranks.
  DistributedProblem decode{.row_starts = {0, 1, 1, 1, 1, 1, 1, 1, 1},
                            .key_starts = split_evenly(1 << 20, 8, kAttentionChunkKeys),
                            .num_heads = 32,
                            .num_kv_heads = 8,
                            .head_size = 128,
                            .value_head_size = 128};
  const DistributedPlan plan = plan_keys(decode);
  for (Index r = 0; r < 8; ++r) {
    const Index partials = 7 * 128 * 4 * 130 * 4;  // from 7 ranks, 128 chunks, 4 heads
    EXPECT_EQ(plan.received_bytes(r), partials + (r == 0 ? 7 * 4 * 128 * 4 : 32 * 128 * 4));
  }
  EXPECT_DOUBLE_EQ(plan.imbalance(), 1);
}

TEST(Shards, OnlyTheKeysOfAWindowCrossABorder) {
  for (const Index ranks : {2, 5, 8}) {
    DistributedProblem p = even_problem(8000, ranks, 8, 8);
    p.visibility = {.causal = true, .window = {.left = 100}};
    const DistributedPlan plan = plan_rows(p);
    for (Index r = 0; r < ranks; ++r) EXPECT_EQ(plan.received_bytes(r), r == 0 ? 0 : 100 * 8 * 256 * 4);
    EXPECT_EQ(static_cast<Index>(plan.transfers.size()), ranks - 1);
  }
}

TEST(Shards, OnlyDocumentsThatABorderCutsAreSent) {
  DistributedProblem p = even_problem(4000, 4, 8, 8);
  p.visibility.query_starts = p.visibility.key_starts = {0, 700, 1000, 1900, 2150, 3000, 4000};
  const DistributedPlan plan = plan_rows(p);  // borders at 1000, 2000 and 3000: only 1900:2150 is cut
  ASSERT_EQ(plan.transfers.size(), 2U);
  EXPECT_EQ(plan.transfers[0].to, 1);
  EXPECT_EQ(plan.transfers[0].from, 2);
  EXPECT_EQ(plan.transfers[0].indices, (std::vector<IndexRange>{{2000, 2150}}));
  EXPECT_EQ(plan.transfers[1].indices, (std::vector<IndexRange>{{1900, 2000}}));
}

// ---- balance

TEST(Shards, CausalRowsAreBalanced) {
  for (const Index length : {4096, 131072}) {
    for (Index ranks = 1; ranks <= 64; ++ranks) {
      DistributedProblem p = even_problem(length, ranks, 1, 1);
      p.visibility.causal = true;
      // The caller's equal shares: moving rows costs half of a rank's rows, once as query and once as context.
      const DistributedPlan plan = plan_rows(p, balance_rows(p.visibility, p.row_starts, length));
      EXPECT_LE(plan.imbalance(), kMaxImbalance) << length << " " << ranks;
      const double keys = static_cast<double>((ranks - 1) * (length / ranks + 1) * 256 * 4);
      const double moved = (0.5 * static_cast<double>(length) / static_cast<double>(ranks) + 2) * 128 * 4;
      EXPECT_LE(static_cast<double>(plan.max_received_bytes()), keys + moved) << length << " " << ranks;
      // Shares of equal work: no row moves.
      p.row_starts = split_by_work(p.visibility, length, length, ranks);
      EXPECT_LE(plan_rows(p).imbalance(), kMaxImbalance) << length << " " << ranks;
      for (Index r = 0; r <= ranks; ++r) {
        const double root =
            static_cast<double>(length) * std::sqrt(static_cast<double>(r) / static_cast<double>(ranks));
        EXPECT_NEAR(static_cast<double>(p.row_starts[static_cast<std::size_t>(r)]), root, 1.5);
      }
    }
  }
  DistributedProblem equal = even_problem(4096, 64, 1, 1);
  equal.visibility.causal = true;
  EXPECT_GT(plan_rows(equal).imbalance(), 1.9);
}

Index work_of(const RowVisibility& v, Index num_rows, const std::vector<IndexRange>& rows) {
  Index pairs = 0;
  for (const Index i : indices_of(rows)) pairs += visible_keys(v, num_rows, num_rows, i).size();
  return pairs;
}

TEST(SplitByWork, ExceedsTheMeanByAtMostOneRow) {
  for (Index rows = 0; rows <= 40; ++rows) {
    for (Index ranks = 1; ranks <= 9; ++ranks) {
      for (const RowVisibility& v : visibilities(rows, rows)) {
        const Starts starts = split_by_work(v, rows, rows, ranks);
        ASSERT_EQ(static_cast<Index>(starts.size()), ranks + 1);
        ASSERT_TRUE(std::is_sorted(starts.begin(), starts.end()) && starts.front() == 0 && starts.back() == rows);
        Index heaviest = 0;
        for (Index i = 0; i < rows; ++i) heaviest = std::max(heaviest, visible_keys(v, rows, rows, i).size());
        const Index mean = work_of(v, rows, {{0, rows}}) / ranks;
        const auto balanced = balance_rows(v, split_evenly(rows, ranks), rows);
        for (std::size_t r = 0; r + 1 < starts.size(); ++r) {
          ASSERT_LE(work_of(v, rows, {{starts[r], starts[r + 1]}}), mean + heaviest + 1);
          ASSERT_LE(work_of(v, rows, balanced[r]), mean + 2 * heaviest + ranks);
        }
      }
    }
  }
}

TEST(BalanceRows, MovesTheLastRows) {
  // Work of the rows: 1 to 8, and 3, 7, 11, 15 of the ranks; the mean is 9.
  EXPECT_EQ(balance_rows({.causal = true}, Starts{0, 2, 4, 6, 8}, 8),
            (std::vector<std::vector<IndexRange>>{{{0, 2}, {7, 8}}, {{2, 4}}, {{4, 6}}, {{6, 7}}}));
  EXPECT_EQ(balance_rows({}, Starts{0, 2, 4}, 3), (std::vector<std::vector<IndexRange>>{{{0, 2}}, {{2, 4}}}));
  EXPECT_EQ(balance_rows({}, Starts{0, 4, 4}, 3), (std::vector<std::vector<IndexRange>>{{{0, 2}}, {{2, 4}}}));
}

TEST(SplitEvenly, CutsAtMultiplesOfTheGrain) {
  EXPECT_EQ(split_evenly(10, 4), (Starts{0, 2, 5, 7, 10}));
  EXPECT_EQ(split_evenly(2, 4), (Starts{0, 0, 1, 1, 2}));
  EXPECT_EQ(split_evenly(0, 2), (Starts{0, 0, 0}));
  EXPECT_EQ(split_evenly(5000, 2, 1024), (Starts{0, 2048, 5000}));
  EXPECT_EQ(split_evenly(1000, 3, 1024), (Starts{0, 0, 0, 1000}));
}

// ---- the choice

TEST(ChoosePlan, SendsTheFewestBytesAmongBalancedPlans) {
  const auto scheme = [](const DistributedProblem& p) { return choose_plan(p).scheme; };
  // Without a mask, heads send less than rows if N > H / Hkv + 1, and need N <= Hkv.
  EXPECT_EQ(scheme(even_problem(8192, 4, 32, 8)), DistributedScheme::rows);
  EXPECT_EQ(scheme(even_problem(8192, 5, 40, 10)), DistributedScheme::rows);  // a tie
  EXPECT_EQ(scheme(even_problem(8192, 8, 32, 8)), DistributedScheme::heads);
  EXPECT_EQ(scheme(even_problem(8192, 16, 32, 8)), DistributedScheme::rows);
  EXPECT_EQ(scheme(even_problem(8192, 4, 8, 8)), DistributedScheme::heads);
  EXPECT_EQ(scheme(even_problem(8192, 3, 8, 8)), DistributedScheme::rows);  // heads 2, 3, 3: not balanced
  EXPECT_TRUE(choose_plan(even_problem(8192, 1, 8, 8)).transfers.empty());
  DistributedProblem causal = even_problem(8192, 16, 32, 8);
  causal.visibility.causal = true;
  const DistributedPlan plan = choose_plan(causal);
  EXPECT_EQ(plan.scheme, DistributedScheme::rows);
  EXPECT_LE(plan.imbalance(), kMaxImbalance);
  DistributedProblem decode = even_problem(1 << 17, 8, 32, 8);
  decode.row_starts = {0, 0, 0, 0, 0, 0, 0, 0, 1};
  EXPECT_EQ(scheme(decode), DistributedScheme::keys);
  decode.key_starts[1] += 1;  // not a whole chunk
  EXPECT_EQ(scheme(decode), DistributedScheme::heads);
}

TEST(PlanText, ShowsEveryRank) {
  DistributedProblem p = even_problem(4096, 2, 8, 2);
  p.visibility.causal = true;
  EXPECT_EQ(
      plan_text(p, plan_rows(p, balance_rows(p.visibility, p.row_starts, 4096))),
      "scheme rows, 2 ranks\n"
      "rank   holds rows   holds keys      computes rows   heads   keys seen    work   receives     sends     memory\n"
      "   0       0:2048       0:2048   0:2048,3547:4096     0:8        4096   1.000    6.1 MiB   6.1 MiB   12.3 MiB\n"
      "   1    2048:4096    2048:4096          2048:3547     0:8        3547   1.000    6.1 MiB   6.1 MiB    6.9 MiB\n"
      "imbalance 1.000: the most work of a rank, divided by the mean\n");
  std::vector<std::vector<IndexRange>> many(2);
  for (Index i = 0; i < 4096; ++i) many[static_cast<std::size_t>(i % 2)].push_back({i, i + 1});
  EXPECT_NE(plan_text(p, plan_rows(p, many)).find("   0:1,2:3,4:5+2045   "), std::string::npos);
  EXPECT_EQ(scheme_name(DistributedScheme::heads), "heads");
  EXPECT_EQ(scheme_name(DistributedScheme::keys), "keys");
}

// ---- rejections

TEST(Shards, InvalidProblemsAreRejected) {
  const DistributedProblem good = even_problem(100, 2, 4, 2);
  const auto message = [&](auto change) {
    DistributedProblem p = good;
    change(p);
    return rejection([&] { plan_rows(p); });
  };
  using P = DistributedProblem;
  EXPECT_EQ(message([](P&) {}), "accepted");
  EXPECT_EQ(message([](P& p) { p.row_starts = {}; }),
            "plan_rows: row_starts is invalid; expected at least two entries, ascending from 0 to 0");
  EXPECT_EQ(message([](P& p) { p.row_starts = {0, 60, 50, 100}; }),
            "plan_rows: row_starts is invalid; expected at least two entries, ascending from 0 to 100");
  EXPECT_EQ(message([](P& p) { p.key_starts = {1, 50, 100}; }),
            "plan_rows: key_starts is invalid; expected at least two entries, ascending from 0 to 100");
  EXPECT_EQ(message([](P& p) { p.key_starts = {0, 100}; }),
            "plan_rows: row_starts has 3 entries and key_starts 2; expected one per rank and one more in both");
  EXPECT_EQ(message([](P& p) { p.num_kv_heads = 3; }),
            "plan_rows: num_kv_heads is 3; expected a divisor of num_heads, 4");
  EXPECT_EQ(message([](P& p) { p.head_size = 0; }), "plan_rows: head_size is 0; expected at least 1");
  EXPECT_EQ(message([](P& p) { p.batch = Index{1} << 60; }),
            "plan_rows: the extents are too large; expected products below 2^62");
  EXPECT_EQ(message([](P& p) { p.visibility.window.left = -1; }), "plan_rows: window is negative; expected at least 0");
  EXPECT_EQ(message([](P& p) { p.visibility.query_offset = Index{1} << 61; }),
            "plan_rows: query_offset is 2305843009213693952; expected at most 2^60 in magnitude");
  EXPECT_EQ(message([](P& p) { p.visibility.query_starts = {0, 100}; }),
            "plan_rows: key_starts is invalid; expected at least two entries, ascending from 0 to 100");
  EXPECT_EQ(
      message([](P& p) {
        p.visibility.query_starts = {0, 100};
        p.visibility.key_starts = {0, 50, 100};
      }),
      "plan_rows: query_starts and key_starts differ in length; expected one entry per packed sequence and one more");
  using Rows = std::vector<std::vector<IndexRange>>;
  EXPECT_EQ(rejection([&] { plan_rows(good, Rows{{{0, 100}}}); }),
            "plan_rows: computed_rows has 1 entries; expected one per rank, 2");
  for (const Rows& rows : {Rows{{{0, 50}}, {{50, 99}}}, Rows{{{0, 50}}, {{49, 100}}}, Rows{{{0, 50}}, {{51, 100}}},
                           Rows{{{0, 50}, {100, 101}}, {{50, 100}}}, Rows{{{0, 50}}, {{50, 100}, {100, 90}}}}) {
    EXPECT_EQ(rejection([&] { plan_rows(good, rows); }),
              "plan_rows: computed_rows is invalid; expected each of the 100 rows once");
  }
  EXPECT_EQ(rejection([&] { plan_keys(good); }), "plan_keys: key_starts is invalid; expected multiples of 1024");
  DistributedProblem packed = even_problem(2048, 2, 4, 2);
  packed.visibility.query_starts = packed.visibility.key_starts = {0, 2048};
  EXPECT_EQ(rejection([&] { plan_keys(packed); }),
            "plan_keys: query_starts is given; expected one sequence, as for attention_partials");
  EXPECT_EQ(rejection([&] { split_by_work({}, 10, 10, 0); }), "split_by_work: ranks is 0; expected at least 1");
  EXPECT_EQ(rejection([&] { split_evenly(-1, 2); }),
            "split_evenly: expected a length of at least 0, and ranks and grain of at least 1");
  EXPECT_EQ(rejection([&] { visible_keys({}, 3, 3, 3); }), "visible_keys: row is 3; expected 0 to 2");
  EXPECT_EQ(rejection([&] { choose_plan({}); }),
            "plan_rows: row_starts is invalid; expected at least two entries, ascending from 0 to 0");
}

// ---- time: figures by hand

// Two ranks, 8 rows and 8 keys, two heads of size 4 with elements of 4 bytes: 4 rows and 4 keys each.
DistributedProblem small_problem() {
  return {.row_starts = {0, 4, 8},
          .key_starts = {0, 4, 8},
          .num_heads = 2,
          .num_kv_heads = 2,
          .head_size = 4,
          .value_head_size = 4};
}
// One machine: 128 pairs of 16 operations each are 4 s.
constexpr NodeRates kSlowNode{.flops = 512, .read_bytes = 1e9, .link_bytes = 256, .message_latency = 0.5};

TEST(PredictedTimes, RowsHideTheNextHeadBehindTheCurrentOne) {
  const DistributedProblem problem = small_problem();
  // A head takes 32 pairs · 16 / 512 = 1 s, and its 4 keys from the other rank 0.5 s + 128 / 256 s = 1 s.
  PredictedTime time = predict_time(problem, plan_rows(problem), kSlowNode);
  EXPECT_EQ(time.seconds, 1 + std::max(1, 1) + 1);
  EXPECT_EQ(time.compute, 2);
  EXPECT_EQ(time.transfer, 2);
  NodeRates rates = kSlowNode;
  rates.link_bytes = 128;  // 1.5 s
  EXPECT_EQ(predict_time(problem, plan_rows(problem), rates).seconds, 1.5 + std::max(1.0, 1.5) + 1);
  rates.read_bytes = 64;  // a head reads 8 keys · 8 · 4 bytes in 4 s
  EXPECT_EQ(predict_time(problem, plan_rows(problem), rates).seconds, 1.5 + 4 + 4);
}

TEST(PredictedTimes, TheSlowestRankDecides) {
  DistributedProblem problem = small_problem();
  problem.visibility.causal = true;
  // Rank 0 needs no key of rank 1, but sends its own. Rank 1 has 26 of 36 pairs: 26 · 16 / 512 s a head.
  const PredictedTime time = predict_time(problem, plan_rows(problem), kSlowNode);
  EXPECT_EQ(time.seconds, 1 + 1 + 0.8125);
  EXPECT_EQ(time.slowest, 1);
  EXPECT_EQ(time.compute, 2 * 0.8125);
}

TEST(PredictedTimes, HeadsReturnTheirContext) {
  const DistributedProblem problem = small_problem();
  // In: 4 rows of query and 4 keys, 2 messages and 192 bytes. Compute: 64 pairs. Out: 64 bytes.
  const PredictedTime time = predict_time(problem, plan_heads(problem), kSlowNode);
  EXPECT_EQ(time.seconds, (2 * 0.5 + 0.75) + 2 + (0.5 + 0.25));
  EXPECT_EQ(time.compute, 2);
  EXPECT_EQ(time.transfer, 2.5);
  // Heads of two query heads each, on one rank: the context of a head returns while the next one is computed.
  DistributedProblem grouped = problem;
  grouped.num_heads = 4;
  grouped.num_kv_heads = 2;
  grouped.row_starts = {0, 8, 8};
  grouped.key_starts = {0, 8, 8};
  const DistributedPlan plan = plan_heads(grouped);  // rank 1 holds nothing, and computes one of two heads
  // In: 8 rows of two heads and 8 keys, 512 bytes. Compute: 128 pairs, 4 s. Out: 256 bytes.
  EXPECT_EQ(predict_time(grouped, plan, kSlowNode).seconds, (2 * 0.5 + 2) + 4 + (0.5 + 1));
}

TEST(PredictedTimes, KeysAreComputedBetweenTransfers) {
  const DistributedProblem problem{.row_starts = {0, 1, 1},
                                   .key_starts = {0, 1024, 2048},
                                   .num_heads = 2,
                                   .num_kv_heads = 1,
                                   .head_size = 4,
                                   .value_head_size = 4};
  const NodeRates rates{.flops = 32768, .read_bytes = 16384, .link_bytes = 8, .message_latency = 0.5};
  const PredictedTime time = predict_time(problem, plan_keys(problem), rates);
  // Query, 32 bytes; 32768 operations and 32768 bytes of keys; a partial result of 24 bytes; 16 bytes of context.
  EXPECT_EQ(time.transfer, (0.5 + 4) + (0.5 + 3) + (0.5 + 2));
  EXPECT_EQ(time.compute, std::max(1, 2) + 48.0 / 16384);
  EXPECT_EQ(time.seconds, time.transfer + time.compute);
}

TEST(PredictedTimes, OneRankIsOneMachine) {
  DistributedProblem problem = small_problem();
  problem.row_starts = problem.key_starts = {0, 8};
  for (const DistributedPlan& plan : {plan_rows(problem), plan_heads(problem)}) {
    const PredictedTime time = predict_time(problem, plan, kSlowNode);
    EXPECT_EQ(time.seconds, 4);
    EXPECT_EQ(time.transfer, 0);
  }
}

TEST(PredictedTimes, RejectRatesOutOfRange) {
  const DistributedProblem problem = small_problem();
  const DistributedPlan plan = plan_rows(problem);
  NodeRates rates = kSlowNode;
  rates.flops = 0;
  EXPECT_EQ(rejection([&] { predict_time(problem, plan, rates); }),
            "predict_time: flops is 0.000000; expected a finite number above 0");
  rates = kSlowNode;
  rates.link_bytes = std::numeric_limits<double>::infinity();
  EXPECT_NE(rejection([&] { predict_time(problem, plan, rates); }).find("link_bytes is inf"), std::string::npos);
  rates = kSlowNode;
  rates.message_latency = -1;
  EXPECT_NE(rejection([&] { predict_time(problem, plan, rates); }).find("message_latency is -1"), std::string::npos);
  DistributedProblem other = problem;
  other.row_starts = other.key_starts = {0, 8};
  EXPECT_EQ(rejection([&] { predict_time(other, plan, kSlowNode); }),
            "predict_time: plan has 2 ranks; expected 1, as in problem");
}

}  // namespace
}  // namespace regard::shards_test
