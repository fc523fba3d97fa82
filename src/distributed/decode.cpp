// SPDX-License-Identifier: Apache-2.0
//
// Decoding with a cache whose keys are divided among ranks. Every rank has the whole query and receives the whole
// context.
//
//   partial results of own keys, all heads ──by heads──▶ merge own heads, in key order ──▶ every rank
//
// A rank also sends its sums times 2⁻⁴⁰ if one of them is not finite; a number before the partial results indicates
// this.
// Read next: whole_call.h, docs/derivations/ranks.md.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "distributed/arguments/cache_shares.h"
#include "distributed/arguments/local_options.h"
#include "distributed/arguments/whole_call.h"
#include "distributed/messages/held_array.h"
#include "distributed/messages/messages.h"
#include "regard/convert.h"
#include "regard/distributed/attention.h"
#include "regard/plan.h"

namespace regard::inline v0 {
namespace internal {
namespace {

using Tickets = std::vector<Messages::Ticket>;

// Partial results of some chunks and heads: for each chunk, batch entry, head and row, Dv sums, Dv scaled sums if there
// are any, row_max and row_sum.
template <class T>
struct PartialBlock {
  Index chunks, batch, heads, rows, columns;
  bool scaled;
  std::shared_ptr<std::vector<T>> numbers;

  PartialBlock(Index chunks_, Index heads_, const std::array<Index, 4>& query_shape, Index columns_, bool scaled_)
      : chunks(chunks_),
        batch(query_shape[0]),
        heads(heads_),
        rows(query_shape[2]),
        columns(columns_),
        scaled(scaled_) {
    numbers = std::make_shared<std::vector<T>>(static_cast<std::size_t>(num_rows() * ((scaled ? 2 : 1) * columns + 2)));
  }
  Index num_rows() const { return chunks * batch * heads * rows; }
  AttentionPartialOutputs views() const {
    const std::array<Index, 5> sums{chunks, batch, heads, rows, columns};
    const std::array<Index, 4> states{chunks, batch, heads, rows};
    T* next = numbers->data();
    const auto take = [&](Index count) { return std::exchange(next, next + count); };
    AttentionPartialOutputs of;
    of.accumulator = TensorView<T, 5>(take(num_rows() * columns), sums);
    of.row_max = TensorView<T, 4>(take(num_rows()), states);
    of.row_sum = TensorView<T, 4>(take(num_rows()), states);
    if (scaled) of.scaled_accumulator = TensorView<T, 5>(take(num_rows() * columns), sums);
    return of;
  }
  std::span<std::byte> bytes() const { return std::as_writable_bytes(std::span(*numbers)); }
};

// Chunks [first, first + from.chunks) and heads [head, …) of `to`, or the other way round.
template <class T>
void copy_block(const PartialBlock<T>& whole, Index chunk, Index head, const PartialBlock<T>& part, bool into_part) {
  const auto copy = [&](const auto& of_whole, const auto& of_part, Index count) {
    for (Index c = 0; c < part.chunks; ++c) {
      for (Index b = 0; b < part.batch; ++b) {
        const Index whole_row = ((chunk + c) * whole.batch + b) * whole.heads + head;
        const Index part_row = (c * part.batch + b) * part.heads;
        T* const in_whole = static_cast<T*>(of_whole.data) + whole_row * whole.rows * count;
        T* const in_part = static_cast<T*>(of_part.data) + part_row * part.rows * count;
        const Index size = part.heads * part.rows * count;
        into_part ? std::copy_n(in_whole, size, in_part) : std::copy_n(in_part, size, in_whole);
      }
    }
  };
  const AttentionPartialOutputs w = whole.views(), p = part.views();
  copy(w.accumulator, p.accumulator, whole.columns);
  copy(w.row_max, p.row_max, 1);
  copy(w.row_sum, p.row_sum, 1);
  if (whole.scaled && part.scaled) copy(w.scaled_accumulator, p.scaled_accumulator, whole.columns);
}

// A rank with finite sums has not sent scaled ones: they are the same numbers times kAttentionSumScale.
template <class T>
void fill_scaled(const PartialBlock<T>& whole, Index chunk, const PartialBlock<T>& part) {
  if (!whole.scaled || part.scaled) return;
  const AttentionPartialOutputs of = whole.views();
  const Index first = chunk * whole.num_rows() / whole.chunks * whole.columns;
  const Index count = part.chunks * whole.num_rows() / whole.chunks * whole.columns;
  const T* const sums = static_cast<const T*>(of.accumulator.data) + first;
  std::transform(sums, sums + count, static_cast<T*>(of.scaled_accumulator.data) + first,
                 [](T sum) { return sum * static_cast<T>(kAttentionSumScale); });
}

template <class T>
bool all_finite(const PartialBlock<T>& block) {
  const auto& numbers = *block.numbers;
  return std::all_of(numbers.begin(), numbers.begin() + block.num_rows() * block.columns,
                     [](T x) { return x - x == 0; });
}

// The outputs of some heads, from each rank that merged them to all.
void share_heads(const std::vector<HeldArray>& outputs, const std::vector<Index>& head_starts, Ranks& ranks,
                 const std::stop_token& stop) {
  Messages& messages = ranks.messages();
  const auto heads_of = [&](Index rank) {
    return IndexRange{head_starts[static_cast<std::size_t>(rank)], head_starts[static_cast<std::size_t>(rank) + 1]};
  };
  const auto for_each_piece = [&](const IndexRange& heads, std::byte* next, const auto& copy) {
    for (const HeldArray& array : outputs) {
      const IndexRange rows{0, array.shape[2]};
      for (Index b = 0; b < array.shape[0]; ++b) {
        for (Index h = heads.first; h < heads.end; ++h, next += rows.size() * array.row_bytes())
          copy(array, b, h, rows, next);
      }
    }
  };
  Index head_bytes = 0;
  for (const HeldArray& array : outputs) head_bytes += array.shape[0] * array.shape[2] * array.row_bytes();
  const auto bytes_of = [&](Index rank) {
    return std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(heads_of(rank).size() * head_bytes));
  };
  const auto own = bytes_of(ranks.rank());
  for_each_piece(heads_of(ranks.rank()), own->data(),
                 [](const HeldArray& array, Index b, Index h, const IndexRange& rows, std::byte* to) {
                   array.read(b, h, rows, to);
                 });
  Tickets tickets;
  std::vector<std::shared_ptr<std::vector<std::byte>>> received(static_cast<std::size_t>(ranks.num_ranks()));
  for (Index other = 0; other < ranks.num_ranks(); ++other) {
    if (other == ranks.rank()) continue;
    auto& from_other = received[static_cast<std::size_t>(other)];
    from_other = bytes_of(other);
    if (!own->empty()) tickets.push_back(messages.send(other, *own, own));
    if (!from_other->empty()) tickets.push_back(messages.receive(other, *from_other, from_other));
  }
  messages.wait(tickets, stop);
  for (Index other = 0; other < ranks.num_ranks(); ++other) {
    if (other == ranks.rank()) continue;
    for_each_piece(heads_of(other), received[static_cast<std::size_t>(other)]->data(),
                   [](const HeldArray& array, Index b, Index h, const IndexRange& rows, std::byte* from) {
                     array.write(b, h, rows, from);
                   });
  }
}

// Rounds the context once, as one machine does.
template <class T>
void round_context(const Tensor<T, 4>& from, const OutputView<4>& to, const Runtime& runtime) {
  for (Index b = 0; b < to.shape[0]; ++b) {
    for (Index h = 0; h < to.shape[1]; ++h) {
      const std::array<Index, 2> shape{to.shape[2], to.shape[3]};
      convert(TensorView<const T, 2>(&from(b, h, 0, 0), shape),
              {to.pointer(b, h, 0, 0), to.type, shape, {to.strides[2], to.strides[3]}}, runtime);
    }
  }
}

// As attention_forward() chooses by the type of the context: partial results are always of the compute type.
template <class T>
AttentionOptions with_rounding_of_weights(const AttentionOptions& options, const AttentionOutputs& outputs) {
  AttentionOptions explicit_options = options;
  explicit_options.weights_in_float32 =
      options.weights_in_float32.value_or(outputs.context.absent() || outputs.context.type == kElementType<T>);
  return explicit_options;
}

template <class K, class T>
void decode(const InputView<4>& query, const KvCache<K>& cache, const AttentionOutputs& outputs,
            const AttentionOptions& options, const CacheShares& shares, Ranks& ranks, const Runtime& runtime) {
  Messages& messages = ranks.messages();
  const Index rank = ranks.rank(), num_ranks = ranks.num_ranks();
  const Index heads = query.shape[1], columns = cache.shape().value_head_size;
  const std::vector<Index> head_starts = split_evenly(heads, num_ranks);
  const auto heads_of = [&](Index r) {
    return IndexRange{head_starts[static_cast<std::size_t>(r)], head_starts[static_cast<std::size_t>(r) + 1]};
  };
  const IndexRange own_heads = heads_of(rank);
  const ShardOptions shard = shard_options(with_rounding_of_weights<T>(options, outputs), query, shares, rank);
  PartialBlock<T> own(shares.num_chunks(rank), heads, query.shape, columns, false);
  attention_decode_partials(query, cache, own.views(), shard.options, runtime);
  if (!all_finite(own)) {
    own = PartialBlock<T>(shares.num_chunks(rank), heads, query.shape, columns, true);
    attention_decode_partials(query, cache, own.views(), shard.options, runtime);
  }

  // Whether a rank has sent scaled sums, then its partial results of this rank's heads.
  const auto flags = std::make_shared<std::vector<Index>>(static_cast<std::size_t>(num_ranks));
  (*flags)[static_cast<std::size_t>(rank)] = own.scaled ? 1 : 0;
  const auto flag_of = [&](Index r) {
    return std::as_writable_bytes(std::span(*flags).subspan(static_cast<std::size_t>(r), 1));
  };
  const auto sends = [&](Index from, Index to) { return shares.num_chunks(from) > 0 && heads_of(to).size() > 0; };
  Tickets sent, flags_received;
  std::vector<Index> senders;
  for (Index other = 0; other < num_ranks; ++other) {
    if (other == rank) continue;
    if (sends(other, rank)) {
      senders.push_back(other);
      flags_received.push_back(messages.receive(other, flag_of(other), flags));
    }
    if (!sends(rank, other)) continue;
    const PartialBlock<T> part(own.chunks, heads_of(other).size(), query.shape, columns, own.scaled);
    copy_block(own, 0, heads_of(other).first, part, true);
    sent.push_back(messages.send(other, flag_of(rank), flags));
    sent.push_back(messages.send(other, part.bytes(), part.numbers));
  }
  messages.wait(flags_received, runtime.stop);
  const bool scaled = std::any_of(flags->begin(), flags->end(), [](Index flag) { return flag != 0; });
  std::vector<PartialBlock<T>> parts;
  Tickets received;
  for (Index r = 0; r < num_ranks; ++r) {
    parts.emplace_back(shares.num_chunks(r), own_heads.size(), query.shape, columns,
                       (*flags)[static_cast<std::size_t>(r)] != 0);
    if (std::find(senders.begin(), senders.end(), r) != senders.end())
      received.push_back(messages.receive(r, parts.back().bytes(), parts.back().numbers));
  }
  copy_block(own, 0, own_heads.first, parts[static_cast<std::size_t>(rank)], true);
  messages.wait(received, runtime.stop);

  Index chunks = 0;
  for (Index r = 0; r < num_ranks; ++r) chunks += shares.num_chunks(r);
  const PartialBlock<T> all(chunks, own_heads.size(), query.shape, columns, scaled);
  Index chunk = 0;
  for (const PartialBlock<T>& part : parts) {
    copy_block(all, chunk, 0, part, false);
    fill_scaled(all, chunk, part);
    chunk += part.chunks;
  }
  const auto of_heads = [&](const auto& view) {
    return view.absent() ? view : cut(view, 1, own_heads.first, own_heads.size());
  };
  if (own_heads.size() > 0) {
    const OutputView<4> context = of_heads(outputs.context);
    const bool rounds = !context.absent() && context.type != kElementType<T>;
    Tensor<T, 4> unrounded(rounds ? context.shape : std::array<Index, 4>{});
    attention_merge(all.views(), slice(options.sinks, 0, own_heads.first, own_heads.size()),
                    {.context = rounds ? OutputView<4>(unrounded) : context,
                     .row_max = of_heads(outputs.row_max),
                     .row_sum = of_heads(outputs.row_sum),
                     .lse = of_heads(outputs.lse),
                     .sink_weights = of_heads(outputs.sink_weights)},
                    runtime);
    if (rounds) round_context(unrounded, context, runtime);
  }
  std::vector<HeldArray> written;
  if (!outputs.context.absent()) written.push_back(held(outputs.context, 0));
  for (const OutputView<3>& view : {outputs.row_max, outputs.row_sum, outputs.lse, outputs.sink_weights}) {
    if (!view.absent()) written.push_back(held(view, 0));
  }
  share_heads(written, head_starts, ranks, runtime.stop);
  messages.wait(sent, runtime.stop);
}

template <class K>
void decode_call(const InputView<4>& query, const KvCache<K>& cache, const AttentionOutputs& outputs,
                 const AttentionOptions& options, Ranks& ranks, const Runtime& runtime) {
  if (ranks.num_ranks() == 1) return attention_decode(query, cache, outputs, options, runtime);
  constexpr const char* kName = "attention_decode";
  Agreement agreement(kName);
  add_decode_fields(agreement, query, outputs, options);
  const KvCacheShape& shape = cache.shape();
  agreement.add("sequences of the cache", shape.num_sequences);
  agreement.add("key/value heads of the cache", shape.num_kv_heads);
  agreement.add("head size of the cache", shape.head_size);
  agreement.add("value head size of the cache", shape.value_head_size);
  agreement.add("element type of the cache", static_cast<Index>(kElementType<K>));
  if (shape.ring) agreement.reject("the cache is a ring; expected one that keeps all keys");
  const SharedLengths lengths(agreement, cache);
  agreement.exchange(ranks, runtime.stop);
  const CacheShares shares = lengths.get(agreement, ranks.num_ranks());
  check_cuts(kName, shares);
  Agreement found(kName);
  try {
    std::vector<Index> totals;
    Index longest = 0;
    for (Index b = 0; b < shape.num_sequences; ++b) {
      totals.push_back(shares.total(b));
      longest = std::max(longest, totals.back());
    }
    check_decode(query, shape, kElementType<K>, totals, longest, outputs, options);
  } catch (const InvalidArgument& error) {
    found.reject(without_function(error.what(), "attention_forward"));
  }
  found.exchange(ranks, runtime.stop);
  if (outputs.fingerprint) *outputs.fingerprint = kUncheckedFingerprint;
  if (query.shape[0] * query.shape[1] * query.shape[2] == 0) return;
  run_call(ranks, [&] {
    if constexpr (std::same_as<K, double>) {
      decode<K, double>(query, cache, outputs, options, shares, ranks, runtime);
    } else {
      decode<K, float>(query, cache, outputs, options, shares, ranks, runtime);
    }
  });
}

template <class K>
void append_call(KvCache<K>& cache, const InputView<4>& key, const InputView<4>& value, Ranks& ranks,
                 const std::stop_token& stop) {
  if (ranks.num_ranks() == 1) return cache.append(key, value, {}, stop);
  constexpr const char* kName = "append";
  const KvCacheShape& shape = cache.shape();
  Agreement agreement(kName);
  agreement.add("key", elements_text(key));
  agreement.add("value", elements_text(value));
  agreement.add("sequences of the cache", shape.num_sequences);
  if (shape.ring) agreement.reject("the cache is a ring; expected one that keeps all keys");
  if (key.shape[0] != shape.num_sequences)
    agreement.reject("key has " + std::to_string(key.shape[0]) +
                     " batch entries; expected the number of sequences in the cache, " +
                     std::to_string(shape.num_sequences));
  const std::size_t capacity = agreement.number(shape.capacity);
  const SharedLengths lengths(agreement, cache);
  agreement.exchange(ranks, stop);
  const CacheShares shares = lengths.get(agreement, ranks.num_ranks());
  check_cuts(kName, shares);
  std::vector<Index> capacities = agreement.numbers(capacity);
  for (std::size_t r = 0; r + 1 < capacities.size(); ++r) capacities[r] -= capacities[r] % kAttentionChunkKeys;

  // Each sequence is continued where it ends and, once that cache is full, in the cache of the next rank.
  const Index rank = ranks.rank(), last = ranks.num_ranks() - 1;
  std::vector<IndexRange> taken;
  for (Index b = 0; b < shape.num_sequences; ++b) {
    Index r = last;
    while (r > 0 && shares.at(r, b) == 0) --r;
    Index next = 0;
    IndexRange own{0, 0};
    for (; r <= last && next < key.shape[2]; ++r) {
      const Index count =
          std::clamp<Index>(capacities[static_cast<std::size_t>(r)] - shares.at(r, b), 0, key.shape[2] - next);
      if (r == rank) own = {next, next + count};
      next += count;
    }
    if (next < key.shape[2])
      throw InvalidArgument(std::string(kName) + ": sequence " + std::to_string(b) + " needs room for " +
                            std::to_string(key.shape[2] - next) + " more keys; expected caches with enough capacity");
    taken.push_back(own);
  }
  std::vector<Index> before;
  for (Index b = 0; b < shape.num_sequences; ++b) before.push_back(cache.length(b));
  Agreement found(kName);
  std::exception_ptr thrown;
  try {
    for (Index b = 0; b < shape.num_sequences; ++b) {
      const IndexRange& own = taken[static_cast<std::size_t>(b)];
      if (own.size() == 0) continue;
      const auto of_sequence = [&](const InputView<4>& view) {
        const InputView<4> part = cut(cut(view, 0, b, 1), 2, own.first, own.size());
        return InputView<3>(part.data, part.type, {part.shape[1], part.shape[2], part.shape[3]},
                            {part.strides[1], part.strides[2], part.strides[3]});
      };
      cache.append(b, of_sequence(key), of_sequence(value), stop);
    }
  } catch (const std::exception& error) {
    thrown = std::current_exception();
    found.reject(error.what());
  }
  try {
    found.exchange(ranks, stop);
  } catch (...) {
    for (Index b = 0; b < shape.num_sequences; ++b) cache.truncate(b, before[static_cast<std::size_t>(b)]);
    if (thrown) std::rethrow_exception(thrown);
    throw;
  }
}

}  // namespace
}  // namespace internal

template <class K>
void attention_decode(const InputView<4>& query, const KvCache<K>& cache, const AttentionOutputs& outputs,
                      const AttentionOptions& options, Ranks& ranks, const Runtime& runtime) {
  internal::decode_call(query, cache, outputs, options, ranks, runtime);
}

template <class K>
void append(KvCache<K>& cache, const InputView<4>& key, const InputView<4>& value, Ranks& ranks,
            const std::stop_token& stop) {
  internal::append_call(cache, key, value, ranks, stop);
}

#define REGARD_DECODE(K)                                                                                        \
  template REGARD_EXPORT void attention_decode(const InputView<4>&, const KvCache<K>&, const AttentionOutputs&, \
                                               const AttentionOptions&, Ranks&, const Runtime&);                \
  template REGARD_EXPORT void append(KvCache<K>&, const InputView<4>&, const InputView<4>&, Ranks&,             \
                                     const std::stop_token&)
REGARD_DECODE(float);
REGARD_DECODE(double);
REGARD_DECODE(bfloat16);
REGARD_DECODE(float16);
REGARD_DECODE(std::int8_t);
#undef REGARD_DECODE

}  // namespace regard::inline v0
