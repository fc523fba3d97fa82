// SPDX-License-Identifier: Apache-2.0
//
// Positions are resolved to numbers, one per batch entry or packed sequence, because alignment with the ends of the
// whole call is meaningless for a subset of its rows. Read next: local_options.h, docs/derivations/ranks.md.
#include "local_options.h"

#include <algorithm>

namespace regard::inline v0::internal {
namespace {

bool is_packed(const AttentionOptions& options) { return !options.query_starts.absent(); }

// Position of row 0 of each batch entry or packed sequence. For invalid arrays, which the call
// rejects, the numbers are arbitrary.
std::vector<Index> row_offsets(const AttentionOptions& options, const CallExtents& extents) {
  const Index count = is_packed(options) ? std::max<Index>(0, options.query_starts.shape[0] - 1) : extents.batch;
  std::vector<Index> offsets(static_cast<std::size_t>(count));
  for (Index n = 0; n < count; ++n) {
    Index& offset = offsets[static_cast<std::size_t>(n)];
    if (const Index* given = std::get_if<Index>(&options.query_offset)) {
      offset = *given;
    } else if (const auto* array = std::get_if<InputView<1>>(&options.query_offset)) {
      if (n < array->shape[0]) offset = array->at<Index>(n);
    } else if (const auto* alignment = std::get_if<QueryAlignment>(&options.query_offset);
               alignment && *alignment == QueryAlignment::bottom_right) {
      Index rows = extents.num_rows, keys = extents.num_keys;
      if (is_packed(options)) {
        rows = options.query_starts.at<Index>(n + 1) - options.query_starts.at<Index>(n);
        if (n + 1 < options.key_starts.shape[0])
          keys = options.key_starts.at<Index>(n + 1) - options.key_starts.at<Index>(n);
      }
      if (n < options.key_lengths.shape[0]) keys = options.key_lengths.at<Index>(n);
      offset = keys - rows;
    }
  }
  return offsets;
}

}  // namespace

LocalOptions local_options(const AttentionOptions& options, const CallExtents& extents, const IndexRange& rows,
                           const IndexRange& heads, Index first_mask_row, Index first_mask_head) {
  LocalOptions local{options, {}, {}};
  AttentionOptions& o = local.options;
  const Index mask_row = rows.first - first_mask_row, mask_head = heads.first - first_mask_head;
  for (InputView<4>* view : {&o.mask, &o.bias})
    *view = slice(slice(*view, 1, mask_head, heads.size()), 2, mask_row, rows.size());
  if (!o.block_mask.absent() && o.block_size[0] > 0) {
    const Index first = rows.first / o.block_size[0];
    const Index end = (rows.end + o.block_size[0] - 1) / o.block_size[0];
    o.block_mask = cut(slice(o.block_mask, 1, heads.first, heads.size()), 2, first, rows.size() > 0 ? end - first : 0);
  }
  o.alibi_slopes = slice(o.alibi_slopes, 0, heads.first, heads.size());
  o.sinks = slice(o.sinks, 0, heads.first, heads.size());
  o.query_segments = cut(o.query_segments, 1, rows.first, rows.size());
  if (o.dropout > 0) {
    o.dropout_first[1] += heads.first;
    o.dropout_first[2] += rows.first;
  }
  if (rows.first == 0 && rows.size() == extents.num_rows) return local;

  local.offsets = row_offsets(options, extents);
  if (is_packed(options)) {
    for (Index n = 0; n < options.query_starts.shape[0]; ++n) {
      const Index start = options.query_starts.at<Index>(n);
      local.starts.push_back(std::clamp<Index>(start - rows.first, 0, rows.size()));
      if (n < static_cast<Index>(local.offsets.size()))
        local.offsets[static_cast<std::size_t>(n)] += std::max<Index>(0, rows.first - start);
    }
    o.query_starts = local.starts;
  } else {
    for (Index& offset : local.offsets) offset += rows.first;
  }
  o.query_offset = InputView<1>(local.offsets);
  return local;
}

AttentionOptions head_options(const AttentionOptions& options, Index head) {
  AttentionOptions o = options;
  for (InputView<4>* view : {&o.mask, &o.bias, &o.block_mask}) *view = slice(*view, 1, head, 1);
  for (InputView<1>* view : {&o.alibi_slopes, &o.sinks}) *view = slice(*view, 0, head, 1);
  o.dropout_first[1] += head;
  return o;
}

AttentionOptions batch_options(const AttentionOptions& options, Index batch) {
  AttentionOptions o = options;
  for (InputView<4>* view : {&o.mask, &o.bias, &o.block_mask}) *view = slice(*view, 0, batch, 1);
  for (InputView<2>* view : {&o.query_segments, &o.key_segments}) *view = slice(*view, 0, batch, 1);
  for (InputView<1>* view : {&o.key_lengths, &o.prefix}) *view = slice(*view, 0, batch, 1);
  if (auto* offsets = std::get_if<InputView<1>>(&o.query_offset)) *offsets = slice(*offsets, 0, batch, 1);
  o.dropout_first[0] += batch;
  return o;
}

std::vector<IndexRange> strips(const AttentionOptions& options, const IndexRange& rows) {
  const Index strip = options.block_mask.absent() ? 0 : options.block_size[0];
  if (strip < 1 || rows.first % strip == 0) return {rows};
  const Index border = std::min(rows.end, (rows.first / strip + 1) * strip);
  if (border == rows.end) return {rows};
  return {{rows.first, border}, {border, rows.end}};
}

RowVisibility visibility_of(const AttentionOptions& options, const CallExtents& extents) {
  RowVisibility visibility;
  const bool positions = options.causal || options.window.left || options.window.right;
  const std::vector<Index> offsets = row_offsets(options, extents);
  if (is_packed(options)) {
    for (Index n = 0; n < options.query_starts.shape[0]; ++n) {
      visibility.query_starts.push_back(options.query_starts.at<Index>(n));
      visibility.key_starts.push_back(n < options.key_starts.shape[0] ? options.key_starts.at<Index>(n) : 0);
    }
  }
  if (!positions) return visibility;
  const bool is_bottom_right = std::holds_alternative<QueryAlignment>(options.query_offset) &&
                               std::get<QueryAlignment>(options.query_offset) == QueryAlignment::bottom_right;
  if (is_bottom_right && options.key_lengths.absent()) {
    visibility.query_offset = QueryAlignment::bottom_right;
  } else if (!offsets.empty()) {
    if (std::any_of(offsets.begin(), offsets.end(), [&](Index offset) { return offset != offsets.front(); }))
      return visibility;
    visibility.query_offset = offsets.front();
  }
  visibility.causal = options.causal && options.prefix.absent();
  visibility.window = options.window;
  return visibility;
}

}  // namespace regard::inline v0::internal
