// SPDX-License-Identifier: Apache-2.0
//
// A single rank of MPI. Prints the threads of the process before and after its first call, then seconds of a call with
// and without ranks (fastest of the rounds, which alternate), and their ratio. Read next: one_rank_test.py.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <vector>

#include "regard/distributed/attention.h"
#include "regard/distributed/mpi.h"

namespace {

using namespace regard;

long threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

template <class F>
double seconds(const F& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void run() {
  constexpr Index kHeads = 8, kLength = 256, kHeadSize = 64;
  std::vector<float> query(kHeads * kLength * kHeadSize, 0.5F), context(query.size());
  const TensorView<const float, 4> in(query.data(), {1, kHeads, kLength, kHeadSize});
  const TensorView<float, 4> out(context.data(), {1, kHeads, kLength, kHeadSize});
  const Runtime one_thread{.num_threads = 1};
  const long before = threads();
  Ranks ranks = mpi_ranks(MPI_COMM_WORLD);
  attention_forward(in, in, in, {.context = out}, {}, ranks, one_thread);
  std::printf("%ld %ld\n", before, threads());
  double with = 1, without = 1;
  for (int round = 0; round < 300; ++round) {
    without = std::min(without, seconds([&] { attention_forward(in, in, in, {.context = out}, {}, one_thread); }));
    with = std::min(with, seconds([&] { attention_forward(in, in, in, {.context = out}, {}, ranks, one_thread); }));
  }
  std::printf("%.6f %.6f %.4f\n", with, without, with / without);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  try {
    run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "one_rank_check: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
