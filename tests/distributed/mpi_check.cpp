// SPDX-License-Identifier: Apache-2.0
//
// One rank of a test of several ranks over MPI; mpi_test.py starts it with mpirun.
//
//   mpi_check bits                  every rank compares its results with those of one machine; prints "equal" per rank
//   mpi_check fail KIND RANK ROUND  in that round the rank: kill, stop, throw, extents, leave; none: nothing, until
//                                   something else fails. The others print why their call ended
//   mpi_check sums KIND RANK N      kill or stop: when the rank sends message N of a backward pass by rows, whose sums
//                                   travel from rank to rank
//
// Read next: mpi_test.py.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "regard/distributed/attention.h"
#include "regard/distributed/mpi.h"

namespace regard {
namespace {

using namespace std::chrono_literals;

Tensor<float, 4> random_tensor(const std::array<Index, 4>& shape, unsigned seed) {
  Tensor<float, 4> tensor(shape);
  std::mt19937 bits(seed);
  for (Index i = 0; i < tensor.size(); ++i)
    tensor.data()[i] = static_cast<float>(static_cast<double>(bits()) / 4294967296.0 * 2 - 1);
  return tensor;
}

// Shares that are uneven, and some of which are empty.
std::vector<Index> starts_of(Index length, Index ranks, Index kind) {
  std::vector<Index> starts{0};
  for (Index r = 1; r < ranks; ++r) {
    const Index even = length * r / ranks;
    starts.push_back(kind == 0 ? even : kind == 1 ? even * even / length : r == 1 ? 0 : even);
  }
  starts.push_back(length);
  return starts;
}

template <class View>
View share(View view, const std::vector<Index>& starts, Index rank) {
  const auto r = static_cast<std::size_t>(rank);
  view.data += starts[r] * view.strides[2];
  view.shape[2] = starts[r + 1] - starts[r];
  return view;
}

bool same(const Tensor<float, 4>& a, const Tensor<float, 4>& b, const std::vector<Index>& starts, Index rank) {
  const auto r = static_cast<std::size_t>(rank);
  const auto& shape = a.shape();
  for (Index head = 0; head < shape[0] * shape[1]; ++head) {
    const Index first = (head * shape[2] + starts[r]) * shape[3];
    const auto bytes = static_cast<std::size_t>((starts[r + 1] - starts[r]) * shape[3]) * sizeof(float);
    if (bytes > 0 && std::memcmp(a.data() + first, b.data() + first, bytes) != 0) return false;
  }
  return true;
}

AttentionOptions options_of(Index kind, const std::vector<Index>& starts, const std::vector<float>& slopes) {
  AttentionOptions options;
  if (kind == 1) options.causal = true;
  if (kind == 2) options.window = {.left = 40, .right = 0};
  if (kind == 3) {
    options.causal = true;
    options.query_starts = options.key_starts = InputView<1>(starts);
  }
  if (kind == 4) {
    options.alibi_slopes = InputView<1>(slopes);
    options.sinks = InputView<1>(slopes);
    options.dropout = 0.25;
    options.dropout_seed = 11;
  }
  return options;
}

// Means of heads, the mass of keys, and a map. The context is not used.
std::string compare_statistics(Ranks& ranks, const Tensor<float, 4>& query, const Tensor<float, 4>& key,
                               const std::vector<Index>& rows, const std::vector<Index>& keys,
                               const AttentionOptions& options) {
  const Index rank = ranks.rank(), heads = query.shape()[1], length = query.shape()[2];
  const Runtime runtime{.num_threads = 1};
  Tensor<float, 4> context(query.shape()), map({1, heads, 7, 19}), own_map(map.shape());
  Tensor<float, 4> mass({1, heads, length, 1}), own_mass(mass.shape());
  Tensor<float, 3> row_max({1, heads, length}), row_sum(row_max.shape());
  Tensor<float, 2> entropy({1, heads}), largest({1, heads}), own_entropy({1, heads}), own_largest({1, heads});
  const auto equal = [](const auto& a, const auto& b) {
    return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.size()) * sizeof(float)) == 0;
  };
  const auto of_keys = [](Tensor<float, 4>& tensor) {
    return OutputView<3>(tensor.data(), ElementType::float32, {1, tensor.shape()[1], tensor.shape()[2]},
                         {tensor.size(), tensor.shape()[2], 1});
  };
  attention_with_statistics(query, key, key, {.context = context, .row_max = row_max, .row_sum = row_sum},
                            {.head_entropy = entropy, .head_largest_weight = largest}, options, runtime);
  attention_columns(query, key, {row_max, row_sum}, {.key_mass = of_keys(mass), .pooled_map = map}, options, runtime);
  const auto own_query = share(query.view(), rows, rank), own_key = share(key.view(), keys, rank);
  attention_with_statistics(own_query, own_key, own_key, {.context = share(context.view(), rows, rank)},
                            {.head_entropy = own_entropy, .head_largest_weight = own_largest}, options, ranks, runtime);
  if (!equal(entropy, own_entropy) || !equal(largest, own_largest)) return "means of heads";
  OutputView<3> mass_of_rank = of_keys(own_mass);
  const auto r = static_cast<std::size_t>(rank);
  mass_of_rank.data = own_mass.data() + keys[r];
  mass_of_rank.shape[2] = keys[r + 1] - keys[r];
  const ColumnsRequest request{share(std::as_const(row_max).view(), rows, rank),
                               share(std::as_const(row_sum).view(), rows, rank)};
  attention_columns(own_query, own_key, request, {.key_mass = mass_of_rank, .pooled_map = own_map}, options, ranks,
                    runtime);
  if (!equal(map, own_map)) return "map";
  return same(mass, own_mass, keys, rank) ? "" : "mass of keys";
}

// Returns what differs; empty: nothing.
std::string compare(Ranks& ranks, Index kind, Index shares, Index num_kv_heads, Index head_size) {
  const Index length = 400, heads = 8, rank = ranks.rank();
  const std::array<Index, 4> of_rows{1, heads, length, head_size}, of_keys{1, num_kv_heads, length, head_size};
  const Tensor<float, 4> query = random_tensor(of_rows, 1), key = random_tensor(of_keys, 2);
  const Tensor<float, 4> value = random_tensor(of_keys, 3), grad = random_tensor(of_rows, 4);
  const std::vector<Index> rows = starts_of(length, ranks.num_ranks(), shares);
  const std::vector<Index> keys = starts_of(length, ranks.num_ranks(), (shares + 1) % 3);
  const std::vector<Index> documents{0, 130, 131, 300, length};
  const std::vector<float> slopes{0.5F, 0.25F, 0.125F, 0.5F, 0.0625F, 0.25F, 0.5F, 0.25F};
  const AttentionOptions options = options_of(kind, documents, slopes);
  const Runtime runtime{.num_threads = 1};
  Tensor<float, 4> context(of_rows), expected(of_rows);
  Tensor<float, 3> row_max({1, heads, length}), row_sum({1, heads, length}), own_max(row_max), own_sum(row_sum);
  attention_forward(query, key, value, {.context = expected, .row_max = row_max, .row_sum = row_sum}, options, runtime);
  attention_forward(share(query.view(), rows, rank), share(key.view(), keys, rank), share(value.view(), keys, rank),
                    {.context = share(context.view(), rows, rank),
                     .row_max = share(own_max.view(), rows, rank),
                     .row_sum = share(own_sum.view(), rows, rank)},
                    options, ranks, runtime);
  if (!same(context, expected, rows, rank)) return "context";

  Tensor<float, 4> grad_query(of_rows), grad_key(of_keys), grad_value(of_keys);
  Tensor<float, 4> own_query(of_rows), own_key(of_keys), own_value(of_keys);
  attention_backward(query, key, value,
                     {.context = expected,
                      .row_max = row_max,
                      .row_sum = row_sum,
                      .grad_context = grad,
                      .fingerprint = kUncheckedFingerprint},
                     {.grad_query = grad_query, .grad_key = grad_key, .grad_value = grad_value}, options, runtime);
  attention_backward(share(query.view(), rows, rank), share(key.view(), keys, rank), share(value.view(), keys, rank),
                     {.context = share(std::as_const(expected).view(), rows, rank),
                      .row_max = share(std::as_const(row_max).view(), rows, rank),
                      .row_sum = share(std::as_const(row_sum).view(), rows, rank),
                      .grad_context = share(grad.view(), rows, rank)},
                     {.grad_query = share(own_query.view(), rows, rank),
                      .grad_key = share(own_key.view(), keys, rank),
                      .grad_value = share(own_value.view(), keys, rank)},
                     options, ranks, runtime);
  if (!same(own_query, grad_query, rows, rank)) return "grad_query";
  if (!same(own_key, grad_key, keys, rank)) return "grad_key";
  if (!same(own_value, grad_value, keys, rank)) return "grad_value";
  return compare_statistics(ranks, query, key, rows, keys, options);
}

std::string compare_decode(Ranks& ranks) {
  const Index heads = 8, num_kv_heads = 2, size = 32, length = 1024 * ranks.num_ranks() + 100;
  const Tensor<float, 4> query = random_tensor({1, heads, 1, size}, 1);
  const Tensor<float, 4> key = random_tensor({1, num_kv_heads, length, size}, 2);
  const Tensor<float, 4> value = random_tensor({1, num_kv_heads, length, size}, 3);
  const KvCacheShape shape{
      .num_kv_heads = num_kv_heads, .head_size = size, .value_head_size = size, .capacity = length};
  KvCacheShape part = shape;
  part.capacity = 1024 + 100;
  KvCache<bfloat16> whole(shape), cache(part);
  whole.append(key, value);
  append(cache, key, value, ranks);
  Tensor<float, 4> context({1, heads, 1, size}), expected({1, heads, 1, size});
  attention_decode(query, whole, {.context = expected}, {.causal = true});
  attention_decode(query, cache, {.context = context}, {.causal = true}, ranks, {.num_threads = 1});
  return std::memcmp(context.data(), expected.data(), static_cast<std::size_t>(context.size()) * sizeof(float)) == 0
             ? ""
             : "decode";
}

int check_bits(Ranks& ranks) {
  int faults = 0;
  for (Index kind = 0; kind < 5; ++kind) {
    for (Index shares = 0; shares < 3; ++shares) {
      // Large heads travel as messages of their own.
      const std::string what = compare(ranks, kind, shares, shares == 0 ? 8 : 2, kind == 0 ? 128 : 16);
      if (what.empty()) continue;
      std::printf("options %ld, shares %ld: %s differs\n", static_cast<long>(kind), static_cast<long>(shares),
                  what.c_str());
      ++faults;
    }
  }
  if (!compare_decode(ranks).empty()) ++faults;
  if (faults == 0) std::printf("rank %ld equal\n", static_cast<long>(ranks.rank()));
  return faults;
}

// Raises a signal when message `left` of data is sent; below 0: never.
struct SignalAt {
  std::atomic<Index> left = -1;
  int signal = 0;
};

class SignallingTransport final : public Transport {
 public:
  explicit SignallingTransport(SignalAt& at) : mpi_(MPI_COMM_WORLD), at_(at) {}
  Index rank() const override { return mpi_.rank(); }
  Index num_ranks() const override { return mpi_.num_ranks(); }
  bool may_use_thread() const override { return mpi_.may_use_thread(); }
  void start_send(Index to, int tag, std::span<const std::byte> message, std::uint64_t ticket) override {
    if (tag == 0 && at_.left >= 0 && at_.left-- == 0) std::raise(at_.signal);
    mpi_.start_send(to, tag, message, ticket);
  }
  void start_receive(Index from, int tag, std::span<std::byte> message, std::uint64_t ticket) override {
    mpi_.start_receive(from, tag, message, ticket);
  }
  void completed(std::vector<std::uint64_t>& tickets) override { mpi_.completed(tickets); }

 private:
  MpiTransport mpi_;
  SignalAt& at_;
};

// Does not return on the rank that fails.
void fail_within_sums(const std::string& kind, Index rank, Index message) {
  SignalAt at;
  Ranks ranks(std::make_unique<SignallingTransport>(at), {.timeout = 2s});
  try {
    const Tensor<float, 4> query({1, 4, 120, 16}), key({1, 1, 2000, 16});
    Tensor<float, 3> row_max({1, 4, 120}), row_sum({1, 4, 120});
    std::fill_n(row_sum.data(), row_sum.size(), 1.0F);
    Tensor<float, 4> grad_key(key.shape());
    for (Index n = 0;; ++n) {
      attention_backward(query, key, key,
                         {.context = query, .row_max = row_max, .row_sum = row_sum, .grad_context = query},
                         {.grad_key = grad_key}, {}, ranks, {.num_threads = 1});
      if (n > 0) continue;
      std::this_thread::sleep_for(300ms);  // as in fail()
      at.signal = kind == "kill" ? SIGKILL : SIGSTOP;
      at.left = ranks.rank() == rank ? message : -1;
    }
  } catch (const std::exception& error) {
    std::printf("rank %ld: %s\n", static_cast<long>(ranks.rank()), error.what());
    std::fflush(stdout);
  }
}

// Never returns, unless the failure leaves MPI usable.
void fail(Ranks& ranks, const std::string& kind, Index rank, Index round) {
  const auto attend = [&](Index head_size) {
    const Index rows = kind == "none" ? 4000 : 40;  // most of the time, large messages are under way
    Tensor<float, 4> query({1, 4, rows, head_size}), context({1, 4, rows, head_size});
    attention_forward(query, query, query, {.context = context}, {.causal = true}, ranks, {.num_threads = 1});
  };
  try {
    attend(16);
    // Launchers fail themselves if a process dies while others are still being connected.
    std::this_thread::sleep_for(300ms);
    if (kind == "none") {
      std::printf("rank %ld computes\n", static_cast<long>(ranks.rank()));
      std::fflush(stdout);
    }
    for (Index n = 0;; ++n) {
      const bool now = n == round && ranks.rank() == rank;
      if (now && kind == "kill") std::raise(SIGKILL);
      if (now && kind == "stop") std::raise(SIGSTOP);
      if (now && kind == "throw") throw std::runtime_error("the disk is full");
      if (now && kind == "leave") return;
      attend(now && kind == "extents" ? 24 : 16);
    }
  } catch (const std::exception& error) {
    std::printf("rank %ld: %s\n", static_cast<long>(ranks.rank()), error.what());
    std::fflush(stdout);
    if (kind == "throw" && ranks.rank() == rank) throw;
  }
}

}  // namespace
}  // namespace regard

int main(int argc, char** argv) {
  using namespace regard;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  const std::string mode = argc > 1 ? argv[1] : "";
  int result = 0;
  bool lost = false;
  try {
    if (mode == "sums") {
      lost = true;
      fail_within_sums(argv[2], std::atol(argv[3]), std::atol(argv[4]));
    } else if (Ranks ranks = mpi_ranks(MPI_COMM_WORLD, {.timeout = mode == "fail" ? 2s : 60s}); mode == "fail") {
      const std::string kind = argv[2];
      fail(ranks, kind, std::atol(argv[3]), std::atol(argv[4]));
      lost = kind == "kill" || kind == "stop" || kind == "none";
    } else {
      result = check_bits(ranks);
    }
  } catch (const std::exception& error) {
    if (mode != "fail") std::printf("%s\n", error.what());
  }
  if (lost) {
    // The others print what they have found before the first one ends them all. One alone does: Open MPI's launcher may
    // hang if several do at once.
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::this_thread::sleep_for(3s + rank * 500ms);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return result;
}
