// SPDX-License-Identifier: Apache-2.0
//
// Texts, one a line, of a file or of standard input, in batches: memory does not grow with the number of lines.
//
//     bytes ── 64 KiB at a time ── lines, without LF or CR LF ──▶ batches of some 256 KiB or 1024 lines
//
// Read next: line_vectors.h.
#pragma once

#include <string>
#include <vector>

#include "program.h"

namespace regard::program {

class TextLines {
 public:
  // A path, or "-" for standard input. Throws as open_input.
  explicit TextLines(const std::string& path);

  // The next lines; none at the end. The last one may lack its end. Throws std::runtime_error for a line longer than
  // 16 MiB and where reading fails.
  std::vector<std::string> next_batch();

  const std::string& name() const { return file_.name; }
  Index lines_read() const { return lines_read_; }
  // How far the reading has come, in bytes; total is 0 where nobody can know it.
  Index done_bytes() const { return done_bytes_; }
  Index total_bytes() const { return total_bytes_; }

 private:
  bool read_more();

  InputFile file_;
  std::string waiting_;       // bytes that were read and not yet handed on
  std::size_t searched_ = 0;  // of them, those that hold no line end
  bool at_end_ = false;
  Index lines_read_ = 0;
  Index done_bytes_ = 0;
  Index total_bytes_ = 0;
};

}  // namespace regard::program
