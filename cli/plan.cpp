// SPDX-License-Identifier: Apache-2.0
//
// `regard plan`: how attention over several ranks would be divided, what is sent, and how long it would take.
//
//     options ── DistributedProblem ── choose_plan ─┐
//     rates, given or measured here ────────────────┴─ predict_time ── against the time of one machine
//
// Read next: regard/distributed/shards.h, regard/distributed/cost.h, docs/derivations/ranks.md.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attend_options.h"
#include "peaks.h"
#include "plan_values.h"
#include "program.h"
#include "regard/distributed/cost.h"
#include "regard/distributed/shards.h"
#include "regard/io/json_writer.h"
#include "regard/peaks.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

struct PlanText {
  std::string ranks, length, link, latency, flops, read_rate, queries, batch, heads, kv_heads, head_size,
      value_head_size, dtype, window, shares;
  bool causal = false, json = false;
};

struct PlanSettings {
  DistributedProblem problem;
  Index length = 0, queries = 0;
  std::string window;  // as given
  ElementType dtype = ElementType::float32;
  NodeRates rates;
  bool measures_flops = false, measures_reads = false;
};

constexpr Index kMaxRanks = 4096;
constexpr double kDefaultLatency = 50e-6;

// ---- values

Index parse_count(const char* option, const std::string& text, Index otherwise, Index least = 1,
                  Index most = Index{1} << 40) {
  if (text.empty()) return otherwise;
  const Index n = parse_integer(option, text);
  if (n < least || n > most) throw UsageError(fmt::format("{} is {}; expected {} to {}", option, n, least, most));
  return n;
}

ElementType parse_dtype(const std::string& text) {
  if (text.empty() || text == "f32") return ElementType::float32;
  if (text == "f64") return ElementType::float64;
  if (text == "bf16") return ElementType::bfloat16;
  if (text == "f16") return ElementType::float16;
  reject_value("--dtype", text, "f32, f64, bf16 or f16");
}

PlanSettings settings_of(const PlanText& text) {
  for (const auto& [option, value, expected] : {std::tuple{"--ranks", &text.ranks, "the number of machines"},
                                                {"--length", &text.length, "the number of keys"},
                                                {"--link", &text.link, "the rate of a network link, such as 10Gb"}}) {
    if (value->empty()) throw UsageError(fmt::format("missing {}; give {}", option, expected));
  }
  PlanSettings settings;
  DistributedProblem& p = settings.problem;
  const Index ranks = parse_count("--ranks", text.ranks, 0, 1, kMaxRanks);
  settings.length = parse_count("--length", text.length, 0);
  settings.queries = parse_count("--queries", text.queries, settings.length);
  settings.dtype = parse_dtype(text.dtype);
  p.batch = parse_count("--batch", text.batch, 1);
  p.num_heads = parse_count("--heads", text.heads, 32);
  p.num_kv_heads = parse_count("--kv-heads", text.kv_heads, p.num_heads);
  p.head_size = parse_count("--head-size", text.head_size, 128, 1, 1 << 16);
  p.value_head_size = parse_count("--value-head-size", text.value_head_size, p.head_size, 1, 1 << 16);
  p.element_bytes = type_bytes(settings.dtype);
  p.partial_bytes = settings.dtype == ElementType::float64 ? 8 : 4;
  p.visibility.causal = text.causal;
  p.visibility.query_offset = QueryAlignment::bottom_right;
  settings.window = text.window;
  if (!text.window.empty()) p.visibility.window = parse_window(text.window);
  if (!text.shares.empty() && text.shares != "even" && text.shares != "work")
    reject_value("--shares", text.shares, "even or work");
  usage("", [&] {
    p.row_starts = text.shares == "work" ? split_by_work(p.visibility, settings.queries, settings.length, ranks)
                                         : split_evenly(settings.queries, ranks);
    // The keys of a token are held where its row is. If queries and keys differ in number, keys are divided so that
    // they need not be sent.
    p.key_starts =
        settings.queries == settings.length ? p.row_starts : split_evenly(settings.length, ranks, kAttentionChunkKeys);
  });
  settings.rates.link_bytes = parse_link("--link", text.link);
  settings.rates.message_latency = text.latency.empty() ? kDefaultLatency : parse_seconds("--latency", text.latency);
  settings.measures_flops = text.flops.empty();
  settings.measures_reads = text.read_rate.empty();
  if (!settings.measures_flops) settings.rates.flops = parse_flops("--flops", text.flops);
  if (!settings.measures_reads) settings.rates.read_bytes = parse_link("--read-rate", text.read_rate);
  return settings;
}

// ---- rates of this machine

// Operations per second of attention on heads of these sizes: the best of several calls.
template <class T>
double measure_flops(const DistributedProblem& p) {
  using Clock = std::chrono::steady_clock;
  static constexpr Index kHeads = 8, kLength = 1024;
  constexpr double kFlopsSeconds = 0.3;
  const auto filled = [](Index size, unsigned seed) {
    Tensor<T, 4> tensor({1, kHeads, kLength, size});
    unsigned state = seed;
    std::generate(tensor.data(), tensor.data() + tensor.size(), [&state] {
      state = state * 1664525U + 1013904223U;
      return T(static_cast<float>(state >> 8) * 0x1p-23F - 1);
    });
    return tensor;
  };
  const Tensor<T, 4> query = filled(p.head_size, 1), key = filled(p.head_size, 2), value = filled(p.value_head_size, 3);
  Tensor<T, 4> context({1, kHeads, kLength, p.value_head_size});
  const double operations = 2.0 * kHeads * kLength * kLength * static_cast<double>(p.head_size + p.value_head_size);
  double best = 0;
  const auto begin = Clock::now();
  for (int call = 0; call < 3 || std::chrono::duration<double>(Clock::now() - begin).count() < kFlopsSeconds; ++call) {
    const auto start = Clock::now();
    attention_forward(query.view(), key.view(), value.view(), {.context = context.view()});
    best = std::max(best, operations / std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

void measure_rates(PlanSettings& settings) {
  const DistributedProblem& p = settings.problem;
  if (settings.measures_flops) {
    settings.rates.flops = settings.dtype == ElementType::float64    ? measure_flops<double>(p)
                           : settings.dtype == ElementType::bfloat16 ? measure_flops<bfloat16>(p)
                           : settings.dtype == ElementType::float16  ? measure_flops<float16>(p)
                                                                     : measure_flops<float>(p);
  }
  if (settings.measures_reads) {
    const int threads = default_num_threads();
    settings.rates.read_bytes = 1e9 * read_gigabytes_per_second(bytes_to_reach_memory(threads), threads, 0.1);
  }
}

// ---- the prediction

struct Prediction {
  DistributedPlan plan{};
  PredictedTime ranks{}, one_machine{};
  Index received = 0, buffer = 0, held = 0, whole = 0;  // bytes; of the rank with the most, and of one machine

  bool one_machine_is_faster() const { return one_machine.seconds <= ranks.seconds; }
};

Prediction predict(const PlanSettings& settings) {
  const DistributedProblem& p = settings.problem;
  return usage("", [&] {
    Prediction found;
    found.plan = choose_plan(p);
    found.ranks = predict_time(p, found.plan, settings.rates);
    DistributedProblem alone = p;
    alone.row_starts = {0, settings.queries};
    alone.key_starts = {0, settings.length};
    found.one_machine = predict_time(alone, plan_rows(alone), settings.rates);
    found.received = found.plan.max_received_bytes();
    const Index per_token = p.batch * (p.head_size + p.value_head_size) * p.element_bytes;
    const auto bytes_of = [&](Index rows, Index keys) {
      return per_token * (rows * p.num_heads + keys * p.num_kv_heads);
    };
    for (std::size_t r = 0; r < found.plan.ranks.size(); ++r) {
      found.buffer = std::max(found.buffer, found.plan.ranks[r].buffer_bytes);
      found.held =
          std::max(found.held, bytes_of(p.row_starts[r + 1] - p.row_starts[r], p.key_starts[r + 1] - p.key_starts[r]));
    }
    found.whole = bytes_of(settings.queries, settings.length);
    return found;
  });
}

const char* scheme_text(DistributedScheme scheme) {
  switch (scheme) {
    case DistributedScheme::heads:
      return "each rank computes some heads, for all rows";
    case DistributedScheme::rows:
      return "each rank computes some rows, with keys gathered one head at a time";
    case DistributedScheme::keys:
      break;
  }
  return "each rank computes partial results over its own keys";
}

std::string memory_text(Index bytes) { return bytes_text(static_cast<std::uint64_t>(bytes)); }

std::string verdict(const Prediction& found) {
  const auto ranks = static_cast<Index>(found.plan.ranks.size());
  const double one = found.one_machine.seconds, several = found.ranks.seconds;
  if (ranks == 1) return fmt::format("one machine: {}", seconds_text(one));
  if (found.one_machine_is_faster())
    return fmt::format("one machine is faster: {} against {}", seconds_text(one), seconds_text(several));
  return fmt::format("{} machines are faster: {} against {} ({:.3g} times)", ranks, seconds_text(several),
                     seconds_text(one), one / several);
}

std::string as_text(const PlanSettings& settings, const Prediction& found) {
  const DistributedProblem& p = settings.problem;
  const NodeRates& rates = settings.rates;
  std::string text;
  const auto line = [&text](const char* label, const std::string& content) {
    text += fmt::format("{:<10}{}\n", label, content);
  };
  line("call", fmt::format("{} queries, {} keys, {} heads, {} key/value heads,", settings.queries, settings.length,
                           p.num_heads, p.num_kv_heads));
  line("", fmt::format("head sizes {} and {}, {}{}{}", p.head_size, p.value_head_size, type_name(settings.dtype),
                       p.visibility.causal ? ", causal" : "",
                       settings.window.empty() ? "" : ", window " + settings.window));
  line("scheme", fmt::format("{}: {}", scheme_name(found.plan.scheme), scheme_text(found.plan.scheme)));
  line("balance", fmt::format("the busiest of {} ranks has {:.3f} times the mean work", found.plan.ranks.size(),
                              found.plan.imbalance()));
  line("bytes", fmt::format("a rank receives up to {}", memory_text(found.received)));
  line("memory", fmt::format("a rank holds up to {} and needs {} for received data;", memory_text(found.held),
                             memory_text(found.buffer)));
  line("", fmt::format("one machine holds {}", memory_text(found.whole)));
  const auto measured = [](bool here) { return here ? " (measured here)" : ""; };
  line("node", fmt::format("{}FLOP/s of attention{},", rate_text(rates.flops), measured(settings.measures_flops)));
  line("", fmt::format("reads {}B/s{}", rate_text(rates.read_bytes), measured(settings.measures_reads)));
  line("link", fmt::format("{}B/s, {} per message", rate_text(rates.link_bytes), seconds_text(rates.message_latency)));
  line("time",
       fmt::format("{}: {} of computation,", seconds_text(found.ranks.seconds), seconds_text(found.ranks.compute)));
  line("", fmt::format("{} of waiting for transfers (of {})", seconds_text(found.ranks.seconds - found.ranks.compute),
                       seconds_text(found.ranks.transfer)));
  return text + verdict(found) + "\n";
}

std::string as_json(const PlanSettings& settings, const Prediction& found) {
  const DistributedProblem& p = settings.problem;
  JsonWriter json;
  json.begin_object();
  write_build(json, build());
  json.whole("ranks", static_cast<Index>(found.plan.ranks.size()));
  json.whole("queries", settings.queries);
  json.whole("length", settings.length);
  json.whole("batch", p.batch);
  json.whole("heads", p.num_heads);
  json.whole("kv_heads", p.num_kv_heads);
  json.whole("head_size", p.head_size);
  json.whole("value_head_size", p.value_head_size);
  json.string("dtype", type_name(settings.dtype));
  json.boolean("causal", p.visibility.causal);
  if (settings.window.empty()) {
    json.null("window");
  } else {
    json.string("window", settings.window);
  }
  json.string("scheme", std::string(scheme_name(found.plan.scheme)));
  json.number("imbalance", found.plan.imbalance());
  json.whole("received_bytes", found.received);
  json.whole("buffer_bytes", found.buffer);
  json.whole("held_bytes", found.held);
  json.whole("one_machine_bytes", found.whole);
  json.number("flops", settings.rates.flops);
  json.boolean("flops_measured", settings.measures_flops);
  json.number("read_bytes_per_second", settings.rates.read_bytes);
  json.boolean("read_measured", settings.measures_reads);
  json.number("link_bytes_per_second", settings.rates.link_bytes);
  json.number("latency_seconds", settings.rates.message_latency);
  json.number("seconds", found.ranks.seconds);
  json.number("compute_seconds", found.ranks.compute);
  json.number("transfer_seconds", found.ranks.transfer);
  json.number("one_machine_seconds", found.one_machine.seconds);
  json.boolean("one_machine_is_faster", found.one_machine_is_faster());
  json.end_object();
  return json.take();
}

}  // namespace

void add_plan(CLI::App& app) {
  auto text = std::make_shared<PlanText>();
  CLI::App* command = app.add_subcommand("plan", "Predict the run time of attention on several machines");
  const auto add = [&](const char* name, std::string& value, const char* type, const char* group, const char* help) {
    command->add_option(name, value, help)->type_name(type)->group(group);
  };
  const char* machines = "MACHINES";
  add("--ranks", text->ranks, "N", machines, "number of machines (required)");
  add("--link", text->link, "RATE", machines,
      "bandwidth of each machine's network link (required):\n10Gb, 100Gb, 1.25GB/s (b: bits, B: bytes)");
  add("--latency", text->latency, "TIME", machines, "latency per message: 50us (default), 2ms, 0.001s");
  add("--flops", text->flops, "RATE", machines,
      "attention throughput of each machine, in FLOP/s,\nsuch as 800G or 5T (default: measured here)");
  add("--read-rate", text->read_rate, "RATE", machines,
      "memory bandwidth of each machine, such as 50GB/s\n(default: measured here)");
  add("--shares", text->shares, "even|work", machines,
      "division of the rows among the machines: equal\ncounts (even, default) or equal work (work)");
  const char* call = "CALL (attention of one layer)";
  add("--length", text->length, "S", call, "number of keys (required)");
  add("--queries", text->queries, "L", call,
      "number of queries, at the last L positions of the\nsequence (default: S)");
  add("--batch", text->batch, "B", call, "batch size (default: 1)");
  add("--heads", text->heads, "H", call, "number of query heads (default: 32)");
  add("--kv-heads", text->kv_heads, "HKV", call, "number of key/value heads, which must divide H\n(default: H)");
  add("--head-size", text->head_size, "D", call, "head size of queries and keys (default: 128)");
  add("--value-head-size", text->value_head_size, "DV", call, "head size of values (default: D)");
  add("--dtype", text->dtype, "f32|f64|bf16|f16", call, "element type (default: f32)");
  command->add_flag("--causal", text->causal, "causal mask: no query attends to later keys")->group(call);
  add("--window", text->window, "LEFT,RIGHT", call,
      "a query attends only to keys from LEFT positions\nbefore its own to RIGHT positions after it;\n"
      "a value of - means no limit");
  command->add_flag("--json", text->json, "print the same data as JSON");
  command->footer(
      "EXAMPLES\n"
      "  regard plan --ranks 8 --link 10Gb --length 131072 --causal\n"
      "  regard plan --ranks 8 --link 10Gb --length 131072 --causal --flops 5T\n"
      "  regard plan --ranks 4 --link 100Gb --length 1000000 --queries 1 --kv-heads 8\n"
      "\n"
      "Nothing is sent over the network. The prediction assumes no other load on the\n"
      "machines or the network. docs/derivations/ranks.md derives the communication\n"
      "volume, load balance and time.");
  command->callback([text] {
    PlanSettings settings = settings_of(*text);
    measure_rates(settings);
    const Prediction found = predict(settings);
    write_stdout(text->json ? as_json(settings, found) : as_text(settings, found));
  });
}

}  // namespace regard::program
