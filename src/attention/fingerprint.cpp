// SPDX-License-Identifier: Apache-2.0
//
// One 32-bit word per option, hashed from its resolved value: defaults are filled in, query_offset is one number per
// sequence, masks and biases are broadcast. Equivalent ways to state an option therefore give the same word.
//
//     word    0      1       2             3       4            5       6         7       8           9     10
//             shape  causal  query_offset  window  key_lengths  starts  segments  prefix  block_mask  mask  bias
//             11            12     13        14     15
//             alibi_slopes  sinks  soft_cap  scale  dropout
//
// Read next: arguments.h.
#include "fingerprint.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <span>
#include <string>

#include "instantiate.h"
#include "runtime/plan.h"
#include "tensor/element_types.h"
#include "tensor/strided_copy.h"

namespace regard::inline v0::internal {
namespace {

constexpr std::array<const char*, 16> kNames{"the shape of query, key or value",
                                             "causal",
                                             "query_offset",
                                             "window",
                                             "key_lengths",
                                             "query_starts or key_starts",
                                             "query_segments or key_segments",
                                             "prefix",
                                             "block_mask",
                                             "mask",
                                             "bias",
                                             "alibi_slopes",
                                             "sinks",
                                             "soft_cap",
                                             "scale",
                                             "dropout, dropout_seed or dropout_first"};
static_assert(kNames.size() == std::tuple_size_v<decltype(AttentionFingerprint::words)>);

// Dense options with more elements are sampled: reading all of them would take a noticeable share of the call.
constexpr Index kMaxElements = 1024;

// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Hash {
 public:
  template <std::integral I>
  void add(I x) {
    state_ = mixed((state_ ^ static_cast<std::uint64_t>(x)) + 0x9e3779b97f4a7c15);
  }
  template <class F>
    requires(!std::integral<F>)
  void add(F x) {
    if constexpr (std::same_as<F, double>) {
      add(std::bit_cast<std::uint64_t>(x));
    } else if constexpr (std::same_as<F, float>) {
      add(static_cast<double>(x));
    } else {
      add(static_cast<float>(x));
    }
  }
  void add(const std::optional<Index>& x) { add(x.value_or(-1)); }
  template <class E, int Rank>
  void add(const TensorView<const E, Rank>& view) {
    if (view.absent()) return;
    add(true);
    double size = 1;  // a product of strides and extents may exceed every integer type
    for (const Index extent : view.shape) size *= static_cast<double>(extent);
    size <= static_cast<double>(kMaxElements) ? add_all(view) : add_sample(view);
  }
  std::uint32_t word() const { return static_cast<std::uint32_t>(state_ >> 32); }

 private:
  void add_element(std::uint8_t truth) { add(truth != 0); }
  template <Number E>
  void add_element(E x) {
    add(x);
  }
  template <class E, int Rank>
  void add_all(const TensorView<const E, Rank>& view) {
    for (Index n = 0; n < view.size(); ++n) {
      Index rest = n, offset = 0;
      for (std::size_t axis = Rank; axis-- > 0;) {
        offset += rest % view.shape[axis] * view.strides[axis];
        rest /= view.shape[axis];
      }
      add_element(read_element(view.data + offset));
    }
  }
  // Pseudo-random positions, the same for equal shapes: a fixed step could miss whole rows or columns.
  template <class E, int Rank>
  void add_sample(const TensorView<const E, Rank>& view) {
    std::uint64_t random = 0;
    for (Index n = 0; n < kMaxElements; ++n) {
      Index offset = 0;
      for (std::size_t axis = 0; axis < Rank; ++axis) {
        random = mixed(random + 0x9e3779b97f4a7c15);
        const double place = static_cast<double>(random >> 11) * 0x1p-53;
        const Index last = view.shape[axis] - 1;
        const auto at = static_cast<Index>(place * static_cast<double>(view.shape[axis]));
        offset += std::min(at, last) * view.strides[axis];
      }
      add_element(read_element(view.data + offset));
    }
  }

  std::uint64_t state_ = 0;
};

template <class Add>
std::uint32_t word_of(const Add& add) {
  Hash hash;
  add(hash);
  return hash.word();
}

template <class T, class Of>
std::uint32_t of_bias(const Of& of, const ResolvedAttention<T>& r) {
  std::uint32_t word = 0;
  const auto hash = [&]<class E>(E) {
    word = of(TensorView<const E, 4>(static_cast<const E*>(r.bias.data), r.bias.shape, r.bias.strides));
  };
  r.bias.type == ElementType::float32 ? hash(float{}) : with_element_type<T>(r.bias.type, hash);
  return word;
}

template <class T>
AttentionFingerprint fingerprint_of(const ResolvedAttention<T>& r) {
  const auto of_sequences = [&](auto... members) {
    return word_of([&](Hash& hash) {
      for (const Sequence& sequence : r.sequences) (hash.add(sequence.*members), ...);
    });
  };
  const auto of = [](const auto&... values) { return word_of([&](Hash& hash) { (hash.add(values), ...); }); };
  const auto of_list = [](const ScratchVector<T>& values) {
    return word_of([&](Hash& hash) {
      for (const T x : values) hash.add(x);
    });
  };
  // Segments are hashed completely: there is only one per row and key.
  const auto of_segments = [](const auto&... views) {
    const auto add = [](Hash& hash, const InputView<2>& view) {
      for (Index b = 0; b < view.shape[0]; ++b) {
        for (Index i = 0; i < view.shape[1]; ++i) hash.add(read_index(view.type, view.pointer(b, i)));
      }
    };
    return word_of([&](Hash& hash) { (add(hash, views), ...); });
  };
  return {{of(r.batch, r.num_heads, r.num_kv_heads, r.num_queries, r.num_keys, r.head_size, r.value_head_size),
           of(r.causal), of_sequences(&Sequence::offset), of(r.window_left, r.window_right),
           of_sequences(&Sequence::key_limit),
           of_sequences(&Sequence::batch, &Sequence::first_query, &Sequence::num_queries, &Sequence::first_key,
                        &Sequence::num_keys),
           of_segments(r.query_segments, r.key_segments), of_sequences(&Sequence::prefix),
           of(r.block_mask, r.block_size[0], r.block_size[1]), of(r.mask), of_bias(of, r), of_list(r.alibi_slopes),
           of_list(r.sinks), of(r.soft_cap), of(r.scale),
           r.dropout_threshold > 0
               ? of(r.dropout_threshold, r.dropout_seed, r.dropout_first[0], r.dropout_first[1], r.dropout_first[2])
               : of(0, 0)}};
}

}  // namespace

template <class T>
void write_fingerprint(const ResolvedAttention<T>& r, AttentionFingerprint* to) {
  if (to != nullptr && !is_planning()) *to = fingerprint_of(r);
}

template <class T>
void check_fingerprint(const char* operator_name, const ResolvedAttention<T>& r,
                       const AttentionFingerprint& of_forward) {
  if (is_planning() || of_forward == kUncheckedFingerprint) return;
  if (of_forward == AttentionFingerprint{}) {
    reject(operator_name, "fingerprint is missing; expected the one written by attention_forward");
  }
  const AttentionFingerprint here = fingerprint_of(r);
  std::string names;
  int count = 0;
  for (std::size_t n = 0; n < kNames.size(); ++n) {
    if (of_forward.words[n] == here.words[n]) continue;
    names += (count++ > 0 ? ", " : "") + std::string(kNames[n]);
    if (n == 0) break;  // most options depend on the shape
  }
  if (count == 0) return;
  reject(operator_name, names + (count == 1 ? " differs" : " differ") +
                            " from the forward call that wrote the fingerprint; expected the same options");
}

REGARD_INSTANTIATE_COMPUTE(write_fingerprint);
REGARD_INSTANTIATE_COMPUTE(check_fingerprint);

}  // namespace regard::inline v0::internal
