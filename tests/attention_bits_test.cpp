// SPDX-License-Identifier: Apache-2.0
//
// docs/reference/semantics.md section 5: what does not change a bit. Threads, executors, other batch entries and heads,
// a row's position in the call, repetition, the contents of the workspace, the caller's floating-point state; and the
// instruction set, among those with fused multiply-add. Each test compares every output of whole calls, bit by bit.
// Read next: golden_test.cpp.
#include <cfenv>
#include <cstring>
#include <memory_resource>
#include <thread>

#include "support/attention_cases.h"
#include "support/attention_checks.h"
#include "support/floating_point_state.h"

namespace regard::attention_bits_test {
namespace {

template <class T>
class BitExactness : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(BitExactness, Types);

// Large enough to be distributed: several heads, tasks, blocks and chunks.
constexpr Index kB = 2, kH = 2, kHkv = 1, kL = 130, kS = 1100, kD = 11, kDv = 37;

template <class T>
AttentionInputs<T> large_inputs() {
  return AttentionInputs<T>::normal(1, kB, kH, kHkv, kL, kS, kD, kDv);
}

// Options that exercise every path: positions, a mask, a bias, sinks, a cap.
template <class T>
struct LargeOptions {
  Array<bool, 4> mask{{kB, 1, kL, kS}};
  Array<float, 4> bias{{1, kH, 1, kS}};
  std::vector<T> sinks{1, -1}, slopes{static_cast<T>(0.1), static_cast<T>(0.01)};

  LargeOptions() {
    Random random(2);
    mask.fill([&] { return random.chance(0.9); });
    bias.fill([&] { return random.normal(); });
  }
  std::vector<AttentionOptions> all() const {
    return {{},
            {.causal = true, .query_offset = QueryAlignment::bottom_right},
            {.causal = true,
             .query_offset = Index{850},
             .window = {600, 10},
             .mask = mask.view(),
             .bias = bias.view(),
             .alibi_slopes = slopes,
             .sinks = sinks,
             .soft_cap = 5.0}};
  }
};

// The result of run(runtime or nothing) must not depend on the runtime.
template <class T>
void expect_runtime_moves_no_bit(const std::vector<Runtime>& runtimes) {
  const AttentionInputs<T> inputs = large_inputs<T>();
  const LargeOptions<T> options;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const AttentionOptions& option : options.all()) {
      const auto expected = all_bits(run_attention(inputs, option, Runtime{.num_threads = 1}));
      for (const Runtime& runtime : runtimes)
        EXPECT_TRUE(same_bits(all_bits(run_attention(inputs, option, runtime)), expected));
    }
  });
}

TYPED_TEST(BitExactness, ThreadsDoNotChangeBits) {
  expect_runtime_moves_no_bit<TypeParam>(
      {{.num_threads = 1}, {.num_threads = 2}, {.num_threads = 3}, {.num_threads = 8}});
}

// Foreign executors: each task on the calling thread, in reverse order, on fresh threads.
void run_inline(Index n, const Task& task) {
  for (Index i = 0; i < n; ++i) task(i);
}
void run_reversed(Index n, const Task& task) {
  for (Index i = n; i-- > 0;) task(i);
}
void run_on_threads(Index n, const Task& task) {
  std::vector<std::jthread> threads;
  for (Index i = 0; i < n; ++i) threads.emplace_back([&task, i] { task(i); });
}

TYPED_TEST(BitExactness, ExecutorsDoNotChangeBits) {
  expect_runtime_moves_no_bit<TypeParam>({{.executor = run_inline, .num_threads = 3},
                                          {.executor = run_reversed, .num_threads = 5},
                                          {.executor = run_on_threads, .num_threads = 4}});
}

// Provides memory filled with one byte value, so that reads of uninitialized memory become visible.
class FilledMemory : public std::pmr::memory_resource {
 public:
  explicit FilledMemory(int byte) : byte_(byte) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* memory = std::pmr::new_delete_resource()->allocate(bytes, alignment);
    return std::memset(memory, byte_, bytes);
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  }
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  int byte_;
};

TYPED_TEST(BitExactness, WorkspaceContentsDoNotChangeBits) {
  using T = TypeParam;
  FilledMemory zero(0), ones(0xff), large(0x7e);
  expect_runtime_moves_no_bit<T>({{.workspace = &zero}, {.workspace = &ones}, {.workspace = &large}});
  for (std::uint64_t seed = 1; seed <= num_random_calls(test_size<std::uint64_t>(150, 20)); ++seed) {
    const AttentionCase<T> call = random_attention_case<T>(seed);
    SCOPED_TRACE(call.text);
    const auto run = [&](std::pmr::memory_resource* memory) {
      return all_bits(run_attention(call.query, call.key, call.value, call.options, {.workspace = memory}));
    };
    on_every_instruction_set([&](const kernels::KernelTable&) { EXPECT_TRUE(same_bits(run(&zero), run(&ones))); });
  }
}

TYPED_TEST(BitExactness, RepeatedCallsGiveTheSameBits) {
  using T = TypeParam;
  const AttentionInputs<T> inputs = large_inputs<T>();
  const LargeOptions<T> options;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const auto first = all_bits(run_attention(inputs, options.all()[2]));
    for (int n = 0; n < 4; ++n) EXPECT_TRUE(same_bits(all_bits(run_attention(inputs, options.all()[2])), first));
  });
}

// The part of a view with these extents, starting at these indices.
template <class T>
TensorView<T, 4> part(TensorView<T, 4> view, const std::array<Index, 4>& from, const std::array<Index, 4>& shape) {
  for (std::size_t axis = 0; axis < 4; ++axis) view.data += from[axis] * view.strides[axis];
  view.shape = shape;
  return view;
}

TYPED_TEST(BitExactness, OtherBatchEntriesAndHeadsDoNotChangeBits) {
  using T = TypeParam;
  const AttentionInputs<T> inputs = large_inputs<T>();
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionOptions options{.causal = true, .query_offset = QueryAlignment::bottom_right};
    const AttentionArrays<T> whole = run_attention(inputs, options);
    for (Index b = 0; b < kB; ++b) {
      for (Index h = 0; h < kH; ++h) {
        const Index kv = h / (kH / kHkv);
        AttentionArrays<T> alone = AttentionArrays<T>::dense(1, 1, kL, kS, kDv);
        attention_forward(part(inputs.query.view(), {b, h, 0, 0}, {1, 1, kL, kD}),
                          part(inputs.key.view(), {b, kv, 0, 0}, {1, 1, kS, kD}),
                          part(inputs.value.view(), {b, kv, 0, 0}, {1, 1, kS, kDv}), alone.views(), options);
        Index moved = 0;
        alone.context.for_each_index(
            [&](const auto& at) { moved += alone.context.get(at) != whole.context.get({b, h, at[2], at[3]}); });
        alone.weights->for_each_index(
            [&](const auto& at) { moved += alone.weights->get(at) != whole.weights->get({b, h, at[2], at[3]}); });
        alone.lse->for_each_index(
            [&](const auto& at) { moved += alone.lse->get(at) != whole.lse->get({b, h, at[2]}); });
        EXPECT_EQ(moved, 0) << "b " << b << " h " << h;
      }
    }
  });
}

TYPED_TEST(BitExactness, RowPositionAndQuerySplitsDoNotChangeBits) {
  using T = TypeParam;
  const AttentionInputs<T> inputs = large_inputs<T>();
  const Index offset = 700;
  std::vector<std::pair<Index, Index>> chunks;
  for (const Index row : {0, 1, 3, 11, 12, 59, 60, 61, 119, 120, 128, 129}) chunks.emplace_back(row, 1);
  for (const Index count : {2, 5, 7, 13, 60, 61, 128}) chunks.emplace_back(kL - count, count);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> whole =
        run_attention(inputs, {.causal = true, .query_offset = offset, .window = {650, {}}});
    for (const auto& chunk : chunks) {
      const Index first = chunk.first, count = chunk.second;
      AttentionArrays<T> alone = AttentionArrays<T>::dense(kB, kH, count, kS, kDv);
      attention_forward(part(inputs.query.view(), {0, 0, first, 0}, {kB, kH, count, kD}), inputs.key.view(),
                        inputs.value.view(), alone.views(),
                        {.causal = true, .query_offset = offset + first, .window = {650, {}}});
      Index moved = 0;
      alone.context.for_each_index([&](const auto& at) {
        moved += alone.context.get(at) != whole.context.get({at[0], at[1], first + at[2], at[3]});
      });
      alone.weights->for_each_index([&](const auto& at) {
        moved += alone.weights->get(at) != whole.weights->get({at[0], at[1], first + at[2], at[3]});
      });
      alone.row_sum->for_each_index([&](const auto& at) {
        moved += alone.row_sum->get(at) != whole.row_sum->get({at[0], at[1], first + at[2]});
      });
      EXPECT_EQ(moved, 0) << "rows from " << first << ", " << count;
    }
  });
}

// A block of few keys, compared with a full block in which a mask hides the others: exponentials of some or of all 64
// scores.
TYPED_TEST(BitExactness, PartialKeyBlocksDoNotChangeBits) {
  using T = TypeParam;
  constexpr Index kMaxKeys = 130, kSize = 32;
  on_every_instruction_set([&](const kernels::KernelTable&) {
    for (const Index rows : {1, 3, 7, 13}) {
      AttentionInputs<T> inputs = AttentionInputs<T>::normal(5, 1, 2, 2, rows, kMaxKeys, kSize, kSize);
      // Weights from 1 down to subnormals and 0.
      inputs.query.for_each_index([&](const auto& at) { inputs.query.set(at, 7 * inputs.query.get(at)); });
      for (Index keys = 1; keys <= kMaxKeys; keys += keys < 66 ? 1 : 9) {
        Array<bool, 4> mask({1, 1, 1, kMaxKeys});
        mask.for_each_index([&](const auto& at) { mask.set(at, at[3] < keys); });
        const AttentionArrays<T> hidden = run_attention(inputs, {.mask = mask.view()});
        AttentionArrays<T> alone = AttentionArrays<T>::dense(1, 2, rows, keys, kSize);
        attention_forward(inputs.query.view(), part(inputs.key.view(), {0, 0, 0, 0}, {1, 2, keys, kSize}),
                          part(inputs.value.view(), {0, 0, 0, 0}, {1, 2, keys, kSize}), alone.views());
        Index moved = 0;
        alone.context.for_each_index(
            [&](const auto& at) { moved += !identical(alone.context.get(at), hidden.context.get(at)); });
        alone.row_sum->for_each_index(
            [&](const auto& at) { moved += !identical(alone.row_sum->get(at), hidden.row_sum->get(at)); });
        alone.weights->for_each_index(
            [&](const auto& at) { moved += !identical(alone.weights->get(at), hidden.weights->get(at)); });
        EXPECT_EQ(moved, 0) << rows << " rows, " << keys << " keys";
      }
    }
  });
}

// Enough packed keys for tasks to form groups of four, if one thread has 66 of them.
TYPED_TEST(BitExactness, GroupedTasksMatchSingleTasks) {
  using T = TypeParam;
  constexpr Index kRows = 1980, kKeys = 40'000, kSize = 8, kOffset = 37'000;
  const AttentionInputs<T> inputs = AttentionInputs<T>::normal(3, 1, 2, 1, kRows, kKeys, kSize, kSize);
  const auto attend = [&](Index head, Index heads, Index first, Index count) {
    Tensor<T, 4> context({1, heads, count, kSize});
    attention_forward(part(inputs.query.view(), {0, head, first, 0}, {1, heads, count, kSize}), inputs.key.view(),
                      inputs.value.view(), {.context = context.view()},
                      {.causal = true, .query_offset = kOffset + first, .window = {1500, {}}}, {.num_threads = 1});
    return context;
  };
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const Tensor<T, 4> whole = attend(0, 2, 0, kRows);
    for (const Index first : {0, 60, 900, 1921}) {
      const Tensor<T, 4> alone = attend(1, 1, first, 59);
      EXPECT_TRUE(
          std::equal(alone.data(), alone.data() + alone.size(), whole.data() + (kRows + first) * kSize, identical<T>))
          << "rows from " << first;
    }
  });
}

// ---- the caller's floating-point state

// Control and status bits of the calling thread, restored at the end of the scope.
class FloatingPointState {
 public:
  FloatingPointState() : before_(floating_point_state()) { fegetenv(&environment_); }
  ~FloatingPointState() {
    fesetenv(&environment_);
    set_floating_point_state(before_);
  }
  FloatingPointState(const FloatingPointState&) = delete;
  FloatingPointState& operator=(const FloatingPointState&) = delete;

 private:
  std::uint64_t before_;
  fenv_t environment_;
};

// Rounding modes, flushing and unmasked exceptions that a caller may have set.
std::vector<std::uint64_t> unusual_states() {
  std::vector<std::uint64_t> states;
  for (const std::uint64_t rounding : {std::uint64_t{0}, kRoundDown, kRoundUp, kRoundToZero}) {
    for (const std::uint64_t flush : {std::uint64_t{0}, kFlushSubnormals}) {
      states.push_back(kExceptionsOff | rounding | flush);
      states.push_back(rounding | flush);
    }
  }
  return states;
}

// Inputs that raise every flag and whose results change with rounding and flushing; enough work for several threads.
template <class T>
AttentionInputs<T> delicate_inputs() {
  AttentionInputs<T> inputs = AttentionInputs<T>::normal(3, 2, 2, 2, 70, 500, 8, 9);
  inputs.value.for_each_index([&](const auto& at) {
    if (at[3] == 0) inputs.value.set(at, std::numeric_limits<T>::denorm_min() * static_cast<T>(at[2] + 1));
    if (at[3] == 1) inputs.value.set(at, std::numeric_limits<T>::max());
  });
  inputs.query.set({0, 0, 5, 0}, std::numeric_limits<T>::max());
  inputs.query.set({0, 0, 6, 0}, std::numeric_limits<T>::quiet_NaN());
  inputs.key.set({1, 1, 7, 0}, std::numeric_limits<T>::denorm_min());
  return inputs;
}

TYPED_TEST(BitExactness, CallersFloatingPointStateDoesNotChangeBitsAndIsRestored) {
  using T = TypeParam;
  const AttentionInputs<T> inputs = delicate_inputs<T>();
  const AttentionOptions options{.causal = true, .query_offset = Index{430}, .soft_cap = 30.0};
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> plain = run_attention(inputs, options);
    const auto expected = all_bits(plain);
    EXPECT_GT(plain.context.get({0, 0, 69, 0}), 0);
    std::size_t number = 0;
    for (const std::uint64_t state : unusual_states()) {
      ++number;
      for (const std::uint64_t flags : {std::uint64_t{0}, kInvalidFlag | kOverflowFlag | kUnderflowFlag}) {
        for (const int num_threads : {1, 3}) {
          if (!runs_case(number++, 4)) continue;
          AttentionArrays<T> got = AttentionArrays<T>::dense(2, 2, 70, 500, 9);
          std::uint64_t after = 0;
          {
            const FloatingPointState restored;
            // A raised flag with its exception unmasked is legal as long as no operation raises it again.
            set_floating_point_state(state | flags);
            attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), got.views(), options,
                              Runtime{.num_threads = num_threads});
            after = floating_point_state();
          }
          EXPECT_EQ(after, state | flags);
          EXPECT_TRUE(same_bits(all_bits(got), expected)) << std::hex << state;
        }
      }
    }
  });
}

TYPED_TEST(BitExactness, TasksOnForeignThreadsKeepTheirThreadsState) {
  using T = TypeParam;
  const AttentionInputs<T> inputs = large_inputs<T>();
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const auto expected = all_bits(run_attention(inputs, {.causal = true, .query_offset = Index{900}}));
    std::size_t number = 0;
    for (const std::uint64_t state : unusual_states()) {
      if (!runs_case(number++, 3)) continue;
      std::atomic<int> changed = 0;
      const Executor unusual = [&](Index n, const Task& task) {
        std::vector<std::jthread> threads;
        for (Index i = 0; i < n; ++i) {
          threads.emplace_back([&, i] {
            set_floating_point_state(state);
            task(i);
            changed += floating_point_state() != state;
          });
        }
      };
      EXPECT_TRUE(same_bits(all_bits(run_attention(inputs, {.causal = true, .query_offset = Index{900}},
                                                   Runtime{.executor = unusual, .num_threads = 2})),
                            expected));
      EXPECT_EQ(changed, 0);
    }
  });
}

TYPED_TEST(BitExactness, EveryOperatorRestoresTheFloatingPointState) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(4, 1, 1, 1, 3, 1030, 4, 5);
  const AttentionArrays<T> plain = run_attention(inputs);
  Array<T, 5> accumulator({2, 1, 1, 3, 5});
  Array<T, 4> partial_max({2, 1, 1, 3}), partial_sum({2, 1, 1, 3}), weights({1, 1, 3, 1030}), context({1, 1, 3, 5});
  const FloatingPointState restored;
  for (const std::uint64_t state : unusual_states()) {
    set_floating_point_state(state);
    attention_partials(inputs.query.view(), inputs.key.view(), inputs.value.view(),
                       {accumulator.view(), partial_max.view(), partial_sum.view()});
    const std::uint64_t after_partials = floating_point_state();
    attention_merge({accumulator.view(), partial_max.view(), partial_sum.view()}, {}, {.context = context.view()});
    const std::uint64_t after_merge = floating_point_state();
    attention_weights(inputs.query.view(), inputs.key.view(),
                      {.row_max = plain.row_max->view(), .row_sum = plain.row_sum->view()}, weights.view());
    const std::uint64_t after_weights = floating_point_state();
    set_floating_point_state(kExceptionsOff);
    EXPECT_EQ(after_partials, state);
    EXPECT_EQ(after_merge, state);
    EXPECT_EQ(after_weights, state);
    EXPECT_EQ(bits_of(context), bits_of(plain.context));
    EXPECT_EQ(bits_of(weights), bits_of(*plain.weights));
  }
}

// ---- instruction sets

TYPED_TEST(BitExactness, InstructionSetsWithFmaAreBitIdentical) {
  using T = TypeParam;
  const auto tables = fused_instruction_sets();
  ASSERT_GE(tables.size(), 1u);
  const auto compare = [&](const auto& run) {
    std::vector<std::uint64_t> expected;
    for (const kernels::KernelTable* table : tables) {
      const ActiveTable active(*table);
      const std::vector<std::uint64_t> bits = run();
      if (table == tables.front()) expected = bits;
      EXPECT_TRUE(same_bits(bits, expected)) << table->name << " and " << tables.front()->name;
    }
  };
  const AttentionInputs<T> inputs = large_inputs<T>();
  const LargeOptions<T> options;
  for (const auto& option : options.all()) compare([&] { return all_bits(run_attention(inputs, option)); });
  const AttentionInputs<T> delicate = delicate_inputs<T>();
  compare([&] { return all_bits(run_attention(delicate, {.soft_cap = 30.0})); });
  for (std::uint64_t seed = 1; seed <= num_random_calls(600); ++seed) {
    const AttentionCase<T> call = random_attention_case<T>(seed);
    SCOPED_TRACE(call.text);
    compare([&] { return all_bits(run_attention(call.query, call.key, call.value, call.options)); });
  }
}

}  // namespace
}  // namespace regard::attention_bits_test
