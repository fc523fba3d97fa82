// SPDX-License-Identifier: Apache-2.0
//
// How much the resident memory of each rank grows in attention_forward and attention_backward with the scheme rows.
// Each rank prints
//
//     call, layout, rank, growth, workspace of the same rows and head on one machine, a head of keys and values (bytes)
//
// Few rows and many keys: the memory is that of the keys. Read next: memory_test.py.
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "regard/attention_backward_continued.h"
#include "regard/distributed/attention.h"
#include "regard/distributed/mpi.h"
#include "regard/plan.h"

namespace {

using namespace regard;

constexpr Index kHeads = 3, kHeadSize = 64, kRows = 240, kKeys = 1 << 17;

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

// Calls `call` and prints how much it needs. `of_head` is the same call for one head on one machine.
void measure(const char* name, bool interleaved, Index num_keys, const Ranks& ranks, bool print,
             const std::function<void(const Runtime&)>& call, const std::function<void(const Runtime&)>& of_head) {
  const Runtime one_thread{.num_threads = 1};
  std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM = VmRSS
  const Index before = status("VmRSS");
  call(one_thread);
  const Index growth = status("VmHWM") - before;
  if (!print) return;
  const Plan alone = plan([&](const Runtime& runtime) {
    Runtime with = runtime;
    with.num_threads = 1;
    of_head(with);
  });
  std::printf("%s %s %lld %lld %lld %lld\n", name, interleaved ? "interleaved" : "dense",
              static_cast<long long>(ranks.rank()), static_cast<long long>(growth),
              static_cast<long long>(alone.workspace_bytes), static_cast<long long>(num_keys * 2 * kHeadSize * 4));
}

// Planning reads and writes nothing: a head at a made-up address.
template <class View>
View made_up(std::uintptr_t address, Index length) {
  return {reinterpret_cast<void*>(address), ElementType::float32, {1, 1, length, kHeadSize}, {0, 0, kHeadSize, 1}};
}

void run(bool interleaved, Index num_keys, Ranks& ranks, bool print) {
  const Index rows = kRows / ranks.num_ranks(), keys = num_keys / ranks.num_ranks();
  const Array query(rows, interleaved), key(keys, interleaved), value(keys, interleaved);
  Array context(rows, interleaved), grad_query(rows, interleaved);
  Array grad_key(keys, interleaved), grad_value(keys, interleaved);
  Tensor<float, 3> row_max({1, kHeads, rows}), row_sum({1, kHeads, rows});
  AttentionFingerprint fingerprint;
  const InputView<3> of_rows{reinterpret_cast<void*>(1 << 20), ElementType::float32, {1, 1, rows}, {0, 0, 1}};
  const auto one_query = made_up<InputView<4>>(1 << 12, rows), all_keys = made_up<InputView<4>>(1 << 30, num_keys);
  const auto output = [](int number, Index length) {
    return made_up<OutputView<4>>(std::uintptr_t{1} << (32 + number), length);
  };
  measure(
      "forward", interleaved, num_keys, ranks, print,
      [&](const Runtime& runtime) {
        attention_forward(query.view, key.view, value.view,
                          {.context = context.output(),
                           .row_max = row_max.view(),
                           .row_sum = row_sum.view(),
                           .fingerprint = &fingerprint},
                          {}, ranks, runtime);
      },
      [&](const Runtime& runtime) {
        attention_forward(one_query, all_keys, all_keys, {.context = output(0, rows)}, {}, runtime);
      });
  measure(
      "backward", interleaved, num_keys, ranks, print,
      [&](const Runtime& runtime) {
        attention_backward(
            query.view, key.view, value.view,
            {.context = context.view,
             .row_max = row_max.view(),
             .row_sum = row_sum.view(),
             .grad_context = query.view,
             .fingerprint = fingerprint},
            {.grad_query = grad_query.output(), .grad_key = grad_key.output(), .grad_value = grad_value.output()}, {},
            ranks, runtime);
      },
      [&](const Runtime& runtime) {
        attention_backward_continued(
            one_query, all_keys, all_keys,
            {.context = one_query, .row_max = of_rows, .row_sum = of_rows, .grad_context = one_query},
            {.grad_query = output(0, rows), .key_sums = output(1, num_keys), .value_sums = output(2, num_keys)}, {},
            runtime);
      });
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
