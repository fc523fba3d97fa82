// SPDX-License-Identifier: Apache-2.0
//
// Options, outputs, runtimes and plans of the C interface, and the last error of each thread.
// Read next: attention.cpp.
#include "descriptors.h"

#include <limits>

namespace regard::inline v0::internal {
namespace {

// Not a std::string: a thread-local object with a destructor would prevent unloading the library.
constexpr std::size_t kErrorBytes = 2048;
thread_local char last_error[kErrorBytes];

template <std::size_t size>
void copy_text(const std::string& from, char (&to)[size]) {
  const std::size_t length = std::min(from.size(), size - 1);
  std::memcpy(to, from.data(), length);
  to[length] = '\0';
}

}  // namespace

void remember(const char* text) {
  std::size_t length = std::min(std::strlen(text), kErrorBytes - 1);
  if (length == kErrorBytes - 1) {
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;  // whole UTF-8 characters
  }
  std::memcpy(last_error, text, length);
  last_error[length] = '\0';
}

AttentionOptions options_of(const char* name, const regard_attention_options* given) {
  AttentionOptions options;
  if (given == nullptr) return options;
  const regard_attention_options o = read_struct(name, "options", given);
  options.causal = o.causal != 0;
  switch (o.query_offset_kind) {
    case REGARD_OFFSET_NOT_GIVEN:
      break;
    case REGARD_OFFSET_TOP_LEFT:
      options.query_offset = QueryAlignment::top_left;
      break;
    case REGARD_OFFSET_BOTTOM_RIGHT:
      options.query_offset = QueryAlignment::bottom_right;
      break;
    case REGARD_OFFSET_VALUE:
      options.query_offset = o.query_offset;
      break;
    case REGARD_OFFSET_VALUES:
      options.query_offset = view_of<InputView<1>>(name, "query_offsets", o.query_offsets);
      break;
    default:
      reject(name, "query_offset_kind is " + std::to_string(o.query_offset_kind) + "; expected 0 to 4");
  }
  if (o.has_window_left != 0) options.window.left = o.window_left;
  if (o.has_window_right != 0) options.window.right = o.window_right;
  options.key_lengths = view_of<InputView<1>>(name, "key_lengths", o.key_lengths);
  options.query_starts = view_of<InputView<1>>(name, "query_starts", o.query_starts);
  options.key_starts = view_of<InputView<1>>(name, "key_starts", o.key_starts);
  options.query_segments = view_of<InputView<2>>(name, "query_segments", o.query_segments);
  options.key_segments = view_of<InputView<2>>(name, "key_segments", o.key_segments);
  options.prefix = view_of<InputView<1>>(name, "prefix", o.prefix);
  options.block_mask = view_of<InputView<4>>(name, "block_mask", o.block_mask);
  options.block_size = {o.block_size[0], o.block_size[1]};
  options.mask = view_of<InputView<4>>(name, "mask", o.mask);
  options.bias = view_of<InputView<4>>(name, "bias", o.bias);
  options.alibi_slopes = view_of<InputView<1>>(name, "alibi_slopes", o.alibi_slopes);
  options.sinks = view_of<InputView<1>>(name, "sinks", o.sinks);
  if (o.has_soft_cap != 0) options.soft_cap = o.soft_cap;
  if (o.has_scale != 0) options.scale = o.scale;
  if (o.weights_in_float32 < -1 || o.weights_in_float32 > 1)
    reject(name, "options->weights_in_float32 is " + std::to_string(o.weights_in_float32) + "; expected -1, 0 or 1");
  if (o.weights_in_float32 != 0) options.weights_in_float32 = o.weights_in_float32 > 0;
  options.dropout = o.dropout;
  options.dropout_seed = o.dropout_seed;
  std::copy_n(o.dropout_first, options.dropout_first.size(), options.dropout_first.begin());
  return options;
}

AttentionOutputs outputs_of(const char* name, const regard_attention_outputs& o, AttentionFingerprint& made) {
  AttentionOutputs views;
  views.context = required<OutputView<4>>(name, "context", &o.context);
  views.row_max = view_of<OutputView<3>>(name, "row_max", o.row_max);
  views.row_sum = view_of<OutputView<3>>(name, "row_sum", o.row_sum);
  views.lse = view_of<OutputView<3>>(name, "lse", o.lse);
  views.weights = view_of<OutputView<4>>(name, "weights", o.weights);
  views.sink_weights = view_of<OutputView<3>>(name, "sink_weights", o.sink_weights);
  if (o.fingerprint != nullptr) views.fingerprint = &made;
  return views;
}

AttentionPartialOutputs partials_of(const char* name, const regard_partial_outputs* given) {
  const regard_partial_outputs p = read_struct(name, "partials", given);
  return {.accumulator = view_of<OutputView<5>>(name, "accumulator", p.accumulator),
          .row_max = view_of<OutputView<4>>(name, "row_max", p.row_max),
          .row_sum = view_of<OutputView<4>>(name, "row_sum", p.row_sum),
          .scaled_accumulator = view_of<OutputView<5>>(name, "scaled_accumulator", p.scaled_accumulator)};
}

void write_words(const AttentionFingerprint& made, std::uint32_t* words) {
  static_assert(std::tuple_size_v<decltype(made.words)> == REGARD_FINGERPRINT_WORDS);
  if (words != nullptr && made != AttentionFingerprint{}) std::ranges::copy(made.words, words);
}

void* CallersWorkspace::do_allocate(std::size_t bytes, std::size_t alignment) {
  void* const memory = runtime_.allocate(runtime_.workspace_data, bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void CallersWorkspace::do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) {
  runtime_.deallocate(runtime_.workspace_data, memory, bytes, alignment);
}

std::stop_token token_of(const regard_stop* stop) {
  return stop == nullptr ? std::stop_token() : stop->source.get_token();
}

Runtime runtime_of(const char* name, const regard_runtime& given, CallersWorkspace& workspace) {
  Runtime runtime;
  constexpr std::int64_t kLowest = std::numeric_limits<int>::min();
  constexpr std::int64_t kHighest = std::numeric_limits<int>::max();
  runtime.num_threads = static_cast<int>(std::clamp(given.num_threads, kLowest, kHighest));
  runtime.stop = token_of(given.stop);
  if (given.executor != nullptr) {
    runtime.executor = [&given](Index count, const Task& task) {
      const auto call = [](void* data, std::int64_t i) { (*static_cast<const Task*>(data))(i); };
      given.executor(given.executor_data, count, call, const_cast<Task*>(&task));
    };
  }
  if ((given.allocate == nullptr) != (given.deallocate == nullptr)) {
    reject(name, std::string("runtime->") + (given.allocate != nullptr ? "allocate" : "deallocate") +
                     " is given alone; expected allocate and deallocate, or neither");
  }
  if (given.allocate != nullptr) runtime.workspace = &workspace;
  return runtime;
}

void write_plan(const Plan& plan, regard_plan& to) {
  to = {};
  to.struct_size = sizeof to;
  to.workspace_bytes = plan.workspace_bytes;
  std::string strategies;
  for (const PlannedOperator& planned : plan.operators) {
    to.operations += planned.operations;
    to.bytes += planned.bytes;
    to.num_threads = std::max<std::int64_t>(to.num_threads, planned.num_threads);
    strategies += (strategies.empty() ? "" : "\n") + planned.name + ": " + planned.strategy;
  }
  copy_text(plan.instruction_set, to.instruction_set);
  copy_text(plan.why, to.why);
  copy_text(strategies, to.strategy);
}

void check_accumulate(const char* name, std::int64_t accumulate, std::int64_t allowed) {
  if ((accumulate & ~allowed) == 0) return;
  reject(name, "accumulate is " + std::to_string(accumulate) + "; expected a sum of the flags within " +
                   std::to_string(allowed));
}

}  // namespace regard::inline v0::internal

using namespace regard;
using namespace regard::internal;

const char* regard_version(void) { return version().data(); }

const char* regard_last_error(void) { return last_error; }

int32_t regard_attention_options_init(regard_attention_options* options, size_t struct_size) {
  return status_of([=] {
    const char* name = "attention_options_init";
    if (options == nullptr) reject(name, "options is NULL");
    if (struct_size < sizeof(regard_attention_options)) {
      reject(name, "struct_size is " + std::to_string(struct_size) + "; expected " + std::to_string(sizeof *options) +
                       " or more");
    }
    std::memset(static_cast<void*>(options), 0, struct_size);
    options->struct_size = struct_size;
  });
}

int32_t regard_stop_create(regard_stop** stop) {
  return status_of([=] {
    if (stop == nullptr) reject("stop_create", "stop is NULL");
    *stop = new regard_stop;
  });
}

void regard_stop_free(regard_stop* stop) { delete stop; }

void regard_stop_request(regard_stop* stop) {
  if (stop != nullptr) stop->source.request_stop();
}
