// SPDX-License-Identifier: Apache-2.0
//
// On a rank, sequences may start at different keys, so masks, biases and segments are copied for its keys. Blocks of a
// block mask need not begin where the keys of a rank do, so it is replaced by an elementwise mask. Read next:
// cache_shares.h.
#include "cache_shares.h"

#include <algorithm>
#include <cstring>

#include "regard/error.h"

namespace regard::inline v0::internal {

void check_cuts(const char* function, const CacheShares& shares) {
  const auto num_ranks = static_cast<Index>(shares.lengths.size());
  for (std::size_t b = 0; b < shares.lengths.front().size(); ++b) {
    const auto sequence = static_cast<Index>(b);
    for (Index r = 0; r < num_ranks; ++r) {
      const Index end = shares.first_key(r + 1, sequence);
      if (end == shares.total(sequence) || shares.at(r, sequence) % kAttentionChunkKeys == 0) continue;
      throw InvalidArgument(std::string(function) + ": rank " + std::to_string(r) + ": sequence " + std::to_string(b) +
                            " has " + std::to_string(shares.at(r, sequence)) +
                            " keys, and later ranks have more; expected a multiple of " +
                            std::to_string(kAttentionChunkKeys));
    }
  }
}

namespace {

// Columns first … first + count − 1 of each sequence, for a view whose last axis is keys. Columns past the
// end are not read.
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

}  // namespace

ShardOptions shard_options(const AttentionOptions& options, const InputView<4>& query, const CacheShares& shares,
                           Index rank) {
  ShardOptions shard{.options = options, .offsets = {}, .prefix = {}, .mask = {}, .segments = {}, .bias = {}};
  AttentionOptions& o = shard.options;
  o.sinks = {};
  const auto [batch, heads, rows, head_size] = query.shape;
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

}  // namespace regard::inline v0::internal
