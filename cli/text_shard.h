// SPDX-License-Identifier: Apache-2.0
//
// The part of a file of lines that one of several processes handles: contiguous, and with about as many bytes as the
// others.
//
//     bytes 0 … N     |---- shard 0 ----|---- shard 1 ----|---- shard 2 ----|     cuts at I · N / COUNT
//     lines           ~~~~~ ~~~~~~~~~~~~~~~ ~~~~~~~~~ ~~~~~~~~~ ~~~~~ ~~~~~~
//                       0          0            1         2       2      2        the shard of a line's first byte
//
// A shard can be empty. Read next: text_lines.h, shard_record.h.
#pragma once

#include <string>

#include "program.h"

namespace regard::program {

struct Shard {
  Index index = 0;
  Index count = 1;
};

// "3/16". Throws UsageError unless 0 <= index < count.
Shard parse_shard(const std::string& text);

// The lines of a shard, and what identifies the whole file.
struct TextShard {
  Shard shard;
  Index first_byte = 0;
  Index end_byte = 0;
  Index first_line = 1;  // the number of its first line in the file, starting at 1
  Index file_bytes = 0;
  std::string file_sha256{};
};

// Reads the whole file once, which takes about 3 s per GB. Throws std::runtime_error if its length changes meanwhile.
TextShard find_text_shard(const InputFile& file, const Shard& shard);

}  // namespace regard::program
