// SPDX-License-Identifier: Apache-2.0
//
// Calls over 4 ranks, and the bytes that each rank should send to each other one in them: those of docs/derivations/
// ranks.md. Rank 0 prints
//
//     section, name, sender, receiver, bytes
//
// and count_bytes.cpp writes what was sent. Contents do not matter, only extents. Read next: volume_test.py.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "regard/distributed/attention.h"
#include "regard/distributed/mpi.h"

namespace {

using namespace regard;

using Bytes = std::vector<std::vector<Index>>;  // [sender][receiver]

struct Array {
  std::vector<float> numbers;
  std::array<Index, 4> shape;
  explicit Array(const std::array<Index, 4>& extents)
      : numbers(static_cast<std::size_t>(extents[0] * extents[1] * extents[2] * extents[3]), 0.5F), shape(extents) {}
  InputView<4> input() const { return TensorView<const float, 4>(numbers.data(), shape); }
  OutputView<4> output() { return TensorView<float, 4>(numbers.data(), shape); }
  TensorView<float, 3> by_row() { return {numbers.data(), {shape[0], shape[1], shape[2]}}; }
};

Index at(const std::vector<Index>& starts, Index rank) { return starts[static_cast<std::size_t>(rank)]; }
Index size(const std::vector<Index>& starts, Index rank) { return at(starts, rank + 1) - at(starts, rank); }

// The calls of a program, each in its own section.
class Sections {
 public:
  explicit Sections(Ranks& ranks) : ranks_(ranks) {}
  void run(const std::string& name, const Bytes& expected, const std::function<void()>& call) {
    MPI_Pcontrol(++section_);
    call();
    MPI_Pcontrol(0);
    if (ranks_.rank() != 0) return;
    for (std::size_t from = 0; from < expected.size(); ++from) {
      for (std::size_t to = 0; to < expected.size(); ++to)
        std::printf("%d %s %zu %zu %lld\n", section_, name.c_str(), from, to,
                    static_cast<long long>(expected[from][to]));
    }
  }
  Bytes none() const {
    const auto count = static_cast<std::size_t>(ranks_.num_ranks());
    return Bytes(count, std::vector<Index>(count));
  }
  Ranks& ranks() { return ranks_; }

 private:
  Ranks& ranks_;
  int section_ = 0;
};

struct Call {
  DistributedProblem problem;
  AttentionOptions options;

  Array of_rows(Index rank, Index head_size) const {
    return Array({1, problem.num_heads, size(problem.row_starts, rank), head_size});
  }
  Array of_keys(Index rank, Index head_size) const {
    return Array({1, problem.num_kv_heads, size(problem.key_starts, rank), head_size});
  }
};

void forward(Sections& sections, const std::string& name, DistributedScheme scheme, const Call& call) {
  const DistributedPlan plan = choose_plan(call.problem);
  if (plan.scheme != scheme) {
    std::fprintf(stderr, "%s: the scheme is %s\n", name.c_str(), std::string(scheme_name(plan.scheme)).c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  Bytes expected = sections.none();
  for (const RankTransfer& transfer : plan.transfers)
    expected[static_cast<std::size_t>(transfer.from)][static_cast<std::size_t>(transfer.to)] += transfer.bytes;
  const Index r = sections.ranks().rank();
  const Array query = call.of_rows(r, call.problem.head_size), key = call.of_keys(r, call.problem.head_size),
              value = call.of_keys(r, call.problem.value_head_size);
  Array context = call.of_rows(r, call.problem.value_head_size);
  sections.run(name, expected, [&] {
    attention_forward(query.input(), key.input(), value.input(), {.context = context.output()}, call.options,
                      sections.ranks());
  });
}

// A forward pass, and then the backward pass in a section of its own.
void backward(Sections& sections, const std::string& name, const Call& call, const Bytes& expected) {
  const DistributedProblem& p = call.problem;
  const Index r = sections.ranks().rank();
  const Array query = call.of_rows(r, p.head_size), key = call.of_keys(r, p.head_size),
              value = call.of_keys(r, p.value_head_size);
  Array context = call.of_rows(r, p.value_head_size), row_max = call.of_rows(r, 1), row_sum = row_max;
  attention_forward(query.input(), key.input(), value.input(),
                    {.context = context.output(), .row_max = row_max.by_row(), .row_sum = row_sum.by_row()},
                    call.options, sections.ranks());
  Array grad_query = query, grad_key = key, grad_value = value;
  sections.run(name, expected, [&] {
    attention_backward(
        query.input(), key.input(), value.input(),
        {.context = context.input(),
         .row_max = row_max.by_row(),
         .row_sum = row_sum.by_row(),
         .grad_context = context.input(),
         .fingerprint = kUncheckedFingerprint},
        {.grad_query = grad_query.output(), .grad_key = grad_key.output(), .grad_value = grad_value.output()},
        call.options, sections.ranks());
  });
}

// Rows and keys go to the rank of their head, gradients come back.
void backward_by_heads(Sections& sections, const std::string& name, const Call& call) {
  const DistributedProblem& p = call.problem;
  const DistributedPlan plan = plan_heads(p);
  Bytes expected = sections.none();
  for (Index from = 0; from < sections.ranks().num_ranks(); ++from) {
    for (Index to = 0; to < sections.ranks().num_ranks(); ++to) {
      if (from == to) continue;
      const RankWork &sender = plan.ranks[static_cast<std::size_t>(from)],
                     &receiver = plan.ranks[static_cast<std::size_t>(to)];
      const Index floats =
          size(p.row_starts, from) * receiver.heads.size() * (p.head_size + 2 * p.value_head_size + 2) +
          size(p.key_starts, from) * receiver.kv_heads.size() * (p.head_size + p.value_head_size) +
          size(p.row_starts, to) * sender.heads.size() * p.head_size +
          size(p.key_starts, to) * sender.kv_heads.size() * (p.head_size + p.value_head_size);
      expected[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] = floats * 4;
    }
  }
  backward(sections, name, call, expected);
}

// Keys are gathered. Sums of their gradients go from each rank to the next for every query head, from the last rank to
// the first between two query heads of a key/value head, and finally to the holder. `seen` are the keys that a rank
// receives from another one; `shared` those that both of two neighbors see.
void backward_by_rows(Sections& sections, const std::string& name, const Call& call,
                      const std::function<Index(Index from, Index to)>& seen, Index shared, bool all_ranks_share) {
  const DistributedProblem& p = call.problem;
  const Index both = p.head_size + p.value_head_size, last = sections.ranks().num_ranks() - 1;
  Bytes expected = sections.none();
  for (Index from = 0; from <= last; ++from) {
    for (Index to = 0; to <= last; ++to) {
      if (from == to) continue;
      Index heads = 0;  // times key, for the sums
      Index completed = 0;
      if (to == from + 1) heads = p.num_heads;
      if (all_ranks_share ? from == last && to == 0 : to + 1 == from) heads += p.num_heads - p.num_kv_heads;
      if (all_ranks_share ? from == last : to + 1 == from)
        completed = all_ranks_share ? size(p.key_starts, to) : shared;
      expected[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] =
          (seen(from, to) * p.num_kv_heads + shared * heads + completed * p.num_kv_heads) * both * 4;
    }
  }
  backward(sections, name, call, expected);
}

// Partial results go to the rank that merges their head, and the context of the head to all.
void decode(Sections& sections, const std::string& name, Index batch, Index rows, Index heads, Index columns,
            const std::vector<Index>& keys) {
  const Index num_ranks = sections.ranks().num_ranks(), r = sections.ranks().rank();
  const std::vector<Index> head_starts = split_evenly(heads, num_ranks);
  Bytes expected = sections.none();
  for (Index from = 0; from < num_ranks; ++from) {
    for (Index to = 0; to < num_ranks; ++to) {
      if (from == to) continue;
      const Index floats = attention_num_chunks(keys[static_cast<std::size_t>(from)]) * batch * rows *
                               size(head_starts, to) * (columns + 2) +
                           batch * rows * size(head_starts, from) * columns;
      expected[static_cast<std::size_t>(from)][static_cast<std::size_t>(to)] = floats * 4;
    }
  }
  const Index own = keys[static_cast<std::size_t>(r)];
  KvCache<float> cache({.num_sequences = batch,
                        .num_kv_heads = 1,
                        .head_size = 16,
                        .value_head_size = columns,
                        .capacity = std::max<Index>(1, own)});
  const Array key({batch, 1, own, 16}), value({batch, 1, own, columns}), query({batch, heads, rows, 16});
  if (own > 0) cache.append(key.input(), value.input());
  Array context({batch, heads, rows, columns});
  sections.run(name, expected, [&] {
    attention_decode(query.input(), cache, {.context = context.output()}, {.causal = true}, sections.ranks());
  });
}

void run(Ranks& ranks) {
  Sections sections(ranks);
  const Index n = ranks.num_ranks();
  const auto call = [n](Index length, Index heads, Index kv_heads, Index head_size, Index value_head_size) {
    return Call{.problem = {.row_starts = split_evenly(length, n),
                            .key_starts = split_evenly(length, n),
                            .num_heads = heads,
                            .num_kv_heads = kv_heads,
                            .head_size = head_size,
                            .value_head_size = value_head_size},
                .options = {}};
  };

  Call by_heads = call(2048, 8, 8, 64, 64);
  forward(sections, "heads", DistributedScheme::heads, by_heads);
  by_heads.problem.visibility.causal = by_heads.options.causal = true;
  backward_by_heads(sections, "backward", by_heads);
  by_heads = call(2048, 8, 4, 32, 64);
  by_heads.problem.row_starts = {0, 0, 750, 2000, 2048};
  by_heads.problem.key_starts = {0, 600, 650, 2048, 2048};
  forward(sections, "heads_uneven", DistributedScheme::heads, by_heads);
  backward_by_heads(sections, "backward_uneven", by_heads);

  Call by_rows = call(4096, 8, 2, 64, 64);
  forward(sections, "rows", DistributedScheme::rows, by_rows);
  by_rows.problem.visibility.causal = by_rows.options.causal = true;
  forward(sections, "rows_causal", DistributedScheme::rows, by_rows);
  by_rows = call(8192, 8, 2, 128, 128);
  by_rows.problem.visibility.causal = by_rows.options.causal = true;
  by_rows.options.window.left = 511;
  by_rows.problem.visibility.window = by_rows.options.window;
  forward(sections, "rows_window", DistributedScheme::rows, by_rows);

  // Rows in whole blocks of 60: none moves.
  by_rows = call(4080, 8, 2, 64, 64);
  backward_by_rows(
      sections, "backward_rows", by_rows, [&](Index from, Index) { return size(by_rows.problem.key_starts, from); },
      4080, true);
  // A mask by element stays with its rows, where query heads would otherwise be divided.
  by_rows = call(4080, 8, 4, 64, 64);
  const std::vector<char> mask(static_cast<std::size_t>(4080 / n * 4080), 1);
  by_rows.options.mask = InputView<4>(mask.data(), ElementType::boolean, {1, 1, 4080 / n, 4080}, {0, 0, 4080, 1});
  backward_by_rows(
      sections, "backward_mask", by_rows, [&](Index from, Index) { return size(by_rows.problem.key_starts, from); },
      4080, true);
  by_rows = call(8160, 8, 2, 64, 64);
  by_rows.problem.visibility.causal = by_rows.options.causal = true;
  by_rows.options.window.left = 511;
  backward_by_rows(
      sections, "backward_rows_window", by_rows, [](Index from, Index to) { return to == from + 1 ? 511 : 0; }, 511,
      false);

  // Borders at 1024, 2048 and 3072: three documents are cut, or none.
  Call documents = call(4096, 8, 2, 64, 64);
  documents.options.causal = documents.problem.visibility.causal = true;
  const auto with_documents = [&](const char* name, const std::vector<Index>& starts) {
    documents.options.query_starts = documents.options.key_starts = InputView<1>(starts);
    documents.problem.visibility.query_starts = documents.problem.visibility.key_starts = starts;
    forward(sections, name, DistributedScheme::rows, documents);
  };
  with_documents("rows_documents", {0, 400, 900, 1300, 1900, 2200, 2900, 3600, 4096});
  with_documents("rows_uncut_documents", {0, 512, 1024, 1536, 2048, 2560, 3072, 3584, 4096});

  decode(sections, "decode", 1, 8, 32, 128, {32768, 32768, 32768, 32768});
  decode(sections, "decode_uneven", 2, 4, 30, 64, {20480, 1024, 0, 30000});
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, num_ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
  if (num_ranks != 4) {
    std::fprintf(stderr, "volume_check: %d ranks; expected 4\n", num_ranks);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  try {
    Ranks ranks = mpi_ranks(MPI_COMM_WORLD);
    run(ranks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "volume_check: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
