// SPDX-License-Identifier: Apache-2.0
//
// Reads texts, one per line, from a file, a shard of a file, or standard input. Lines come in batches: memory does not
// grow with their number.
//
//     bytes ── 64 KiB at a time ── lines, without LF or CR LF ──▶ batches of about 256 KiB or 1024 lines
//
// Read next: line_vectors.h.
#pragma once

#include <string>
#include <vector>

#include "program.h"
#include "text_shard.h"

namespace regard::program {

class TextLines {
 public:
  // path: a file, or "-" for standard input. Throws as open_input does.
  explicit TextLines(const std::string& path);
  // path: a file. Only the lines of a shard are read, with their numbers in the file. Throws as find_text_shard, too.
  TextLines(const std::string& path, const Shard& shard);

  // The next lines; empty at the end. The last line may have no newline. Throws std::runtime_error for a line longer
  // than 16 MiB, and if reading fails.
  std::vector<std::string> next_batch();

  const std::string& name() const { return file_.name; }
  // Including those before the shard.
  Index lines_read() const { return lines_read_; }
  const std::optional<TextShard>& shard() const { return shard_; }
  // The number of bytes read, and the total, which is 0 if it is unknown.
  Index done_bytes() const { return done_bytes_; }
  Index total_bytes() const { return total_bytes_; }

 private:
  bool read_more();

  InputFile file_;
  std::optional<TextShard> shard_;
  std::string waiting_;       // bytes that were read but not yet returned
  std::size_t searched_ = 0;  // of these, the number without a newline
  bool at_end_ = false;
  Index lines_read_ = 0;
  Index done_bytes_ = 0;
  Index total_bytes_ = 0;
};

}  // namespace regard::program
