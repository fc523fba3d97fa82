// SPDX-License-Identifier: Apache-2.0
//
// How much the resident memory of each rank grows in attention_forward with the scheme rows. Each rank prints
//
//     layout, rank, growth, workspace of the same rows and head on one machine, two heads of keys and values (bytes)
//
// Few rows and many keys: the memory is that of the keys. Read next: memory_test.py.
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "regard/distributed/attention.h"
#include "regard/distributed/mpi.h"
#include "regard/plan.h"

namespace {

using namespace regard;

constexpr Index kHeads = 3, kHeadSize = 64, kRows = 64, kKeys = 1 << 17;

// VmRSS or VmHWM of this process, in bytes.
Index status(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  }
  return -1;
}

struct Array {
  std::vector<float> numbers;
  InputView<4> view;
  // In the order (B, H, L, D), or interleaved: (B, L, H, D).
  Array(Index length, bool interleaved)
      : numbers(static_cast<std::size_t>(kHeads * length * kHeadSize), 0.5F),
        view(numbers.data(), ElementType::float32, {1, kHeads, length, kHeadSize},
             interleaved ? std::array<Index, 4>{0, kHeadSize, kHeads * kHeadSize, 1}
                         : std::array<Index, 4>{0, length * kHeadSize, kHeadSize, 1}) {}
  OutputView<4> output() { return {numbers.data(), view.type, view.shape, view.strides}; }
};

void run(bool interleaved, Index num_keys, Ranks& ranks, bool print) {
  const Index rank = ranks.rank(), rows = kRows / ranks.num_ranks(), keys = num_keys / ranks.num_ranks();
  const Array query(rows, interleaved), key(keys, interleaved), value(keys, interleaved);
  Array context(rows, interleaved);
  const Runtime one_thread{.num_threads = 1};
  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM = VmRSS
  const Index before = status("VmRSS");
  attention_forward(query.view, key.view, value.view, {.context = context.output()}, {}, ranks, one_thread);
  const Index growth = status("VmHWM") - before;
  if (!print) return;
  // Planning reads and writes nothing.
  const auto of_head = [](std::uintptr_t address, Index length) {
    return OutputView<4>(reinterpret_cast<void*>(address), ElementType::float32, {1, 1, length, kHeadSize},
                         {0, 0, kHeadSize, 1});
  };
  const OutputView<4> query_head = of_head(1 << 12, rows), key_head = of_head(1 << 30, num_keys);
  const Plan alone = plan([&](const Runtime& runtime) {
    Runtime with = runtime;
    with.num_threads = 1;
    const InputView<4> all_keys(key_head.data, key_head.type, key_head.shape, key_head.strides);
    attention_forward({query_head.data, query_head.type, query_head.shape, query_head.strides}, all_keys, all_keys,
                      {.context = of_head(1 << 20, rows)}, {}, with);
  });
  std::printf("%s %lld %lld %lld %lld\n", interleaved ? "interleaved" : "dense", static_cast<long long>(rank),
              static_cast<long long>(growth), static_cast<long long>(alone.workspace_bytes),
              static_cast<long long>(2 * num_keys * 2 * kHeadSize * 4));
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  try {
    Ranks ranks = mpi_ranks(MPI_COMM_WORLD);
    // MPI allocates what it keeps for each pair of ranks.
    run(false, kKeys / 16, ranks, false);
    run(false, kKeys, ranks, true);
    run(true, kKeys, ranks, true);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memory_check: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
