// SPDX-License-Identifier: Apache-2.0
//
// Forward over many ranks in SimGrid's SMPI: the messages of the plan, one key/value head at a time as in
// src/distributed/exchange/head_exchange.cpp, with computation replaced by its seconds. Rank 0 prints a JSON object.
// Usage:
//
//     simulated_ranks TOKENS HEADS KV_HEADS HEAD_SIZE ELEMENT_BYTES CAUSAL FLOPS LINK_BYTES LATENCY
//
// The last three are the rates of a node (regard/distributed/cost.h): operations and bytes per second, and seconds per
// message. bench/simulated_ranks.py builds and runs it.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "regard/distributed/cost.h"

namespace {

using namespace regard;

// One message in a step, of a piece of one head.
struct Message {
  int peer, bytes;
};
struct Step {
  std::vector<Message> sends, receives;
  std::vector<MPI_Request> requests;
};

class Exchange {
 public:
  Exchange(const DistributedProblem& problem, const DistributedPlan& plan, Index rank) {
    Index steps = 0;
    for (const RankWork& work : plan.ranks) steps = std::max(steps, work.kv_heads.size());
    inputs_.resize(static_cast<std::size_t>(steps));
    outputs_.resize(static_cast<std::size_t>(steps));
    const Index group = problem.num_heads / problem.num_kv_heads;
    for (const RankTransfer& transfer : plan.transfers) {
      if (transfer.from != rank && transfer.to != rank) continue;
      const bool returned = transfer.content == TransferContent::context;
      const bool keys = transfer.content == TransferContent::keys;
      const Index first = plan.ranks[static_cast<std::size_t>(returned ? transfer.from : transfer.to)].kv_heads.first;
      const Index begin = transfer.heads.first / (keys ? 1 : group), end = transfer.heads.end / (keys ? 1 : group);
      for (Index head = begin; head < end; ++head) {
        Step& step = (returned ? outputs_ : inputs_)[static_cast<std::size_t>(head - first)];
        for (const IndexRange& indices : transfer.indices) {
          // A key and a value, or the query heads of the key/value head.
          for (Index n = 0; n < (keys ? 2 : group); ++n) {
            const int bytes = static_cast<int>(indices.size() * problem.head_size * problem.element_bytes);
            largest_ = std::max(largest_, bytes);
            if (transfer.from == rank) step.sends.push_back({static_cast<int>(transfer.to), bytes});
            if (transfer.to == rank) step.receives.push_back({static_cast<int>(transfer.from), bytes});
            if (transfer.to == rank) received_ += bytes;
          }
        }
      }
    }
    // What is in a message does not matter, and is not copied.
    memory_ = SMPI_SHARED_MALLOC(static_cast<std::size_t>(std::max(1, largest_)));
  }
  ~Exchange() { SMPI_SHARED_FREE(memory_); }
  Index received() const { return received_; }

  void run(double seconds_of_head, Index num_heads) {
    const std::size_t steps = inputs_.size();
    if (steps > 0) post(inputs_[0]);
    for (std::size_t t = 0; t < steps; ++t) {
      if (t + 1 < steps) post(inputs_[t + 1]);
      finish(inputs_[t]);
      if (static_cast<Index>(t) < num_heads) smpi_execute(seconds_of_head);
      if (t >= 2) finish(outputs_[t - 2]);
      post(outputs_[t]);
    }
    for (Step& step : outputs_) finish(step);
  }

 private:
  void post(Step& step) {
    for (const Message& message : step.receives) {
      MPI_Request& request = step.requests.emplace_back();
      MPI_Irecv(memory_, message.bytes, MPI_BYTE, message.peer, 0, MPI_COMM_WORLD, &request);
    }
    for (const Message& message : step.sends) {
      MPI_Request& request = step.requests.emplace_back();
      MPI_Isend(memory_, message.bytes, MPI_BYTE, message.peer, 0, MPI_COMM_WORLD, &request);
    }
  }
  static void finish(Step& step) {
    MPI_Waitall(static_cast<int>(step.requests.size()), step.requests.data(), MPI_STATUSES_IGNORE);
    step.requests.clear();
  }

  std::vector<Step> inputs_, outputs_;
  Index received_ = 0;
  int largest_ = 0;
  void* memory_ = nullptr;
};

void run(char** argv) {
  int rank = 0, num_ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
  const Index tokens = std::atoll(argv[1]);
  const std::vector<Index> starts = split_evenly(tokens, num_ranks);
  DistributedProblem problem{.row_starts = starts,
                             .key_starts = starts,
                             .num_heads = std::atoll(argv[2]),
                             .num_kv_heads = std::atoll(argv[3]),
                             .head_size = std::atoll(argv[4]),
                             .value_head_size = std::atoll(argv[4]),
                             .element_bytes = std::atoll(argv[5])};
  problem.visibility.causal = std::atoi(argv[6]) != 0;
  // Reading keys takes no time: rows are many.
  const NodeRates rates{.flops = std::atof(argv[7]),
                        .read_bytes = 1e15,
                        .link_bytes = std::atof(argv[8]),
                        .message_latency = std::atof(argv[9])};
  const DistributedPlan plan = choose_plan(problem);
  const RankWork& own = plan.ranks[static_cast<std::size_t>(rank)];
  const auto seconds = [&](Index pairs) {
    return 4 * static_cast<double>(pairs) * static_cast<double>(problem.head_size) / rates.flops;
  };
  Index pairs = 0;
  for (const RankWork& work : plan.ranks) pairs += work.pairs;
  Exchange exchange(problem, plan, rank);
  if (exchange.received() != plan.received_bytes(rank)) {
    std::fprintf(stderr, "the messages differ from the plan\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  const Index heads = own.kv_heads.size();
  exchange.run(seconds(own.pairs) / static_cast<double>(std::max<Index>(1, heads)), heads);
  const double own_seconds = MPI_Wtime() - start;
  double simulated = 0;
  MPI_Reduce(&own_seconds, &simulated, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank != 0) return;
  const double ideal = seconds(pairs) / num_ranks;
  std::printf(
      "{\"ranks\": %d, \"scheme\": \"%s\", \"imbalance\": %.4f, \"max_received_bytes\": %lld, \"ideal_s\": %.6g, "
      "\"simulated_s\": %.6g, \"predicted_s\": %.6g}\n",
      num_ranks, std::string(scheme_name(plan.scheme)).c_str(), plan.imbalance(),
      static_cast<long long>(plan.max_received_bytes()), ideal, simulated, predict_time(problem, plan, rates).seconds);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 10) {
    std::fprintf(stderr, "simulated_ranks: %d arguments; expected 9\n", argc - 1);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  run(argv);
  MPI_Finalize();
}
