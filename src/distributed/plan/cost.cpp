// SPDX-License-Identifier: Apache-2.0
//
// The time of a plan; see regard/distributed/cost.h.
//
//     transfers ── bytes and messages of each rank in each step ──▶ seconds of each step ── sum ──▶ slowest rank
//
// A step is a key/value head of the rank that computes it; its senders are busy in the same step.
// Read next: plans.cpp, docs/derivations/ranks.md.
#include "regard/distributed/cost.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "regard/error.h"
#include "row_intervals.h"

namespace regard::inline v0 {
namespace {

// What a rank sends and receives in a step.
struct Traffic {
  double sent = 0, received = 0;  // bytes
  Index messages_sent = 0, messages_received = 0;

  double seconds(const NodeRates& rates) const {
    return rates.message_latency * static_cast<double>(std::max(messages_sent, messages_received)) +
           std::max(sent, received) / rates.link_bytes;
  }
  Traffic operator+(const Traffic& other) const {
    return {sent + other.sent, received + other.received, messages_sent + other.messages_sent,
            messages_received + other.messages_received};
  }
};

// The traffic of every rank in each step.
class Steps {
 public:
  Steps(std::size_t ranks, std::size_t steps) : traffic_(ranks, std::vector<Traffic>(steps)) {}
  void add(const RankTransfer& transfer, std::size_t step, double bytes) {
    Traffic& from = traffic_[static_cast<std::size_t>(transfer.from)][step];
    Traffic& to = traffic_[static_cast<std::size_t>(transfer.to)][step];
    from.sent += bytes;
    ++from.messages_sent;
    to.received += bytes;
    ++to.messages_received;
  }
  // No traffic for a step that does not exist.
  Traffic of(std::size_t rank, std::size_t step) const {
    return step < traffic_[rank].size() ? traffic_[rank][step] : Traffic{};
  }
  double seconds(std::size_t rank, std::size_t step, const NodeRates& rates) const {
    return of(rank, step).seconds(rates);
  }

 private:
  std::vector<std::vector<Traffic>> traffic_;
};

double product(std::initializer_list<Index> factors) {
  double result = 1;
  for (const Index factor : factors) result *= static_cast<double>(factor);
  return result;
}

// Seconds in which a rank computes this fraction of its pairs, over this number of key/value heads.
double compute_seconds(const DistributedProblem& p, const RankWork& work, double fraction, Index kv_heads,
                       const NodeRates& rates) {
  const double operations = 2 * product({p.batch, work.pairs, p.head_size + p.value_head_size}) * fraction;
  const double bytes =
      product({p.batch, internal::total_size(work.keys), kv_heads, p.head_size + p.value_head_size, p.element_bytes});
  return std::max(operations / rates.flops, bytes / rates.read_bytes);
}

PredictedTime by_heads(const DistributedProblem& p, const DistributedPlan& plan, const NodeRates& rates) {
  const std::size_t ranks = plan.ranks.size();
  std::size_t steps = 0;
  for (const RankWork& work : plan.ranks) steps = std::max(steps, static_cast<std::size_t>(work.kv_heads.size()));
  Steps in(ranks, steps), out(ranks, steps);
  const Index group = p.num_heads / p.num_kv_heads;
  for (const RankTransfer& transfer : plan.transfers) {
    const bool returned = transfer.content == TransferContent::context;
    const Index first = plan.ranks[static_cast<std::size_t>(returned ? transfer.from : transfer.to)].kv_heads.first;
    const Index per_kv_head = transfer.content == TransferContent::keys ? 1 : group;
    const Index begin = transfer.heads.first / per_kv_head, end = transfer.heads.end / per_kv_head;
    for (Index head = begin; head < end; ++head) {
      (returned ? out : in)
          .add(transfer, static_cast<std::size_t>(head - first),
               static_cast<double>(transfer.bytes) / static_cast<double>(end - begin));
    }
  }
  PredictedTime slowest;
  for (std::size_t r = 0; r < ranks; ++r) {
    const auto own = static_cast<std::size_t>(plan.ranks[r].kv_heads.size());
    const double head = own == 0 ? 0 : compute_seconds(p, plan.ranks[r], 1 / static_cast<double>(own), 1, rates);
    PredictedTime time{.seconds = in.seconds(r, 0, rates), .transfer = in.seconds(r, 0, rates), .slowest = 0};
    for (std::size_t step = 0; step < steps; ++step) {
      const Traffic during = in.of(r, step + 1) + (step == 0 ? Traffic{} : out.of(r, step - 1));
      const double compute = step < own ? head : 0;
      time.seconds += std::max(compute, during.seconds(rates));
      time.compute += compute;
      time.transfer += during.seconds(rates);
    }
    if (steps > 0) {
      time.seconds += out.seconds(r, steps - 1, rates);
      time.transfer += out.seconds(r, steps - 1, rates);
    }
    time.slowest = static_cast<Index>(r);
    if (r == 0 || time.seconds > slowest.seconds) slowest = time;
  }
  return slowest;
}

PredictedTime by_keys(const DistributedProblem& p, const DistributedPlan& plan, const NodeRates& rates) {
  const std::size_t ranks = plan.ranks.size();
  Steps phases(ranks, 3);  // query, partial results, context
  Index chunks = 0;        // of all ranks
  for (const RankWork& work : plan.ranks) {
    Index end = 0;
    for (const IndexRange& keys : work.keys) {
      const Index first = std::max(end, keys.first / kAttentionChunkKeys);
      end = attention_num_chunks(keys.end);
      chunks += end - first;
    }
  }
  for (const RankTransfer& transfer : plan.transfers) {
    const std::size_t phase = transfer.content == TransferContent::query      ? 0
                              : transfer.content == TransferContent::partials ? 1
                                                                              : 2;
    phases.add(transfer, phase, static_cast<double>(transfer.bytes));
  }
  PredictedTime time;
  double compute = 0, merge = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const RankWork& work = plan.ranks[r];
    const double own = compute_seconds(p, work, 1, p.num_kv_heads, rates);
    if (own > compute) time.slowest = static_cast<Index>(r);
    compute = std::max(compute, own);
    const double merged = product(
        {p.batch, chunks, internal::total_size(work.rows), work.heads.size(), p.value_head_size + 2, p.partial_bytes});
    merge = std::max(merge, merged / rates.read_bytes);
  }
  for (std::size_t phase = 0; phase < 3; ++phase) {
    double longest = 0;
    for (std::size_t r = 0; r < ranks; ++r) longest = std::max(longest, phases.seconds(r, phase, rates));
    time.transfer += longest;
  }
  time.compute = compute + merge;
  time.seconds = time.compute + time.transfer;
  return time;
}

}  // namespace

PredictedTime predict_time(const DistributedProblem& problem, const DistributedPlan& plan, const NodeRates& rates) {
  const auto reject = [](const std::string& what) { throw InvalidArgument("predict_time: " + what); };
  for (const auto& [name, rate] :
       {std::pair{"flops", rates.flops}, {"read_bytes", rates.read_bytes}, {"link_bytes", rates.link_bytes}}) {
    if (!(rate > 0) || !std::isfinite(rate))
      reject(std::string(name) + " is " + std::to_string(rate) + "; expected a finite number above 0");
  }
  if (!(rates.message_latency >= 0) || !std::isfinite(rates.message_latency))
    reject("message_latency is " + std::to_string(rates.message_latency) +
           "; expected a finite number of seconds, at least 0");
  if (plan.ranks.size() + 1 != problem.row_starts.size())
    reject("plan has " + std::to_string(plan.ranks.size()) + " ranks; expected " +
           std::to_string(static_cast<Index>(problem.row_starts.size()) - 1) + ", as in problem");
  return plan.scheme == DistributedScheme::keys ? by_keys(problem, plan, rates) : by_heads(problem, plan, rates);
}

}  // namespace regard::inline v0
