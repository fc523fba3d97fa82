// SPDX-License-Identifier: Apache-2.0
//
// Time of forward, backward, decode, linear layers and training steps for several numbers of threads.
//
//     thread_scaling [SECONDS [THREADS…]]      8 seconds per case, 1 2 4 8 12 16 threads; JSON to stdout
//
// In each round, each number of threads runs the case once, after 5 ms of idle time, and then its limit is measured on
// the same threads: multiply-adds on registers, or for decode reads from memory. The result of every call is compared
// with that of one thread, byte for byte. Read next: thread_scaling.py.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "random_tokens.h"
#include "regard/attention_backward.h"
#include "regard/kv_cache.h"
#include "regard/linear.h"
#include "regard/peaks.h"
#include "regard/train/trainer.h"

namespace {

using namespace regard;
using Clock = std::chrono::steady_clock;

enum class Limit { multiply_adds, bf16_products, reads };
constexpr const char* kLimitNames[] = {"multiply-adds", "bf16 dot products", "reads"};

// run(runtime) computes; results are the bytes that must not depend on the number of threads.
struct Case {
  std::string name;
  Limit limit;
  std::function<void(const Runtime&)> run;
  std::function<std::vector<char>()> results;
};

template <class T, int Rank>
std::shared_ptr<Tensor<T, Rank>> normal(const typename Tensor<T, Rank>::Shape& shape) {
  auto tensor = std::make_shared<Tensor<T, Rank>>(shape);
  std::mt19937 generator(1);
  std::normal_distribution<float> distribution;
  for (Index i = 0; i < tensor->size(); ++i) tensor->data()[i] = T(distribution(generator));
  return tensor;
}

template <class T, int Rank>
std::vector<char> bytes_of(const Tensor<T, Rank>& tensor) {
  std::vector<char> bytes(static_cast<std::size_t>(tensor.size()) * sizeof(T));
  std::memcpy(bytes.data(), tensor.data(), bytes.size());
  return bytes;
}

struct Shape {
  Index heads, kv_heads, length, head_size;
  bool causal = false;
};

std::string text_of(const char* operation, const char* type, const Shape& shape) {
  const std::string heads = std::to_string(shape.heads) +
                            (shape.heads == shape.kv_heads ? "" : ":" + std::to_string(shape.kv_heads)) +
                            (shape.heads == 1 ? " head" : " heads");
  return std::string(operation) + ", " + type + ", " + heads + ", S " + std::to_string(shape.length) + ", D " +
         std::to_string(shape.head_size) + (shape.causal ? ", causal" : "");
}

template <class T>
Case forward_case(const Shape& shape, const char* type, Limit limit) {
  const auto query = normal<T, 4>({1, shape.heads, shape.length, shape.head_size});
  const auto key = normal<T, 4>({1, shape.kv_heads, shape.length, shape.head_size});
  const auto context = std::make_shared<Tensor<T, 4>>(query->shape());
  AttentionOptions options;
  options.causal = shape.causal;
  return {text_of("forward", type, shape), limit,
          [=](const Runtime& runtime) {
            attention_forward(query->view(), key->view(), key->view(), {.context = context->view()}, options, runtime);
          },
          [=] { return bytes_of(*context); }};
}

Case backward_case(const Shape& shape) {
  const auto query = normal<float, 4>({1, shape.heads, shape.length, shape.head_size});
  const auto key = normal<float, 4>({1, shape.kv_heads, shape.length, shape.head_size});
  const auto context = std::make_shared<Tensor<float, 4>>(query->shape());
  const auto grad_query = std::make_shared<Tensor<float, 4>>(query->shape());
  const auto grad_key = std::make_shared<Tensor<float, 4>>(key->shape());
  const auto grad_value = std::make_shared<Tensor<float, 4>>(key->shape());
  const auto row_max = std::make_shared<Tensor<float, 3>>(Tensor<float, 3>::Shape{1, shape.heads, shape.length});
  const auto row_sum = std::make_shared<Tensor<float, 3>>(row_max->shape());
  AttentionOptions options;
  options.causal = shape.causal;
  attention_forward(query->view(), key->view(), key->view(),
                    {.context = context->view(), .row_max = row_max->view(), .row_sum = row_sum->view()}, options);
  return {text_of("backward", "f32", shape), Limit::multiply_adds,
          [=](const Runtime& runtime) {
            attention_backward(
                query->view(), key->view(), key->view(),
                {.context = context->view(),
                 .row_max = row_max->view(),
                 .row_sum = row_sum->view(),
                 .grad_context = query->view(),
                 .fingerprint = kUncheckedFingerprint},
                {.grad_query = grad_query->view(), .grad_key = grad_key->view(), .grad_value = grad_value->view()},
                options, runtime);
          },
          [=] {
            std::vector<char> all = bytes_of(*grad_query);
            for (const auto& part : {bytes_of(*grad_key), bytes_of(*grad_value)})
              all.insert(all.end(), part.begin(), part.end());
            return all;
          }};
}

template <class K>
Case decode_case(Index sequences, const Shape& shape, const char* type) {
  KvCacheShape cache_shape;
  cache_shape.num_sequences = sequences;
  cache_shape.num_kv_heads = shape.kv_heads;
  cache_shape.head_size = cache_shape.value_head_size = shape.head_size;
  cache_shape.capacity = shape.length;
  const auto cache = std::make_shared<KvCache<K>>(cache_shape);
  {
    const auto key = normal<K, 4>({sequences, shape.kv_heads, shape.length, shape.head_size});
    cache->append(key->view(), key->view());
  }
  const auto query = normal<float, 4>({sequences, shape.heads, 1, shape.head_size});
  const auto context = std::make_shared<Tensor<float, 4>>(query->shape());
  const std::string name = text_of("decode", type, shape);
  return {sequences == 1 ? name : name + ", " + std::to_string(sequences) + " sequences", Limit::reads,
          [=](const Runtime& runtime) {
            attention_decode(query->view(), *cache, {.context = context->view()}, AttentionOptions{}, runtime);
          },
          [=] { return bytes_of(*context); }};
}

Case linear_case(Index rows, Index columns) {
  const auto x = normal<float, 2>({rows, columns});
  const auto weight = normal<float, 2>({columns, columns});
  const auto y = std::make_shared<Tensor<float, 2>>(x->shape());
  return {
      "linear layer, f32, " + std::to_string(rows) + " × " + std::to_string(columns) + " × " + std::to_string(columns),
      Limit::multiply_adds,
      [=](const Runtime& runtime) { linear_forward(x->view(), weight->view(), {}, y->view(), runtime); },
      [=] { return bytes_of(*y); }};
}

// One step of a run per call. Steps differ, so that the losses of different numbers of threads cannot be compared here;
// trainer_test compares their bits.
Case training_case(const char* name, Index layers, Index heads, Index width, Index vocabulary, Index batch,
                   Index length) {
  TrainingSettings settings;
  settings.batch = batch;
  settings.length = length;
  settings.steps = 100000;
  settings.model = {.num_layers = layers, .num_heads = heads, .width = width};
  settings.model.max_positions = length;
  settings.model.vocabulary = vocabulary;
  const auto trainer = std::make_shared<Trainer>(settings, std::make_shared<bench::RandomTokens>(vocabulary, length));
  return {name, Limit::multiply_adds, [=](const Runtime& runtime) { trainer->step(runtime); }, nullptr};
}

double limit_of(Limit limit, int threads) {
  switch (limit) {
    case Limit::multiply_adds:
      return fma_gflops(threads, 0.02);
    case Limit::bf16_products:
      return bf16_dot_gflops(threads, 0.02).value_or(0.0);
    case Limit::reads:
      return read_gigabytes_per_second(std::size_t{256} << 20, threads, 0.3);
  }
  return 0.0;
}

void print_list(const char* name, const std::vector<std::vector<double>>& of_threads) {
  std::printf(", \"%s\": [", name);
  for (std::size_t i = 0; i < of_threads.size(); ++i) {
    std::printf("%s[", i == 0 ? "" : ", ");
    for (std::size_t n = 0; n < of_threads[i].size(); ++n) std::printf("%s%.6g", n == 0 ? "" : ", ", of_threads[i][n]);
    std::printf("]");
  }
  std::printf("]");
}

void measure(const Case& one, const std::vector<int>& threads, double budget) {
  std::vector<std::vector<double>> seconds(threads.size()), limits(threads.size());
  std::vector<char> expected;
  const auto call = [&](int number) {
    const Runtime runtime{.num_threads = number};
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const auto begin = Clock::now();
    one.run(runtime);
    const double taken = std::chrono::duration<double>(Clock::now() - begin).count();
    if (one.results) {
      std::vector<char> found = one.results();
      if (expected.empty())
        expected = std::move(found);
      else if (found != expected)
        throw std::runtime_error(one.name + ": the bits depend on the number of threads");
    }
    return taken;
  };
  call(threads.back());
  const auto begin = Clock::now();
  for (int round = 0; round < 30; ++round) {
    for (std::size_t i = 0; i < threads.size(); ++i) {
      seconds[i].push_back(call(threads[i]));
      limits[i].push_back(limit_of(one.limit, threads[i]));
    }
    if (round >= 2 && std::chrono::duration<double>(Clock::now() - begin).count() > budget) break;
  }
  std::printf("{\"name\": \"%s\", \"limit\": \"%s\"", one.name.c_str(), kLimitNames[static_cast<int>(one.limit)]);
  print_list("seconds", seconds);
  print_list("rates", limits);
  std::printf("}");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) try {
  const double budget = count > 1 ? std::atof(arguments[1]) : 8.0;
  std::vector<int> threads;
  for (int i = 2; i < count; ++i) threads.push_back(std::atoi(arguments[i]));
  if (threads.empty()) threads = {1, 2, 4, 8, 12, 16};
  const auto bf16_limit = bf16_dot_gflops(1, 0.01) ? Limit::bf16_products : Limit::multiply_adds;
  const std::function<Case()> cases[] = {
      [] { return forward_case<float>({8, 8, 4096, 64}, "f32", Limit::multiply_adds); },
      [] { return forward_case<float>({8, 8, 4096, 128, true}, "f32", Limit::multiply_adds); },
      [] { return forward_case<float>({32, 8, 2048, 128, true}, "f32", Limit::multiply_adds); },
      [] { return forward_case<float>({1, 1, 16384, 64}, "f32", Limit::multiply_adds); },
      [] { return forward_case<float>({64, 64, 128, 64}, "f32", Limit::multiply_adds); },
      [&] { return forward_case<bfloat16>({8, 8, 4096, 128, true}, "bf16", bf16_limit); },
      [] { return backward_case({8, 8, 4096, 64}); },
      [] { return backward_case({8, 8, 4096, 128, true}); },
      [] { return backward_case({32, 8, 2048, 128, true}); },
      [] { return backward_case({1, 1, 8192, 64}); },
      [] { return decode_case<float>(1, {32, 8, 32768, 128}, "f32 cache"); },
      [] { return decode_case<bfloat16>(1, {32, 8, 32768, 128}, "bf16 cache"); },
      [] { return decode_case<float>(16, {32, 8, 4096, 128}, "f32 cache"); },
      [] { return linear_case(2048, 2048); },
      [] { return training_case("training step, 4 layers, width 128, 12 × 64 tokens", 4, 4, 128, 65, 12, 64); },
      [] { return training_case("training step, 6 layers, width 384, 16 × 256 tokens", 6, 6, 384, 65, 16, 256); },
      [] { return training_case("training step, GPT-2's shape, 2 × 256 tokens", 12, 12, 768, 50257, 2, 256); }};
  std::printf("{\"instruction_set\": \"%s\", \"threads\": [", active_instruction_set().c_str());
  for (std::size_t i = 0; i < threads.size(); ++i) std::printf("%s%d", i == 0 ? "" : ", ", threads[i]);
  std::printf("], \"cases\": [");
  const char* separator = "\n";
  for (const auto& make : cases) {
    std::printf("%s", separator);
    measure(make(), threads, budget);
    separator = ",\n";
  }
  std::printf("]}\n");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "thread_scaling: %s\n", error.what());
  return 1;
}
