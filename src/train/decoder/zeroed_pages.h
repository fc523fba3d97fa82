// SPDX-License-Identifier: Apache-2.0
//
// Memory of whole pages, all zero.
// Read next: decoder_memory.h.
#pragma once

#include <cstddef>
#include <memory>

namespace regard::inline v0::internal {

struct ReleasePages {
  std::size_t size = 0;
  void operator()(std::byte* memory) const;
};
using Pages = std::unique_ptr<std::byte, ReleasePages>;

// `count` zero bytes; nullptr if it is 0. Physical memory is allocated only where bytes are written. Blocks of many
// megabytes have huge pages if the system offers them. Throws std::bad_alloc.
Pages zeroed_pages(std::size_t count);

}  // namespace regard::inline v0::internal
