// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans of attention over several ranks: the rows and keys that each rank holds, computes and receives from other
/// ranks.
///
/// @verbatim
///     scheme   a rank computes               it receives
///     heads    some heads, all rows          rows and keys of its heads; context returns to the owner of a row
///     rows     some rows, all heads          the keys visible to its rows, one key/value head at a time
///     keys     partial results of its keys   query rows; then partial results of its heads, merged in key order
/// @endverbatim
///
/// This is pure arithmetic: nothing is sent here. All ranks derive the same plan from the same problem. With each
/// scheme, the results are bit-identical to those computed on one machine. docs/derivations/ranks.md derives the
/// communication volumes.
///
/// Read next: src/distributed/plan/plans.cpp.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "regard/attention.h"
#include "regard/export.h"
#include "regard/tensor.h"

namespace regard::inline v0 {

/// The indices `first ≤ i < end`.
struct IndexRange {
  Index first = 0;  ///< First index.
  Index end = 0;    ///< One past the last index; at least `first`.
  /// Returns the number of indices.
  Index size() const { return end - first; }
  /// Returns whether both ends are equal.
  bool operator==(const IndexRange&) const = default;
};

/// The keys that are visible to a row, as far as this is known without reading a mask.
///
/// Members have the same meaning as in AttentionOptions. Options that only hide additional keys (masks, segments, key
/// lengths) can be added to a call without changing its plan; a call with `prefix` is planned without `causal`.
struct RowVisibility {
  bool causal = false;  ///< Whether the query at position p attends only to keys `j ≤ p`.
  /// Position of row 0 of each sequence, or how rows are aligned with keys.
  std::variant<Index, QueryAlignment> query_offset = Index{0};
  Window window{};                    ///< Sliding window around the position of the query.
  std::vector<Index> query_starts{};  ///< First row of each packed sequence, n + 1 entries; empty for one sequence.
  std::vector<Index> key_starts{};    ///< First key of each packed sequence, n + 1 entries; empty for one sequence.
};

/// An attention call whose rows and keys are distributed over ranks.
///
/// Rank r holds the rows `row_starts[r] ≤ i < row_starts[r + 1]` of query and context, and the keys
/// `key_starts[r] ≤ j < key_starts[r + 1]` of key and value, of all heads and batch entries. Ranges may be empty.
struct DistributedProblem {
  std::vector<Index> row_starts{};  ///< First row of each rank, N + 1 entries from 0 to L.
  std::vector<Index> key_starts{};  ///< First key of each rank, N + 1 entries from 0 to S.
  Index batch = 1;                  ///< B, number of batch entries.
  Index num_heads = 1;              ///< H, number of query heads.
  Index num_kv_heads = 1;           ///< Hkv, number of key/value heads; divides H.
  Index head_size = 64;             ///< D, head size of query and key.
  Index value_head_size = 64;       ///< Dv, head size of value.
  Index element_bytes = 4;          ///< Size of an element of query, key, value and context, in bytes.
  Index partial_bytes = 4;          ///< Size of an element of a partial result, in bytes.
  RowVisibility visibility{};       ///< Options that determine the keys visible to a row.
};

/// Scheme by which the work of an attention call is divided among ranks.
enum class DistributedScheme {
  heads,  ///< Each rank computes some heads (DeepSpeed-Ulysses, arXiv 2309.14509).
  rows,   ///< Each rank computes some rows with gathered keys (Llama 3, arXiv 2407.21783, section 3.3.2).
  keys    ///< Each rank computes partial results over its own keys (tree attention, arXiv 2408.04093).
};

/// The content of a transfer.
enum class TransferContent {
  query,     ///< Rows of query.
  keys,      ///< Rows of key and value.
  partials,  ///< Partial results of rows: for each chunk of keys, row_max, row_sum and Dv sums.
  context    ///< Rows of context.
};

/// A transfer from one rank to another.
struct RankTransfer {
  TransferContent content = TransferContent::query;  ///< Content of the transfer.
  Index from = 0;                                    ///< Sending rank.
  Index to = 0;                                      ///< Receiving rank.
  std::vector<IndexRange> indices{};                 ///< Rows (with `keys`: keys), in ascending order and not adjacent.
  IndexRange heads{};                                ///< Query heads (with `keys`: key/value heads).
  Index chunks = 1;                                  ///< With `partials`, the number of chunks per row; otherwise 1.
  Index bytes = 0;                                   ///< Size of the transfer, in bytes.
};

/// The work of one rank.
struct RankWork {
  std::vector<IndexRange> rows{};  ///< Rows, in ascending order and not adjacent.
  IndexRange heads{};              ///< Query heads; with `keys`, those whose partial results it merges.
  IndexRange kv_heads{};           ///< Key/value heads that it reads.
  std::vector<IndexRange> keys{};  ///< Keys visible to its rows, in ascending order and not adjacent.
  /// Number of (row, head, key) triples that it computes, per batch entry.
  Index pairs = 0;
  /// Memory for the data that it receives, in bytes. With `rows`, this holds two key/value heads at a time.
  Index buffer_bytes = 0;
};

/// A division of an attention call among ranks.
struct DistributedPlan {
  DistributedScheme scheme = DistributedScheme::rows;  ///< Scheme by which the work is divided.
  std::vector<RankWork> ranks{};                       ///< Work of each rank.
  /// The transfers, sorted by content, receiver and sender. Nothing is sent twice, or from a rank to itself.
  std::vector<RankTransfer> transfers{};

  /// Returns the number of bytes that a rank receives.
  ///
  /// @param rank  The rank.
  /// @return The sum over its transfers.
  REGARD_EXPORT Index received_bytes(Index rank) const;
  /// Returns the largest number of bytes that any rank receives.
  REGARD_EXPORT Index max_received_bytes() const;
  /// Returns the maximum number of pairs of a rank divided by the mean over ranks; 1 if there are no pairs.
  REGARD_EXPORT double imbalance() const;
};

/// Maximum imbalance up to which choose_plan() compares plans by the number of bytes alone.
inline constexpr double kMaxImbalance = 1.05;

/// Returns the keys that are visible to a row.
///
/// @param visibility  Options that determine the keys visible to a row.
/// @param num_rows    L, number of rows.
/// @param num_keys    S, number of keys.
/// @param row         The row.
/// @return The keys, as one range; `{0, 0}` if no key is visible.
/// @throws InvalidArgument  as plan_rows() does, and if row is out of range.
REGARD_EXPORT IndexRange visible_keys(const RowVisibility& visibility, Index num_rows, Index num_keys, Index row);

/// Splits `length` indices into contiguous ranges of nearly equal length.
///
/// @param length  Number of indices.
/// @param ranks   N, number of ranges.
/// @param grain   All starts except the last are multiples of this number, such as kAttentionChunkKeys.
/// @return N + 1 starts, from 0 to length: `⌊r · ⌈length / grain⌉ / N⌋ · grain`.
/// @throws InvalidArgument  if length is negative, or if ranks or grain is below 1.
///
/// @par Example
/// @code{.cpp}
/// const std::vector<Index> starts = split_evenly(10, 3);  // {0, 3, 6, 10}
/// @endcode
REGARD_EXPORT std::vector<Index> split_evenly(Index length, Index ranks, Index grain = 1);

/// Splits the rows into contiguous ranges whose work is as equal as whole rows allow: for a causal mask, range r starts
/// at about `L · √(r / N)`. With these starts as row_starts, plan_rows() moves no rows.
///
/// @param visibility  Options that determine the keys visible to a row.
/// @param num_rows    L, number of rows.
/// @param num_keys    S, number of keys.
/// @param ranks       N, number of ranges.
/// @return N + 1 starts, from 0 to L. The number of pairs of a range exceeds the mean by at most the number of pairs of
///         one row plus 1.
/// @throws InvalidArgument  as plan_rows() does.
REGARD_EXPORT std::vector<Index> split_by_work(const RowVisibility& visibility, Index num_rows, Index num_keys,
                                               Index ranks);

/// Gives each rank about the same amount of work by moving rows from the ends of the ranges with more work than the
/// mean to ranks with less work. With equal shares and a causal mask, at most about half of a rank's rows move.
///
/// @param visibility  Options that determine the keys visible to a row.
/// @param row_starts  First row that each rank holds, N + 1 entries from 0 to L.
/// @param num_keys    S, number of keys.
/// @return For each rank, the rows that it computes, for plan_rows(), in ascending order and not adjacent. The number
///         of pairs of a rank exceeds the mean by at most the number of pairs of two rows plus N.
/// @throws InvalidArgument  as plan_rows() does.
REGARD_EXPORT std::vector<std::vector<IndexRange>> balance_rows(const RowVisibility& visibility,
                                                                std::span<const Index> row_starts, Index num_keys);

/// Plans the `heads` scheme: rank r has key/value heads `⌊r · Hkv / N⌋` to `⌊(r + 1) · Hkv / N⌋` and their query heads.
///
/// With equal shares of S keys and L rows, a rank receives `(N − 1) / N² · (L · H + S · Hkv) · (D + Dv)` elements.
///
/// @param problem  The attention call.
/// @return The plan. Ranks beyond the number of key/value heads compute nothing.
/// @throws InvalidArgument  as plan_rows() does.
REGARD_EXPORT DistributedPlan plan_heads(const DistributedProblem& problem);

/// Plans the `rows` scheme.
///
/// With equal shares of S keys that are all visible, a rank receives `(N − 1) / N · S · Hkv · (D + Dv)` elements of key
/// and value.
///
/// @param problem        The attention call.
/// @param computed_rows  For each rank, the rows that it computes, for example from balance_rows(). Each row must occur
///                       exactly once. Rows that a rank computes but does not hold are sent to it, and their context is
///                       sent back. If empty, each rank computes the rows that it holds.
/// @return The plan.
/// @throws InvalidArgument  in any of the following cases:
///                          - starts are not ascending from 0, or are not consistent with each other
///                          - computed_rows does not contain each row exactly once
///                          - an extent is below 1, num_kv_heads does not divide num_heads, or a product of extents
///                            exceeds 2⁶²
///                          - a window is negative or an offset exceeds 2⁶⁰
///
/// @par Example
/// @code{.cpp}
/// DistributedProblem problem{.row_starts = split_evenly(length, ranks), .key_starts = split_evenly(length, ranks)};
/// problem.visibility.causal = true;
/// const DistributedPlan plan = plan_rows(problem, balance_rows(problem.visibility, problem.row_starts, length));
/// std::puts(plan_text(problem, plan).c_str());
/// @endcode
REGARD_EXPORT DistributedPlan plan_rows(const DistributedProblem& problem,
                                        std::span<const std::vector<IndexRange>> computed_rows = {});

/// Plans the `keys` scheme, for a small number of rows and many keys (decoding). Rank r merges the partial results of
/// query heads `⌊r · H / N⌋` to `⌊(r + 1) · H / N⌋` in key order, and sends context to the owners of the rows.
///
/// A rank receives `C · L · H / N · (Dv + 2)` elements of partial results, excluding its own, where C is the number of
/// chunks of kAttentionChunkKeys keys.
///
/// @param problem  The attention call.
/// @return The plan.
/// @throws InvalidArgument  as plan_rows() does, and if a rank's first key is neither a multiple of kAttentionChunkKeys
///                          nor S, or if sequences are packed.
REGARD_EXPORT DistributedPlan plan_keys(const DistributedProblem& problem);

/// Chooses the plan that minimizes the largest number of bytes received by any rank.
///
/// Candidates are plan_heads() if N ≤ Hkv, plan_rows() with the rows that each rank holds and with the result of
/// balance_rows(), and plan_keys() if its conditions hold. Candidates with an imbalance above kMaxImbalance are
/// excluded; if none remains, the candidate with the lowest imbalance is chosen.
///
/// @param problem  The attention call.
/// @return The plan.
/// @throws InvalidArgument  as plan_rows() does.
///
/// @par Example
/// @code{.cpp}
/// const DistributedPlan plan = choose_plan(problem);
/// const Index bytes = plan.max_received_bytes();
/// @endcode
REGARD_EXPORT DistributedPlan choose_plan(const DistributedProblem& problem);

/// Returns the name of a scheme.
///
/// @param scheme  The scheme.
/// @return "heads", "rows" or "keys".
REGARD_EXPORT std::string_view scheme_name(DistributedScheme scheme);

/// Formats a plan: for each rank, the rows and keys that it holds, its work, the keys that it needs and the amount of
/// data that it receives and sends; then the imbalance.
///
/// @param problem  The attention call.
/// @param plan     Plan of the call.
/// @return The plan, as lines of text.
REGARD_EXPORT std::string plan_text(const DistributedProblem& problem, const DistributedPlan& plan);

}  // namespace regard::inline v0
