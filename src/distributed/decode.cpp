// SPDX-License-Identifier: Apache-2.0
//
// Decoding with a cache whose keys are divided among ranks. Every rank has the whole query and gets the whole context.
//
//   partial results of my keys, all heads ──by heads──▶ merge my heads, in key order ──▶ every rank
//
// A rank sends sums times 2⁻⁴⁰ as well if one of its sums is not finite; a number before the partial results says so.
// Read next: whole_call.h, docs/derivations/ranks.md.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "held_array.h"
#include "local_options.h"
#include "messages.h"
#include "regard/distributed/attention.h"
#include "regard/plan.h"
#include "whole_call.h"

namespace regard::inline v0 {
namespace internal {
namespace {

using Tickets = std::vector<Messages::Ticket>;

// The keys of each sequence on each rank.
struct CacheShares {
  std::vector<std::vector<Index>> lengths;  // [rank][sequence]

  Index first_key(Index rank, Index sequence) const {
    Index sum = 0;
    for (Index r = 0; r < rank; ++r) sum += at(r, sequence);
    return sum;
  }
  Index at(Index rank, Index sequence) const {
    return lengths[static_cast<std::size_t>(rank)][static_cast<std::size_t>(sequence)];
  }
  Index total(Index sequence) const { return first_key(static_cast<Index>(lengths.size()), sequence); }
  Index num_chunks(Index rank) const {
    const std::vector<Index>& of = lengths[static_cast<std::size_t>(rank)];
    return of.empty() ? 0 : attention_num_chunks(*std::max_element(of.begin(), of.end()));
  }
};

// Adds the lengths of this rank; `get` reads all after the exchange.
class SharedLengths {
 public:
  template <class K>
  SharedLengths(Agreement& agreement, const KvCache<K>& cache) {
    for (Index b = 0; b < cache.shape().num_sequences; ++b) places_.push_back(agreement.number(cache.length(b)));
  }
  CacheShares get(const Agreement& agreement, Index num_ranks) const {
    CacheShares shares;
    shares.lengths.resize(static_cast<std::size_t>(num_ranks));
    for (const std::size_t place : places_) {
      const std::vector<Index> of_sequence = agreement.numbers(place);
      for (std::size_t r = 0; r < of_sequence.size(); ++r) shares.lengths[r].push_back(of_sequence[r]);
    }
    return shares;
  }

 private:
  std::vector<std::size_t> places_;
};

// Throws unless keys that others follow end at a multiple of kAttentionChunkKeys: the same on all ranks.
void check_cuts(const char* function, const CacheShares& shares) {
  const auto num_ranks = static_cast<Index>(shares.lengths.size());
  for (std::size_t b = 0; b < shares.lengths.front().size(); ++b) {
    const auto sequence = static_cast<Index>(b);
    for (Index r = 0; r < num_ranks; ++r) {
      const Index end = shares.first_key(r + 1, sequence);
      if (end == shares.total(sequence) || shares.at(r, sequence) % kAttentionChunkKeys == 0) continue;
      throw InvalidArgument(std::string(function) + ": rank " + std::to_string(r) + ": sequence " + std::to_string(b) +
                            " has " + std::to_string(shares.at(r, sequence)) +
                            " keys, which others follow; expected a multiple of " +
                            std::to_string(kAttentionChunkKeys));
    }
  }
}

// The options of a call as options for the keys of one rank.
struct ShardOptions {
  AttentionOptions options;
  std::vector<Index> offsets, prefix;
  std::vector<std::uint8_t> mask, segments;
  std::vector<std::byte> bias;
};

// Columns first … first + count − 1 of each sequence, for a view whose last axis is keys. A column beyond is not read.
template <int Rank>
std::vector<std::byte> columns(const InputView<Rank>& view, std::array<Index, Rank> shape,
                               const std::vector<Index>& first_keys) {
  const Index bytes = type_bytes(view.type);
  Index size = bytes;
  for (const Index extent : shape) size *= extent;
  std::vector<std::byte> copy(static_cast<std::size_t>(size));
  std::byte* to = copy.data();
  std::array<Index, Rank> at{};
  for (; to != copy.data() + copy.size(); to += bytes) {
    const Index column = at.back() + first_keys[static_cast<std::size_t>(at[0])];
    if (view.shape.back() == 1 || column < view.shape.back()) {
      Index offset = 0;
      for (std::size_t axis = 0; axis + 1 < at.size(); ++axis)
        offset += view.shape[axis] == 1 ? 0 : at[axis] * view.strides[axis];
      offset += view.shape.back() == 1 ? 0 : column * view.strides.back();
      std::memcpy(to, static_cast<const std::byte*>(view.data) + offset * bytes, static_cast<std::size_t>(bytes));
    }
    for (std::size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < shape[axis]) break;
      at[axis] = 0;
    }
  }
  return copy;
}

ShardOptions shard_options(const AttentionOptions& options, const InputView<4>& query, const CacheShares& shares,
                           Index rank) {
  ShardOptions shard{.options = options, .offsets = {}, .prefix = {}, .mask = {}, .segments = {}, .bias = {}};
  AttentionOptions& o = shard.options;
  o.sinks = {};
  const auto [batch, heads, rows, depth] = query.shape;
  std::vector<Index> first_keys;
  Index most = 0;
  for (Index b = 0; b < batch; ++b) {
    first_keys.push_back(shares.first_key(rank, b));
    most = std::max(most, shares.at(rank, b));
    Index offset = shares.total(b) - rows;  // bottom_right
    if (const Index* given = std::get_if<Index>(&options.query_offset)) offset = *given;
    if (const auto* array = std::get_if<InputView<1>>(&options.query_offset)) offset = array->at<Index>(b);
    if (const auto* alignment = std::get_if<QueryAlignment>(&options.query_offset);
        alignment && *alignment == QueryAlignment::top_left)
      offset = 0;
    shard.offsets.push_back(offset - first_keys.back());
    if (!options.prefix.absent())
      shard.prefix.push_back(std::max<Index>(0, options.prefix.at<Index>(b) - first_keys.back()));
  }
  o.query_offset = InputView<1>(shard.offsets);
  if (!options.prefix.absent()) o.prefix = InputView<1>(shard.prefix);
  if (!options.key_segments.absent()) {
    const std::vector<std::byte> copy = columns<2>(options.key_segments, {batch, most}, first_keys);
    shard.segments.resize(copy.size());
    std::transform(copy.begin(), copy.end(), shard.segments.begin(),
                   [](std::byte b) { return std::to_integer<std::uint8_t>(b); });
    o.key_segments = {shard.segments.data(), options.key_segments.type, {batch, most}, {most, 1}};
  }
  const std::array<Index, 4> full{batch, heads, rows, most};
  if (!options.bias.absent()) {
    shard.bias = columns<4>(options.bias, full, first_keys);
    o.bias = {shard.bias.data(), options.bias.type, full, dense_strides(full)};
  }
  if (options.mask.absent() && options.block_mask.absent()) return shard;
  // Blocks need not begin where the keys of this rank do: a mask by element replaces them.
  for (Index b = 0; b < batch; ++b) {
    for (Index h = 0; h < heads; ++h) {
      for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < most; ++j) {
          const Index key = first_keys[static_cast<std::size_t>(b)] + j;
          const auto is_set = [&](const InputView<4>& view, Index row, Index column) {
            if (view.absent()) return true;
            const auto place = [&](std::size_t axis, Index n) { return view.shape[axis] == 1 ? 0 : n; };
            if (place(3, column) >= view.shape[3]) return false;
            return view.at<int>(place(0, b), place(1, h), place(2, row), place(3, column)) != 0;
          };
          const bool in_block = options.block_mask.absent() ||
                                is_set(options.block_mask, i / options.block_size[0], key / options.block_size[1]);
          shard.mask.push_back(in_block && is_set(options.mask, i, key) ? 1 : 0);
        }
      }
    }
  }
  o.block_mask = {};
  o.block_size = {};
  o.mask = {shard.mask.data(), ElementType::uint8, full, dense_strides(full)};
  return shard;
}

// Partial results of some chunks and heads: for each chunk, batch entry, head and row Dv sums, as many scaled sums if
// there are any, row_max and row_sum.
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
  const ShardOptions shard = shard_options(options, query, shares, rank);
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
    attention_merge(all.views(), slice(options.sinks, 0, own_heads.first, own_heads.size()),
                    {.context = of_heads(outputs.context),
                     .row_max = of_heads(outputs.row_max),
                     .row_sum = of_heads(outputs.row_sum),
                     .lse = of_heads(outputs.lse),
                     .sink_weights = of_heads(outputs.sink_weights)},
                    runtime);
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
                     " batch entries; expected the sequences of the cache, " + std::to_string(shape.num_sequences));
  const std::size_t capacity = agreement.number(shape.capacity);
  const SharedLengths lengths(agreement, cache);
  agreement.exchange(ranks, stop);
  const CacheShares shares = lengths.get(agreement, ranks.num_ranks());
  check_cuts(kName, shares);
  std::vector<Index> room = agreement.numbers(capacity);
  for (std::size_t r = 0; r + 1 < room.size(); ++r) room[r] -= room[r] % kAttentionChunkKeys;

  // Each sequence goes on where it ends, and from a full cache to that of the next rank.
  const Index rank = ranks.rank(), last = ranks.num_ranks() - 1;
  std::vector<IndexRange> taken;
  for (Index b = 0; b < shape.num_sequences; ++b) {
    Index r = last;
    while (r > 0 && shares.at(r, b) == 0) --r;
    Index next = 0;
    IndexRange own{0, 0};
    for (; r <= last && next < key.shape[2]; ++r) {
      const Index count =
          std::clamp<Index>(room[static_cast<std::size_t>(r)] - shares.at(r, b), 0, key.shape[2] - next);
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
