// SPDX-License-Identifier: Apache-2.0
//
// Attention over two ranks, and how much of its messages is hidden behind computation. For each call it prints
//
//     name, scheme, seconds that a rank computes, seconds of its bytes at the given rate, seconds of the call, the last
//     divided by the larger of the two others, and processor seconds of the call
//
// Computation alone and the whole call take turns. Figures are those of the slower rank: medians, then minima, which
// other load changes less. Usage: two_hosts BITS_PER_SECOND ROUNDS. bench/two_hosts.sh runs it.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "regard/distributed/attention.h"
#include "regard/distributed/mpi.h"

namespace {

using namespace regard;

struct Call {
  const char* name;
  Index rows, keys, heads, kv_heads;
  bool backward = false;
};

class Array {
 public:
  Array(Index heads, Index length, Index head_size)
      : numbers_(static_cast<std::size_t>(heads * length * head_size)), shape_{1, heads, length, head_size} {
    unsigned state = 1;
    for (float& number : numbers_) {
      state = state * 1664525U + 1013904223U;
      number = static_cast<float>(state >> 8) / 8388608.F - 1.F;
    }
  }
  TensorView<float, 4> view() { return {numbers_.data(), shape_}; }
  TensorView<float, 3> by_row() { return {numbers_.data(), {1, shape_[1], shape_[2]}}; }

 private:
  std::vector<float> numbers_;
  std::array<Index, 4> shape_;
};

double processor_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

struct Seconds {
  std::vector<double> wall, processor;  // of the slower rank

  template <class F>
  void add(const F& run) {
    MPI_Barrier(MPI_COMM_WORLD);
    const auto start = std::chrono::steady_clock::now();
    const double before = processor_seconds();
    run();
    const double own[]{std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
                       processor_seconds() - before};
    double slower[2]{};
    MPI_Allreduce(own, slower, 2, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    wall.push_back(slower[0]);
    processor.push_back(slower[1]);
  }
};

// The number below which a share of the others is.
double quantile(std::vector<double> numbers, double share) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[static_cast<std::size_t>(share * static_cast<double>(numbers.size()))];
}

void measure(const Call& call, double bytes_per_second, int rounds, Ranks& ranks) {
  constexpr Index kHeadSize = 128;
  const Index own = call.rows / 2, own_keys = call.keys / 2;
  const Runtime one_thread{.num_threads = 1};
  const DistributedProblem problem{.row_starts = {0, own, call.rows},
                                   .key_starts = {0, own_keys, call.keys},
                                   .num_heads = call.heads,
                                   .num_kv_heads = call.kv_heads,
                                   .head_size = kHeadSize,
                                   .value_head_size = kHeadSize};
  DistributedPlan plan = plan_heads(problem);
  if (!call.backward && plan_rows(problem).max_received_bytes() <= plan.max_received_bytes()) plan = plan_rows(problem);
  const bool by_heads = plan.scheme == DistributedScheme::heads;
  // Backward: query, context, its gradient and the softmax state go with keys and values to the rank of their head, and
  // three gradients come back (docs/derivations/ranks.md).
  const double bytes = call.backward ? static_cast<double>(own * call.heads / 2 * (4 * kHeadSize + 2) * 4 +
                                                           own_keys * call.kv_heads / 2 * 4 * kHeadSize * 4)
                                     : static_cast<double>(plan.max_received_bytes());
  Array query(call.heads, own, kHeadSize), key(call.kv_heads, own_keys, kHeadSize),
      value = key, context = query, row_max(call.heads, own, 1), row_sum = row_max;
  const AttentionOutputs outputs{.context = context.view(), .row_max = row_max.by_row(), .row_sum = row_sum.by_row()};
  // What a rank computes: its rows and all keys, or half of the heads.
  const Index rows = by_heads ? call.rows : own, part = by_heads ? 2 : 1;
  Array part_query(call.heads / part, rows, kHeadSize), all_keys(call.kv_heads / part, call.keys, kHeadSize),
      part_context = part_query, part_max(call.heads / part, rows, 1), part_sum = part_max;
  const AttentionOutputs part_outputs{
      .context = part_context.view(), .row_max = part_max.by_row(), .row_sum = part_sum.by_row()};
  Seconds alone, together;
  if (call.backward) {
    Array grad_query = query, grad_key = key, grad_value = key;
    Array part_grad_query = part_query, all_grad_keys = all_keys, all_grad_values = all_keys;
    attention_forward(query.view(), key.view(), value.view(), outputs, {}, ranks, one_thread);
    attention_forward(part_query.view(), all_keys.view(), all_keys.view(), part_outputs, {}, one_thread);
    for (int n = 0; n < rounds; ++n) {
      alone.add([&] {
        attention_backward(part_query.view(), all_keys.view(), all_keys.view(),
                           {.context = part_context.view(),
                            .row_max = part_max.by_row(),
                            .row_sum = part_sum.by_row(),
                            .grad_context = part_query.view(),
                            .fingerprint = kUncheckedFingerprint},
                           {.grad_query = part_grad_query.view(),
                            .grad_key = all_grad_keys.view(),
                            .grad_value = all_grad_values.view()},
                           {}, one_thread);
      });
      together.add([&] {
        attention_backward(
            query.view(), key.view(), value.view(),
            {.context = context.view(),
             .row_max = row_max.by_row(),
             .row_sum = row_sum.by_row(),
             .grad_context = query.view(),
             .fingerprint = kUncheckedFingerprint},
            {.grad_query = grad_query.view(), .grad_key = grad_key.view(), .grad_value = grad_value.view()}, {}, ranks,
            one_thread);
      });
    }
  } else {
    for (int n = 0; n < rounds; ++n) {
      alone.add([&] {
        attention_forward(part_query.view(), all_keys.view(), all_keys.view(), part_outputs, {}, one_thread);
      });
      together.add([&] { attention_forward(query.view(), key.view(), value.view(), outputs, {}, ranks, one_thread); });
    }
  }
  if (ranks.rank() != 0) return;
  std::printf("%-38s %-6s", call.name, by_heads ? "heads" : "rows");
  const double transfer = bytes / bytes_per_second;
  for (const double share : {0.5, 0.0}) {
    const double compute = quantile(alone.wall, share), wall = quantile(together.wall, share);
    std::printf("  %8.3f %8.3f %8.3f %6.3f %9.3f", compute, transfer, wall, wall / std::max(compute, transfer),
                quantile(together.processor, share));
  }
  std::printf("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  const double bits_per_second = argc > 1 ? std::atof(argv[1]) : 1e9;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  try {
    Ranks ranks = mpi_ranks(MPI_COMM_WORLD);
    if (ranks.num_ranks() != 2) throw InvalidArgument("two_hosts: expected two ranks");
    if (ranks.rank() == 0)
      std::printf("%-38s %-6s  %8s %8s %8s %6s %9s  %8s %8s %8s %6s %9s\n", "call", "scheme", "compute", "transfer",
                  "wall", "ratio", "processor", "compute", "transfer", "wall", "ratio", "processor");
    for (const Call& call :
         {Call{"128 rows, 8192 keys, 32 heads", 128, 8192, 32, 32}, Call{"512 tokens, 128 heads", 512, 512, 128, 128},
          Call{"1024 tokens, 32 heads", 1024, 1024, 32, 32}, Call{"2048 tokens, 32 heads", 2048, 2048, 32, 32},
          Call{"4096 tokens, 32:8 heads", 4096, 4096, 32, 8},
          Call{"1024 tokens, 32 heads, backward", 1024, 1024, 32, 32, true}})
      measure(call, bits_per_second / 8, rounds, ranks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
