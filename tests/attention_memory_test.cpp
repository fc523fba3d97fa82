// SPDX-License-Identifier: Apache-2.0
//
// docs/reference/semantics.md section 3, the rows about memory: inaccessible pages before and after every array,
// misaligned pointers, strides of every kind, views of more than 2³¹ elements, long rows, many rows; and which overlaps
// are rejected.
// Read next: attention_rejections_test.cpp.
#include <sys/mman.h>
#include <unistd.h>

#include "support/attention_checks.h"
#include "support/test_size.h"

namespace regard::attention_memory_test {
namespace {

template <class T>
class AttentionMemory : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionMemory, Types);

// ---- accessed memory

// Memory of exactly the requested size, with an inaccessible page directly after it or before it.
class GuardedMemory {
 public:
  GuardedMemory(std::size_t bytes, bool guard_behind) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inside = (bytes + page - 1) / page * page;
    mapped_ = inside + 2 * page;
    start_ = static_cast<char*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_EQ(mprotect(start_ + page, inside, PROT_READ | PROT_WRITE), 0);
    data_ = guard_behind ? start_ + page + inside - bytes : start_ + page;
  }
  ~GuardedMemory() { munmap(start_, mapped_); }
  GuardedMemory(GuardedMemory&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), data_(other.data_), mapped_(std::exchange(other.mapped_, 0)) {}
  GuardedMemory& operator=(GuardedMemory&&) = delete;
  template <class E>
  E* as() {
    return reinterpret_cast<E*>(data_);
  }

 private:
  char* start_;
  char* data_;
  std::size_t mapped_;
};

// Copies of arrays in guarded memory.
class GuardedCopies {
 public:
  explicit GuardedCopies(bool guard_behind) : guard_behind_(guard_behind) {}

  template <class T, int Rank>
  TensorView<T, Rank> copy(const Array<T, Rank>& array) {
    const std::vector<T> values = array.values();
    T* to = place<T>(values.size());
    std::copy(values.begin(), values.end(), to);
    return {to, array.shape()};
  }
  template <class T>
  std::span<const T> copy(const std::vector<T>& numbers) {
    T* to = place<T>(numbers.size());
    std::copy(numbers.begin(), numbers.end(), to);
    return {to, numbers.size()};
  }
  template <class T, std::size_t Rank>
  TensorView<T, static_cast<int>(Rank)> output(const std::array<Index, Rank>& shape) {
    Index size = 1;
    for (const Index n : shape) size *= n;
    return {place<T>(static_cast<std::size_t>(size)), shape};
  }

 private:
  template <class T>
  T* place(std::size_t count) {
    memory_.emplace_back(count * sizeof(T), guard_behind_);
    return memory_.back().template as<T>();
  }

  bool guard_behind_;
  std::vector<GuardedMemory> memory_;
};

TYPED_TEST(AttentionMemory, NothingOutsideTheArgumentsIsAccessed) {
  using T = TypeParam;
  for (const auto& extents :
       {std::array<Index, 4>{1, 1, 1, 1}, {3, 33, 7, 5}, {61, 65, 33, 31}, {7, 1025, 3, 40}, {2, 33, 40, 72}}) {
    const Index L = extents[0], S = extents[1], D = extents[2], Dv = extents[3];
    const auto inputs = AttentionInputs<T>::normal(1, 2, 2, 1, L, S, D, Dv);
    Array<bool, 4> mask({2, 1, L, S}), blocks({1, 2, (L + 4) / 5, (S + 8) / 9});
    Array<float, 4> bias({1, 2, L, S});
    Array<std::int32_t, 2> rows({2, L}), keys({2, S});
    Random random(2);
    mask.fill([&] { return random.chance(0.8); });
    blocks.fill([&] { return random.chance(0.9); });
    bias.fill([&] { return random.normal(); });
    for (auto* segments : {&rows, &keys}) segments->fill([&] { return random.integer(0, 1); });
    const std::vector<T> slopes{static_cast<T>(0.5), static_cast<T>(0.25)}, sinks{1, 2};
    const std::vector<Index> offsets{0, 1}, lengths{S, S - 1}, prefix{1, 0};
    for (const bool guard_behind : {true, false}) {
      on_every_instruction_set([&](const kernels::KernelTable&) {
        GuardedCopies memory(guard_behind);
        const auto query = memory.copy(inputs.query), key = memory.copy(inputs.key), value = memory.copy(inputs.value);
        const AttentionOptions options{.causal = true,
                                       .query_offset = memory.copy(offsets),
                                       .window = {L + S, 5},
                                       .key_lengths = memory.copy(lengths),
                                       .query_segments = memory.copy(rows),
                                       .key_segments = memory.copy(keys),
                                       .prefix = memory.copy(prefix),
                                       .block_mask = memory.copy(blocks),
                                       .block_size = {5, 9},
                                       .mask = memory.copy(mask),
                                       .bias = TensorView<const float, 4>(memory.copy(bias)),
                                       .alibi_slopes = memory.copy(slopes),
                                       .sinks = memory.copy(sinks)};
        const std::array<Index, 3> all_rows{2, 2, L};
        const AttentionOutputs outputs{.context = memory.output<T, 4>({2, 2, L, Dv}),
                                       .row_max = memory.output<T, 3>(all_rows),
                                       .row_sum = memory.output<T, 3>(all_rows),
                                       .lse = memory.output<T, 3>(all_rows),
                                       .weights = memory.output<T, 4>({2, 2, L, S}),
                                       .sink_weights = memory.output<T, 3>(all_rows)};
        attention_forward(query, key, value, outputs, options);
        const AttentionArrays<T> expected = run_attention(inputs, options);
        const std::vector<T> context = expected.context.values();
        EXPECT_TRUE(std::equal(context.begin(), context.end(), static_cast<const T*>(outputs.context.data)));
        const std::vector<T> weights = expected.weights->values();
        EXPECT_TRUE(std::equal(weights.begin(), weights.end(), static_cast<const T*>(outputs.weights.data)));
      });
    }
  }
}

// Keys and values that few rows read unpacked, in the compute types and in others.
template <class E>
void expect_nothing_beside_rows_is_read() {
  for (const auto& extents : {std::array<Index, 3>{33, 40, 72}, {70, 104, 56}, {129, 264, 48}, {64, 64, 96}}) {
    const Index S = extents[0], D = extents[1], Dv = extents[2];
    Random random(5);
    Array<E, 4> query({1, 6, 1, D}), key({1, 1, S, D}), value({1, 1, S, Dv});
    for (auto* array : {&query, &key, &value}) array->fill([&] { return static_cast<float>(random.normal()); });
    on_every_instruction_set([&](const kernels::KernelTable&) {
      Array<float, 4> expected({1, 6, 1, Dv}), context({1, 6, 1, Dv});
      attention_forward(query.view(), key.view(), value.view(), {.context = expected.view()});
      for (const bool guard_behind : {true, false}) {
        GuardedCopies memory(guard_behind);
        attention_forward(query.view(), TensorView<const E, 4>(memory.copy(key)),
                          TensorView<const E, 4>(memory.copy(value)), {.context = context.view()});
        EXPECT_EQ(context.values(), expected.values());
      }
    });
  }
}

TEST(AttentionMemoryUnpacked, NothingOutsideTheRowsIsRead) {
  expect_nothing_beside_rows_is_read<float>();
  expect_nothing_beside_rows_is_read<bfloat16>();
  expect_nothing_beside_rows_is_read<float16>();
}

TYPED_TEST(AttentionMemory, MisalignmentDoesNotChangeBits) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(3, 1, 2, 1, 13, 70, 17, 35);
  Array<float, 4> bias({1, 1, 13, 70});
  Array<std::int32_t, 2> rows({1, 13}), keys({1, 70});
  Random random(4);
  bias.fill([&] { return random.normal(); });
  for (auto* segments : {&rows, &keys}) segments->fill([&] { return random.integer(0, 1); });
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> expected = run_attention(inputs, {.query_segments = std::as_const(rows).view(),
                                                               .key_segments = std::as_const(keys).view(),
                                                               .bias = std::as_const(bias).view()});
    for (Index bytes = 1; bytes < 64; ++bytes) {
      const auto moved = [&](Index by) {
        Layout<4> layout = Layout<4>::dense();
        layout.lead_bytes = by % 64;
        return layout;
      };
      Layout<2> layout_2 = Layout<2>::dense();
      layout_2.lead_bytes = bytes;
      Layout<3> layout_3 = Layout<3>::dense();
      layout_3.lead_bytes = bytes;
      AttentionInputs<T> shifted{relaid(inputs.query, moved(bytes)), relaid(inputs.key, moved(bytes * 3)),
                                 relaid(inputs.value, moved(bytes * 5))};
      const Array<float, 4> shifted_bias = relaid(bias, moved(bytes));
      const Array<std::int32_t, 2> shifted_rows = relaid(rows, layout_2), shifted_keys = relaid(keys, layout_2);
      AttentionArrays<T> got;
      got.context = Array<T, 4>({1, 2, 13, 35}, moved(bytes * 7));
      got.weights = Array<T, 4>({1, 2, 13, 70}, moved(bytes * 9));
      for (auto* statistic : {&got.row_max, &got.row_sum, &got.lse, &got.sink_weights}) {
        *statistic = Array<T, 3>({1, 2, 13}, layout_3);
      }
      attention_forward(
          shifted.query.view(), shifted.key.view(), shifted.value.view(), got.views(),
          {.query_segments = shifted_rows.view(), .key_segments = shifted_keys.view(), .bias = shifted_bias.view()});
      ASSERT_EQ(all_bits(got), all_bits(expected)) << bytes;
    }
  });
}

TYPED_TEST(AttentionMemory, StridesDoNotChangeBits) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(5, 2, 4, 2, 7, 70, 5, 9);
  std::vector<Layout<4>> layouts;
  for (int kind = 0; kind < 7; ++kind) {
    Layout<4> layout = Layout<4>::dense();
    if (kind == 0) layout.order = {0, 2, 1, 3};
    if (kind == 1) layout.order = {3, 2, 1, 0};
    if (kind == 2) layout.order = {1, 0, 3, 2};
    if (kind == 3) layout.reversed = {true, true, true, true};
    if (kind == 4) layout.reversed = {false, false, false, true};
    if (kind == 5) layout.inner_step = 2;
    if (kind == 6) layout.gap = 11;
    layouts.push_back(layout);
  }
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> expected = run_attention(inputs);
    for (const Layout<4>& layout : layouts) {
      const AttentionInputs<T> other{relaid(inputs.query, layout), relaid(inputs.key, layout),
                                     relaid(inputs.value, layout)};
      AttentionArrays<T> got = AttentionArrays<T>::dense(2, 4, 7, 70, 9);
      got.context = Array<T, 4>({2, 4, 7, 9}, layout);
      got.weights = Array<T, 4>({2, 4, 7, 70}, layout);
      attention_forward(other.query.view(), other.key.view(), other.value.view(), got.views());
      EXPECT_EQ(all_bits(got), all_bits(expected));
      EXPECT_TRUE(got.context.surroundings_untouched() && got.weights->surroundings_untouched());
    }
  });
}

TYPED_TEST(AttentionMemory, StrideZeroBroadcastsAnInput) {
  using T = TypeParam;
  const std::array<Index, 4> query_shape{2, 4, 7, 5}, key_shape{2, 2, 70, 5};
  for (std::size_t axis = 0; axis < 4; ++axis) {
    Layout<4> layout = Layout<4>::dense();
    layout.repeated[axis] = true;
    Random random(6);
    AttentionInputs<T> inputs{Array<T, 4>(query_shape, layout), Array<T, 4>(key_shape, layout),
                              Array<T, 4>(key_shape, layout)};
    for (auto* array : {&inputs.query, &inputs.key, &inputs.value}) array->fill([&] { return random.normal(); });
    checked_attention(inputs);
  }
}

// ---- sizes

TYPED_TEST(AttentionMemory, ViewsOfMoreThanTwoToThe31Elements) {
  using T = TypeParam;
  // Rows are 2³⁰ elements apart, in memory that is never touched between them; the last row comes first.
  const Index apart = Index{1} << 30, S = 5, D = 3;
  const std::size_t bytes = static_cast<std::size_t>(apart * S) * sizeof(T);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  T* const start = static_cast<T*>(memory);
  const auto inputs = AttentionInputs<T>::normal(7, S, S, D);
  const auto far = [&](Index first_element, bool backwards) {
    return TensorView<T, 4>(start + first_element + (backwards ? apart * (S - 1) : 0), {1, 1, S, D},
                            {0, 0, backwards ? -apart : apart, 1});
  };
  const TensorView<T, 4> query = far(0, false), key = far(16, true), value = far(32, false), context = far(48, true);
  for (Index i = 0; i < S; ++i) {
    for (Index d = 0; d < D; ++d) {
      query(0, 0, i, d) = inputs.query.get({0, 0, i, d});
      key(0, 0, i, d) = inputs.key.get({0, 0, i, d});
      value(0, 0, i, d) = inputs.value.get({0, 0, i, d});
    }
  }
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> expected = run_attention(inputs);
    attention_forward(query, key, value, {.context = context});
    expected.context.for_each_index(
        [&](const auto& at) { EXPECT_EQ(context(0, 0, at[2], at[3]), expected.context.get(at)); });
  });
  munmap(memory, bytes);
}

TYPED_TEST(AttentionMemory, LengthsAround65536AreCorrect) {
  using T = TypeParam;
  for (Index n = test_size<Index>(65535, 65537); n <= 65537; ++n) {
    checked_attention(AttentionInputs<T>::normal(8, 2, n, 2));               // keys
    checked_attention(AttentionInputs<T>::normal(9, n, 3, 2));               // queries
    checked_attention(AttentionInputs<T>::normal(10, 1, n, n, 1, 2, 1, 1));  // heads
    checked_attention(AttentionInputs<T>::normal(11, n, 1, 1, 1, 2, 1, 1));  // batch
  }
}

// One row of a million keys compared with plain loops in double. Rows overlap: key j consists of elements j … j + 31.
// 32 columns are read unpacked; 8 are packed, only on the best instruction set, because that takes 160 MB.
TEST(LongRows, MillionKeysMatchTheReference) {
  constexpr Index L = 2, D = 32;
  const Index S = test_size<Index>(1'000'000, 150'000), window = 3 * S / 10;
  Random random(14);
  std::vector<float> keys(static_cast<std::size_t>(S + D)), values(keys.size());
  for (auto* numbers : {&keys, &values})
    std::ranges::generate(*numbers, [&] { return static_cast<float>(random.normal()); });
  const Array<float, 4> query = normal_array<float, 4>(random, {1, 1, L, D});
  const TensorView<const float, 4> key(keys.data(), {1, 1, S, D}, {0, 0, 1, 1});

  std::array<double, D> row;  // query row 0, scaled
  for (std::size_t d = 0; d < D; ++d) row[d] = query.get({0, 0, 0, static_cast<Index>(d)}) / std::sqrt(D);
  std::vector<double> scores(static_cast<std::size_t>(S));
  double largest = 0;  // max |scale| Σ |q k|
  for (std::size_t j = 0; j < scores.size(); ++j) {
    double size = 0;
    for (std::size_t d = 0; d < D; ++d) {
      scores[j] += row[d] * keys[j + d];
      size += std::abs(row[d] * keys[j + d]);
    }
    largest = std::max(largest, size);
  }
  // Row 0 of two is at key S − 2.
  struct Seen {
    AttentionOptions options;
    std::size_t begin, end;
  };
  const Seen whole{{.query_offset = QueryAlignment::bottom_right}, 0, scores.size()};
  const Seen part{
      {.causal = true, .query_offset = QueryAlignment::bottom_right, .window = {.left = window, .right = {}}},
      static_cast<std::size_t>(S - 2 - window),
      static_cast<std::size_t>(S - 1)};
  for (const Seen& seen : {whole, part}) {
    SCOPED_TRACE(testing::Message() << "keys from " << seen.begin);
    const double row_max = std::ranges::max(std::span(scores).subspan(seen.begin, seen.end - seen.begin));
    std::array<double, D> sums{}, sizes{};
    double row_sum = 0;
    for (std::size_t j = seen.begin; j < seen.end; ++j) {
      const double p = std::exp(scores[j] - row_max);
      row_sum += p;
      for (std::size_t c = 0; c < D; ++c) {
        sums[c] += p * values[j + c];
        sizes[c] += p * std::abs(values[j + c]);
      }
    }
    const double relative = 0x1p-24 * (32 + 4 * std::sqrt(D) * largest);
    const auto check = [&](Index columns) {
      const TensorView<const float, 4> value(values.data(), {1, 1, S, columns}, {0, 0, 1, 1});
      AttentionArrays<float> got = AttentionArrays<float>::dense(1, 1, L, S, columns, false);
      attention_forward(query.view(), key, value, got.views(), seen.options);
      EXPECT_NEAR(got.row_max->get({0, 0, 0}), row_max, relative);
      EXPECT_NEAR(got.row_sum->get({0, 0, 0}), row_sum, relative * row_sum);
      for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) {
        EXPECT_NEAR(got.context.get({0, 0, 0, static_cast<Index>(c)}), sums[c] / row_sum, relative * sizes[c] / row_sum)
            << "column " << c << " of " << columns;
      }
    };
    on_every_instruction_set([&](const kernels::KernelTable&) { check(D); });
    check(8);
  }
}

// ---- overlap

TYPED_TEST(AttentionMemory, InputsMayShareMemory) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(12, 1, 2, 2, 9, 9, 5, 5);
  on_every_instruction_set([&](const kernels::KernelTable&) {
    Array<T, 4> context({1, 2, 9, 5});
    attention_forward(inputs.query.view(), inputs.query.view(), inputs.query.view(), {.context = context.view()});
    const AttentionInputs<T> copies{relaid(inputs.query, Layout<4>::dense()), relaid(inputs.query, Layout<4>::dense()),
                                    relaid(inputs.query, Layout<4>::dense())};
    EXPECT_EQ(bits_of(context), bits_of(run_attention(copies).context));
  });
}

// (B, L, 4, H, D) in one array: query, key, value and context of a position are contiguous.
TYPED_TEST(AttentionMemory, InterleavedQueryKeyValueAndContextAreAllowed) {
  using T = TypeParam;
  const Index B = 2, L = 70, H = 3, D = 5;
  Random random(13);
  std::vector<T> memory(static_cast<std::size_t>(B * L * 4 * H * D));
  for (T& x : memory) x = static_cast<T>(random.normal());
  const auto part = [&](Index n) {
    return TensorView<T, 4>(memory.data() + n * H * D, {B, H, L, D}, {L * 4 * H * D, D, 4 * H * D, 1});
  };
  AttentionInputs<T> copies{Array<T, 4>({B, H, L, D}), Array<T, 4>({B, H, L, D}), Array<T, 4>({B, H, L, D})};
  Index n = 0;
  for (auto* copy : {&copies.query, &copies.key, &copies.value}) {
    copy->for_each_index([&](const auto& at) { copy->set(at, part(n)(at[0], at[1], at[2], at[3])); });
    ++n;
  }
  on_every_instruction_set([&](const kernels::KernelTable&) {
    const AttentionArrays<T> expected = run_attention(copies, {.causal = true});
    attention_forward(part(0), part(1), part(2), {.context = part(3)}, {.causal = true});
    expected.context.for_each_index(
        [&](const auto& at) { EXPECT_EQ(part(3)(at[0], at[1], at[2], at[3]), expected.context.get(at)); });
  });
}

TYPED_TEST(AttentionMemory, OutputOverlappingAnotherArgumentIsRejected) {
  using T = TypeParam;
  const Index L = 6, D = 4;
  const std::array<Index, 4> shape{1, 1, L, D};
  std::vector<T> memory(1000, 1);
  T* const m = memory.data();
  const TensorView<T, 4> query(m, shape), key(m + 100, shape), value(m + 200, shape), context(m + 300, shape);
  const TensorView<T, 3> rows(m + 400, {1, 1, L});
  const auto call = [&](const AttentionOutputs& outputs, const AttentionOptions& options = {}) {
    const std::vector<T> before = memory;
    std::string message = rejection([&] { attention_forward(query, key, value, outputs, options); });
    EXPECT_TRUE(message == "accepted" || memory == before) << message;
    std::fill(memory.begin(), memory.end(), T{1});
    return message;
  };
  const auto at = [&](Index offset) { return TensorView<T, 4>(m + offset, shape); };
  const std::string end = "; expected separate memory";
  EXPECT_EQ(call({.context = context}), "accepted");
  for (const Index shift : {-23, -1, 0, 1, 23}) {
    EXPECT_EQ(call({.context = at(std::abs(shift))}), "attention_forward: context overlaps query" + end);
    EXPECT_EQ(call({.context = at(100 + shift)}), "attention_forward: context overlaps key" + end);
    EXPECT_EQ(call({.context = at(200 + shift)}), "attention_forward: context overlaps value" + end);
    EXPECT_EQ(call({.context = context, .weights = {m + 300 + shift, {1, 1, L, L}}}),
              "attention_forward: context overlaps weights" + end);
  }
  for (const Index beside : {24, 76, 124, 224}) EXPECT_EQ(call({.context = at(beside)}), "accepted") << beside;
  EXPECT_EQ(call({.context = context, .lse = {m + 100, {1, 1, L}}}), "attention_forward: lse overlaps key" + end);
  EXPECT_EQ(call({.context = context, .row_max = rows, .row_sum = rows}),
            "attention_forward: row_max overlaps row_sum" + end);
  EXPECT_EQ(call({.context = context, .row_max = {m + 405, {1, 1, L}}, .sink_weights = rows}),
            "attention_forward: row_max overlaps sink_weights" + end);
  EXPECT_EQ(call({.context = context}, {.sinks = std::span<const T>(m + 310, 1)}),
            "attention_forward: context overlaps sinks" + end);
  EXPECT_EQ(call({.context = context}, {.alibi_slopes = std::span<const T>(m + 310, 1)}),
            "attention_forward: context overlaps alibi_slopes" + end);
  if constexpr (sizeof(T) == sizeof(float)) {
    const TensorView<const float, 4> bias(m + 320, {1, 1, 1, L});
    EXPECT_EQ(call({.context = context}, {.bias = bias}), "attention_forward: context overlaps bias" + end);
  }
}

TYPED_TEST(AttentionMemory, InterleavedOutputOverlappingAnInputIsRejected) {
  using T = TypeParam;
  const Index L = 6, D = 4;
  std::vector<T> memory(1000, 1);
  const auto at = [&](Index offset, Index row_stride) {
    return TensorView<T, 4>(memory.data() + offset, {1, 1, L, D}, {0, 0, row_stride, 1});
  };
  const auto call = [&](const TensorView<T, 4>& context) {
    return rejection([&] { attention_forward(at(0, 16), at(4, 16), at(8, 16), {.context = context}); });
  };
  EXPECT_EQ(call(at(12, 16)), "accepted");
  EXPECT_EQ(call(at(12 + 16, -16 + 32)), "accepted");
  for (const Index offset : {9, 11, 13, 15}) EXPECT_NE(call(at(offset, 16)), "accepted") << offset;
  // With other strides, nothing proves that the elements do not overlap.
  EXPECT_NE(call(at(12, 17)), "accepted");
  EXPECT_NE(call(at(12, 15)), "accepted");
}

TYPED_TEST(AttentionMemory, OutputOverlappingItselfIsRejected) {
  using T = TypeParam;
  const auto inputs = AttentionInputs<T>::normal(14, 2, 2, 2, 6, 6, 4, 4);
  std::vector<T> memory(1000);
  const auto call = [&](const std::array<Index, 4>& strides) {
    const TensorView<T, 4> context(memory.data() + 300, {2, 2, 6, 4}, strides);
    return rejection(
        [&] { attention_forward(inputs.query.view(), inputs.key.view(), inputs.value.view(), {.context = context}); });
  };
  EXPECT_EQ(call({48, 24, 4, 1}), "accepted");
  EXPECT_EQ(call({-48, 24, -4, 1}), "accepted");
  for (const auto& strides : {std::array<Index, 4>{0, 24, 4, 1},
                              {48, 0, 4, 1},
                              {48, 24, 0, 1},
                              {48, 24, 4, 0},
                              {48, 24, 3, 1},
                              {48, 24, 1, 1},
                              {48, 23, 4, 1},
                              {47, 24, 4, 1},
                              {-47, 24, 4, 1}}) {
    EXPECT_EQ(call(strides).find("attention_forward: context overlaps itself (byte strides ("), 0u);
  }
}

}  // namespace
}  // namespace regard::attention_memory_test
