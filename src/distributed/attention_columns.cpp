// SPDX-License-Identifier: Apache-2.0
//
// attention_columns over several ranks. The sum for a key runs over all rows, in order, and is never divided.
//
//   heads   a rank computes key/value heads, with all keys
//   keys    a rank computes consecutive keys, or whole strips of the map, with the rows that attend to them
//
// Rows are sent to the ranks that compute the keys visible to them, one key/value head at a time.
// Read next: head_exchange.h, docs/derivations/ranks.md.
#include <algorithm>

#include "call_arrays.h"
#include "distributed/plan/row_intervals.h"
#include "regard/distributed/attention.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kColumnsName = "attention_columns";

// The strips of columns of the pooled map; none without a map.
struct Strips {
  Index count, num_keys;

  Index begin(Index strip) const { return strip * num_keys / count; }
  // The first one that begins at a key or after it.
  Index first_from(Index key) const { return num_keys > 0 ? (key * count + num_keys - 1) / num_keys : 0; }
  bool is_border(Index key) const { return key == num_keys || count == 0 || begin(first_from(key)) == key; }
  IndexRange of(const IndexRange& keys) const { return {first_from(keys.first), first_from(keys.end)}; }
};

// The keys at which the keys of a rank may begin: with a map, the boundaries of its strips.
std::vector<Index> possible_starts(const IndexRange& keys, const Strips& strips) {
  constexpr Index kGrain = 64;
  std::vector<Index> starts{keys.first};
  const auto add = [&](Index key) {
    if (starts.back() < key && key < keys.end) starts.push_back(key);
  };
  for (Index strip = 1; strip < strips.count; ++strip) add(strips.begin(strip));
  for (Index key = kGrain; strips.count == 0 && key < keys.end; key += kGrain) add(key);
  starts.push_back(keys.end);
  return starts;
}

// The first key of each rank, and the end. Each start is the candidate for which the number of pairs before it is
// nearest to an equal share.
std::vector<Index> balanced_starts(const RowIntervals& intervals, const std::vector<Index>& possible, Index num_ranks) {
  std::vector<Index> before{0};
  for (const Index pairs : intervals.pairs_by_keys(possible)) before.push_back(before.back() + pairs);
  const Index total = before.back();
  std::vector<Index> starts{possible.front()};
  std::size_t n = 0;
  for (Index r = 1; r < num_ranks; ++r) {
    const Index wanted = total / num_ranks * r + total % num_ranks * r / num_ranks;
    while (n + 1 < before.size() && before[n + 1] - wanted <= wanted - before[n]) ++n;
    starts.push_back(possible[n]);
  }
  starts.push_back(possible.back());
  return starts;
}

// For each pair of starts, the rows that attend to a key between them. Intervals never move backwards.
std::vector<IndexRange> rows_by_keys(const RowIntervals& intervals, Index num_rows, const std::vector<Index>& starts) {
  std::vector<IndexRange> rows(starts.size() - 1, {num_rows, 0});
  std::size_t first = 0, end = rows.size();
  for (Index row = 0; row < num_rows; ++row) {
    const IndexRange seen = intervals.of(row);
    for (; seen.size() > 0 && first < rows.size() && starts[first] < seen.end; ++first) rows[first].first = row;
  }
  for (Index row = num_rows; row-- > 0;) {
    const IndexRange seen = intervals.of(row);
    for (; seen.size() > 0 && end > 0 && seen.first < starts[end]; --end) rows[end - 1].end = row + 1;
  }
  return rows;
}

// For each rank: the rows that it reads (none given: all), the keys and the strips that it computes.
struct ColumnPlan {
  DistributedPlan plan;
  std::vector<std::vector<IndexRange>> rows, keys, strips;
};

ColumnPlan plan_by_heads(const DistributedProblem& problem, const IndexRange& keys, const Strips& strips) {
  DistributedPlan plan = plan_heads(problem);
  const std::vector<std::vector<IndexRange>> all_keys(plan.ranks.size(), {keys});
  const std::vector<std::vector<IndexRange>> all_strips(plan.ranks.size(), {strips.of(keys)});
  return {std::move(plan), {}, all_keys, all_strips};
}

ColumnPlan plan_by_keys(const DistributedProblem& problem, const IndexRange& keys, const Strips& strips) {
  const Index num_rows = problem.row_starts.back();
  const auto num_ranks = static_cast<Index>(problem.row_starts.size()) - 1;
  const RowIntervals intervals(problem.visibility, num_rows, strips.num_keys, kColumnsName);
  const std::vector<Index> starts = balanced_starts(intervals, possible_starts(keys, strips), num_ranks);
  const std::vector<IndexRange> rows = rows_by_keys(intervals, num_rows, starts);
  const std::vector<Index> pairs = intervals.pairs_by_keys(starts);
  ColumnPlan found{{.scheme = DistributedScheme::keys, .ranks = {}, .transfers = {}}, {}, {}, {}};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const IndexRange own{starts[r], starts[r + 1]};
    RankWork work;
    if (own.size() > 0 && rows[r].first < rows[r].end) {
      // The buffers have all rows; those that attend to none of the keys are not filled.
      work.rows = {{0, num_rows}};
      work.heads = {0, problem.num_heads};
      work.kv_heads = {0, problem.num_kv_heads};
      work.keys = {own};
      work.pairs = pairs[r] * problem.num_heads;
    }
    const bool works = !work.rows.empty();
    found.rows.push_back(works ? std::vector{rows[r]} : std::vector<IndexRange>{});
    found.keys.push_back(work.keys);
    found.strips.push_back(works ? std::vector{strips.of(own)} : std::vector<IndexRange>{});
    found.plan.ranks.push_back(std::move(work));
  }
  return found;
}

ColumnPlan plan_columns(const DistributedProblem& problem, const IndexRange& keys, const Strips& strips) {
  ColumnPlan by_heads = plan_by_heads(problem, keys, strips), by_keys = plan_by_keys(problem, keys, strips);
  const bool is_balanced = by_heads.plan.imbalance() <= std::max(by_keys.plan.imbalance(), kMaxImbalance);
  return is_balanced ? by_heads : by_keys;
}

// The map with rows and columns exchanged, so that strips of columns are indices, as keys are.
OutputView<4> transposed(OutputView<4> view) {
  std::swap(view.shape[2], view.shape[3]);
  std::swap(view.strides[2], view.strides[3]);
  return view;
}

// Errors that all ranks find, because their maps have the same shape.
void check_map(const OutputView<4>& map, const CallExtents& extents, const IndexRange& keys, const Strips& strips) {
  const auto reject = [](const std::string& text) { throw InvalidArgument(std::string(kColumnsName) + ": " + text); };
  if (map.absent()) return;
  if (map.shape[2] < 1 || map.shape[2] > extents.num_rows || map.shape[3] < 1 || map.shape[3] > extents.num_keys) {
    reject("pooled_map has " + std::to_string(map.shape[2]) + " × " + std::to_string(map.shape[3]) +
           " strips; expected 1 to " + std::to_string(extents.num_rows) + " of rows and 1 to " +
           std::to_string(extents.num_keys) + " of columns");
  }
  if (!strips.is_border(keys.first) || !strips.is_border(keys.end)) {
    reject("keys is " + std::to_string(keys.first) + " … " + std::to_string(keys.end) +
           "; expected whole strips of the " + std::to_string(strips.count) + " of pooled_map");
  }
}

void add_fields(Agreement& agreement, const InputView<4>& query, const InputView<4>& key, const ColumnsRequest& request,
                const AttentionColumns& outputs) {
  const OutputView<3>& mass = outputs.key_mass;
  const OutputView<4>& map = outputs.pooled_map;
  add_output(agreement, "key_mass", mass, 2);
  add_output(agreement, "pooled_map", map, 4);
  if (!mass.absent() && mass.shape != std::array{query.shape[0], query.shape[1], key.shape[2]})
    agreement.reject("key_mass does not have the shape (B, H, keys of this rank)");
  if (!map.absent() && (map.shape[0] != query.shape[0] || map.shape[1] != query.shape[1]))
    agreement.reject("pooled_map does not have the shape (B, H, strips, strips)");
  const ElementType type = query.type == ElementType::float64 ? query.type : ElementType::float32;
  const auto expect_type = [&](const std::string& name, const auto& view) {
    if (!view.absent() && view.type != type)
      agreement.reject(name + " has type " + type_name(view.type) + "; expected " + type_name(type));
  };
  expect_type("key_mass", mass);
  expect_type("pooled_map", map);
  agreement.add("cells", request.cells == MapCells::means ? "means" : "sums");
  agreement.add("keys", request.keys ? std::to_string((*request.keys)[0]) + " … " + std::to_string((*request.keys)[1])
                                     : "not set");
  agreement.add("row_max", request.row_max.absent() ? "missing" : "given");
  agreement.add("row_sum", request.row_sum.absent() ? "missing" : "given");
}

}  // namespace
}  // namespace internal

void attention_columns(const InputView<4>& query, const InputView<4>& key, const ColumnsRequest& request,
                       const AttentionColumns& outputs, const AttentionOptions& options, Ranks& ranks,
                       const Runtime& runtime) {
  using namespace internal;
  if (ranks.num_ranks() == 1) return attention_columns(query, key, request, outputs, options, runtime);
  Agreement agreement = agreement_on({kColumnsName, query, key, {}, options});
  add_fields(agreement, query, key, request, outputs);
  const auto check = [&](const InputView<4>& q, const InputView<4>& k, const InputView<4>&, const AttentionOptions& o,
                         const Runtime& with) { attention_columns(q, k, request, {}, o, with); };
  const WholeCall call = agree_on_call({kColumnsName, query, key, {}, options}, agreement, check, ranks, runtime.stop);
  if (call.extents.batch * call.extents.num_heads == 0) return;
  const std::array<Index, 2> asked = request.keys.value_or(std::array{Index{0}, call.extents.num_keys});
  const IndexRange keys{asked[0], asked[1]};
  const OutputView<4> map_by_strips = transposed(outputs.pooled_map);
  const Strips strips{map_by_strips.shape[2], call.extents.num_keys};
  check_map(outputs.pooled_map, call.extents, keys, strips);
  run_call(ranks, [&] {
    const ColumnPlan columns = plan_columns(call.problem, keys, strips);
    CallArrays arrays;
    const MaskArrays masks(arrays, call, options, true);
    const std::size_t q = arrays.row_input(query, call);
    const std::size_t row_max = arrays.row_input(request.row_max, call);
    const std::size_t row_sum = arrays.row_input(request.row_sum, call);
    for (const std::size_t of_rows : {masks.mask, masks.bias, q, row_max, row_sum}) {
      if (CallArray* const array = arrays.find(of_rows)) array->taken = columns.rows;
    }
    const std::size_t k = arrays.input(held(key, call.keys.first), HeldIndices::keys, ArrayHeads::key_value);
    const std::size_t mass = arrays.output(outputs.key_mass, HeldIndices::keys, ArrayHeads::query, call.keys.first);
    if (CallArray* const array = arrays.find(mass)) {
      array->taken = columns.keys;
      // No rank computes a key that is visible to no row.
      const IndexRange own = intersection(keys, call.keys);
      if (own.first < own.end)
        write_zeros(rows_of(array->held.output(), {own.first - call.keys.first, own.end - call.keys.first}), false);
    }
    const std::size_t map = arrays.output(map_by_strips, HeldIndices::all, ArrayHeads::query, 0);
    if (CallArray* const array = arrays.find(map)) {
      array->taken = columns.strips;
      write_zeros(rows_of(map_by_strips, strips.of(keys)), false);
    }
    const auto rank = static_cast<std::size_t>(ranks.rank());
    HeadExchange exchange(call.problem, columns.plan, arrays.take(), ranks.messages(), runtime.stop, true);
    exchange.run([&](const HeadWork& work) {
      const LocalArrays in(work.arrays);
      const IndexRange& own = columns.keys[rank].front();
      for_each_strip(call, options, masks, work, [&](const AttentionOptions& o, const IndexRange&) {
        attention_columns(in.input(q), in.input(k),
                          {in.input3(row_max), in.input3(row_sum), request.cells, std::array{own.first, own.end}},
                          {in.output3(mass), transposed(in.output(map))}, o, runtime);
      });
    });
  });
}

}  // namespace regard::inline v0
