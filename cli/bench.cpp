// SPDX-License-Identifier: Apache-2.0
//
// `regard bench`: the speed of attention as a share of this machine's peak, in about ten seconds.
//
//     one round:  peak ─ read ─ full, S 1024 ─ full ─ causal ─ decode …      the next round starts one row later
//
// Each figure is the median over the rounds. Its share is the median of the ratios to the peak or to the read bandwidth
// of the same round, so that changes of the clock frequency cancel. bench/run_benchmarks measures more, and compares
// with other libraries. Read next: regard/peaks.h, peaks.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "peaks.h"
#include "program.h"
#include "progress.h"
#include "regard/io/json_writer.h"
#include "regard/kv_cache.h"
#include "regard/peaks.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 9, kQuickRounds = 3;
constexpr double kPeakSeconds = 0.02, kReadSeconds = 0.05;
constexpr auto kIdle = std::chrono::milliseconds(5);

struct Row {
  std::string name;
  std::string unit;                // "GFLOP/s" or "GB/s"
  std::size_t reference;           // index of the row that the share refers to
  std::function<double()> figure;  // measures once
  std::vector<double> figures{};
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2.0;
}

double share(const Row& row, const std::vector<Row>& rows) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < row.figures.size(); ++i)
    ratios.push_back(row.figures[i] / rows[row.reference].figures[i]);
  return median(std::move(ratios));
}

// Measures `amount` per second, in billions.
std::function<double()> timed(double amount, std::function<void()> call) {
  return [amount, call = std::move(call)] {
    const auto begin = Clock::now();
    call();
    return amount / std::chrono::duration<double>(Clock::now() - begin).count() / 1e9;
  };
}

Tensor<float, 4> normal(Index heads, Index rows, Index head_size, unsigned seed) {
  Tensor<float, 4> tensor({1, heads, rows, head_size});
  std::mt19937 random(seed);
  std::normal_distribution<float> number;
  std::generate(tensor.data(), tensor.data() + tensor.size(), [&] { return number(random); });
  return tensor;
}

Row forward_row(Index length, Index head_size, bool causal, const Runtime& runtime) {
  constexpr Index kHeads = 8;
  struct Arrays {
    Tensor<float, 4> query, key, value, context;
  };
  const auto arrays = std::make_shared<Arrays>(
      Arrays{normal(kHeads, length, head_size, 1), normal(kHeads, length, head_size, 2),
             normal(kHeads, length, head_size, 3), Tensor<float, 4>({1, kHeads, length, head_size})});
  const Index pairs = causal ? length * (length + 1) / 2 : length * length;
  const auto call = [arrays, causal, runtime] {
    attention_forward(arrays->query.view(), arrays->key.view(), arrays->value.view(),
                      {.context = arrays->context.view()}, {.causal = causal}, runtime);
  };
  return {fmt::format("{}, S {}, D {}", causal ? "causal" : "full", length, head_size), "GFLOP/s", 0,
          timed(4.0 * static_cast<double>(head_size * kHeads * pairs), call)};
}

template <class K>
Row decode_row(const std::string& type, Index keys, const Runtime& runtime) {
  constexpr Index kHeads = 8, kHeadSize = 128, kPiece = 512;
  struct Arrays {
    KvCache<K> cache;
    Tensor<float, 4> query, context;
  };
  const auto arrays = std::make_shared<Arrays>(Arrays{
      KvCache<K>({.num_kv_heads = kHeads, .head_size = kHeadSize, .value_head_size = kHeadSize, .capacity = keys}),
      normal(kHeads, 1, kHeadSize, 1), Tensor<float, 4>({1, kHeads, 1, kHeadSize})});
  const Tensor<float, 4> numbers = normal(kHeads, kPiece, kHeadSize, 2);
  Tensor<K, 3> piece({kHeads, kPiece, kHeadSize});
  std::transform(numbers.data(), numbers.data() + numbers.size(), piece.data(), [](float x) { return K(x); });
  for (Index done = 0; done < keys; done += kPiece) arrays->cache.append(0, piece.view(), piece.view());
  const auto call = [arrays, runtime] {
    attention_decode(arrays->query.view(), arrays->cache, {.context = arrays->context.view()},
                     {.query_offset = QueryAlignment::bottom_right}, runtime);
  };
  return {fmt::format("decode, S {}, D {}, {}", keys, kHeadSize, type), "GB/s", 1,
          timed(2.0 * static_cast<double>(kHeads * keys * kHeadSize) * sizeof(K), call)};
}

std::vector<Row> rows_of(int threads, bool quick) {
  Runtime runtime;
  runtime.num_threads = threads;
  const std::size_t bytes = quick ? std::size_t{1} << 22 : bytes_to_reach_memory(threads);
  std::vector<Row> rows;
  rows.push_back({"multiply-add peak", "GFLOP/s", 0, [threads] { return fma_gflops(threads, kPeakSeconds); }});
  rows.push_back({"reading memory", "GB/s", 1,
                  [threads, bytes] { return read_gigabytes_per_second(bytes, threads, kReadSeconds); }});
  const Index length = quick ? 512 : 4096;
  rows.push_back(forward_row(length / 4, 64, false, runtime));
  for (Index head_size : {64, 128}) rows.push_back(forward_row(length, head_size, false, runtime));
  for (Index head_size : {64, 128}) rows.push_back(forward_row(length, head_size, true, runtime));
  const Index keys = quick ? 2048 : 16384;
  rows.push_back(decode_row<float>("float", keys, runtime));
  rows.push_back(decode_row<bfloat16>("bfloat16", keys, runtime));
  return rows;
}

// The first round is not counted: it touches memory for the first time.
std::vector<Row> measured_rows(int threads, bool quick, int rounds) {
  Progress progress("bench");
  std::vector<Row> rows = rows_of(threads, quick);
  const auto count = static_cast<Index>(rows.size());
  for (Index turn = 0; turn < (rounds + 1) * count; ++turn) {
    progress.update(turn, (rounds + 1) * count);
    if (turn >= count) std::this_thread::sleep_for(kIdle);
    Row& row = rows[static_cast<std::size_t>((turn + turn / count) % count)];
    const double figure = row.figure();
    if (turn >= count) row.figures.push_back(figure);
  }
  return rows;
}

std::string as_text(const std::vector<Row>& rows, int threads, int rounds) {
  std::string text = fmt::format("{}, {} thread{}, median of {} rounds\n\n", active_instruction_set(), threads,
                                 threads == 1 ? "" : "s", rounds);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += fmt::format("{:<32}{:>9.1f} {:<9}", rows[i].name, median(rows[i].figures), rows[i].unit);
    if (rows[i].reference != i)
      text += fmt::format("{:>5.2f} of the {}", share(rows[i], rows), rows[i].reference == 0 ? "peak" : "bandwidth");
    while (text.back() == ' ') text.pop_back();
    text += '\n';
  }
  return text + "\nOther load on this machine affects these figures.\n";
}

std::string as_json(const std::vector<Row>& rows, int threads, int rounds) {
  JsonWriter json;
  json.begin_object();
  write_build(json, build());
  json.string("instruction_set", active_instruction_set());
  json.whole("threads", threads);
  json.whole("rounds", rounds);
  const auto write_row = [&](const Row& row) {
    const Row& reference = rows[row.reference];
    json.string("name", row.name);
    json.string("unit", row.unit);
    json.number("median", median(row.figures));
    if (&row == &reference) {
      json.null("of");
      json.null("share");
    } else {
      json.string("of", reference.name);
      json.number("share", share(row, rows));
    }
  };
  json.objects("rows", rows, write_row, JsonLayout::lines, JsonLayout::one_line);
  json.end_object();
  return json.take();
}

}  // namespace

void add_bench(CLI::App& app) {
  struct Options {
    std::string threads;
    bool quick = false, json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("bench", "Measure attention speed as a fraction of this machine's peak");
  command->add_option("--threads", options->threads, "number of threads (default: see regard info)")->type_name("N");
  command->add_flag("--quick", options->quick, "a quick run of about a second with small shapes that\nfit in cache");
  command->add_flag("--json", options->json, "print the results as JSON");
  command->footer(
      "The benchmark takes about ten seconds and 700 MB of memory; keep the machine\n"
      "otherwise idle. GFLOP/s counts 4 D operations per visible query-key pair and\n"
      "excludes exponentials; GB/s counts each key and value once.\n"
      "\n"
      "EXAMPLES\n"
      "  regard bench\n"
      "  regard bench --threads 1\n"
      "  regard bench --json");
  command->callback([options] {
    int threads = default_num_threads();
    if (!options->threads.empty()) {
      const Index given = parse_integer("--threads", options->threads);
      if (given < 1 || given > 4096)
        throw UsageError(fmt::format("--threads is {}; expected 1 to 4096", options->threads));
      threads = static_cast<int>(given);
    }
    const int rounds = options->quick ? kQuickRounds : kRounds;
    const std::vector<Row> rows = measured_rows(threads, options->quick, rounds);
    write_stdout(options->json ? as_json(rows, threads, rounds) : as_text(rows, threads, rounds));
  });
}

}  // namespace regard::program
