// SPDX-License-Identifier: Apache-2.0
//
// Consistency checks for a block that is opened, so that no missing panel is ever read. All throw DataError with the
// offset of the error; Block is KvCache<T>::Block.
// Read next: kv_cache.cpp.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "block.h"
#include "format.h"

namespace regard::inline v0::internal {

// Checks the length and first key of a sequence.
template <class Block>
void check_range(const Block& block, Index sequence) {
  const auto& layout = block.layout;
  const Index length = block.lengths()[sequence], first = block.firsts()[sequence];
  const auto here = [&](Index offset) { return offset + sequence * static_cast<Index>(sizeof(std::int64_t)); };
  const Index max_length = block.shape.ring ? std::numeric_limits<Index>::max() / 2 - 1 : block.shape.capacity;
  if (length < 0 || length > max_length)
    reject_cache_bytes(here(layout.lengths), sequence_text(sequence) + " has an invalid length");
  const Index last = length > 0 ? (length - 1) / kernels::kPanel : -1;
  if (first < 0 || first > length || first % kernels::kPanel != 0 || (!block.shape.ring && first != 0) ||
      last - first / kernels::kPanel >= layout.sequence_panels)
    reject_cache_bytes(here(layout.firsts), sequence_text(sequence) + " has an invalid first key");
}

// Checks a sequence's table: each entry refers to an existing slot or to none, every key has a slot, and an empty
// sequence has none. Counts the users of each slot.
template <class Block>
void check_table(const Block& block, Index sequence, std::vector<std::int32_t>& users, const std::stop_token& stop) {
  const auto& layout = block.layout;
  const std::span entries(block.table(sequence), static_cast<std::size_t>(layout.sequence_panels));
  for (std::size_t e = 0; e < entries.size(); ++e) {
    throw_if_stopped(stop);
    const std::int32_t slot = entries[e];
    if (slot < -1 || slot >= layout.num_slots)
      reject_cache_bytes(layout.table + (sequence * layout.sequence_panels + static_cast<Index>(e)) *
                                            static_cast<Index>(sizeof(std::int32_t)),
                         "there is no slot " + std::to_string(slot));
    if (slot >= 0) ++users[static_cast<std::size_t>(slot)];
  }
  const Index length = block.lengths()[sequence];
  for (Index panel = block.firsts()[sequence] / kernels::kPanel; panel * kernels::kPanel < length; ++panel) {
    if (entries[static_cast<std::size_t>(block.entry(panel))] < 0)
      reject_cache_bytes(layout.table, sequence_text(sequence) + " is missing a panel");
  }
  const auto has_slot = [](std::int32_t slot) { return slot >= 0; };
  if (length == 0 && std::ranges::any_of(entries, has_slot))
    reject_cache_bytes(layout.table, sequence_text(sequence) + " is empty but has panels");
  if (block.shape.ring && length > 0 && !std::ranges::all_of(entries, has_slot))
    reject_cache_bytes(layout.table, sequence_text(sequence) + " is missing a panel of its ring");
}

// Panels that will still be written must have one user: all panels of a ring, and those past the last key of any other
// sequence.
template <class Block>
void check_unshared(const Block& block, Index sequence, const std::vector<std::int32_t>& users,
                    const std::stop_token& stop) {
  const Index written =
      block.shape.ring ? 0 : checked_round_up(block.lengths()[sequence], kernels::kPanel) / kernels::kPanel;
  for (Index e = written; e < block.layout.sequence_panels; ++e) {
    throw_if_stopped(stop);
    const std::int32_t slot = block.table(sequence)[e];
    if (slot >= 0 && users[static_cast<std::size_t>(slot)] > 1)
      reject_cache_bytes(block.layout.table, sequence_text(sequence) + " shares panel " + std::to_string(slot) +
                                                 ", which it will write to");
  }
}

// Checks the recorded users of panels and pages against the tables.
template <class Block>
void check_users(const Block& block, const std::vector<std::int32_t>& users, const std::stop_token& stop) {
  const auto& layout = block.layout;
  for (Index page = 0; page < layout.num_pages; ++page) {
    std::int64_t all = 0;
    for (Index slot = page * layout.page_panels; slot < (page + 1) * layout.page_panels; ++slot) {
      throw_if_stopped(stop);
      all += users[static_cast<std::size_t>(slot)];
      if (block.panel_users()[slot] != users[static_cast<std::size_t>(slot)])
        reject_cache_bytes(layout.panel_users,
                           "panel " + std::to_string(slot) + " has a user count that does not match the tables");
    }
    if (block.page_users()[page] != all)
      reject_cache_bytes(layout.page_users,
                         "page " + std::to_string(page) + " has a user count that does not match the tables");
  }
}

}  // namespace regard::inline v0::internal
