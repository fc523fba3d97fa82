// SPDX-License-Identifier: Apache-2.0
//
// Reads lines of a file or of standard input in batches; see text_lines.h.
// Read next: line_vectors.cpp.
#include "text_lines.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

namespace regard::program {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{64} << 10;
constexpr std::size_t kLongestLine = std::size_t{16} << 20;
constexpr std::size_t kBatchBytes = std::size_t{256} << 10;
constexpr std::size_t kBatchLines = 1024;

// The size of the file that standard input reads from; 0 if it is not a file.
Index standard_input_bytes() {
  struct stat status{};
  if (fstat(0, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  return static_cast<Index>(status.st_size);
}

}  // namespace

TextLines::TextLines(const std::string& path) : file_(open_input(path)) {
  total_bytes_ = path == "-" ? standard_input_bytes() : static_cast<Index>(file_.num_bytes.value_or(0));
}

TextLines::TextLines(const std::string& path, const Shard& shard) : file_(open_input(path)) {
  shard_ = find_text_shard(file_, shard);
  file_.seek(static_cast<std::uint64_t>(shard_->first_byte));
  lines_read_ = shard_->first_line - 1;
  total_bytes_ = shard_->end_byte - shard_->first_byte;
}

bool TextLines::read_more() {
  if (at_end_) return false;
  std::vector<std::byte> piece(kPieceBytes);
  if (shard_) piece.resize(std::min(piece.size(), static_cast<std::size_t>(total_bytes_ - done_bytes_)));
  const std::size_t count = file_.source(piece);
  waiting_.append(reinterpret_cast<const char*>(piece.data()), count);
  done_bytes_ += static_cast<Index>(count);
  if (shard_ && count < piece.size()) throw std::runtime_error(file_.name + ": changed while it was being read");
  at_end_ = shard_ ? done_bytes_ == total_bytes_ : count < piece.size();
  return count > 0;
}

std::vector<std::string> TextLines::next_batch() {
  std::vector<std::string> lines;
  std::size_t first = 0;
  std::size_t bytes = 0;
  const auto take = [&](std::size_t length, std::size_t with_end) {
    std::string line = waiting_.substr(first, length);
    if (line.ends_with('\r')) line.pop_back();
    bytes += line.size();
    lines.push_back(std::move(line));
    first += with_end;
    searched_ = first;
  };
  while (lines.size() < kBatchLines && bytes < kBatchBytes) {
    const std::size_t end = waiting_.find('\n', searched_);
    if (end != std::string::npos) {
      take(end - first, end - first + 1);
      continue;
    }
    searched_ = waiting_.size();
    if (waiting_.size() - first > kLongestLine) {
      throw std::runtime_error(fmt::format("{}: line {} is longer than {}; expected one text per line", file_.name,
                                           lines_read_ + static_cast<Index>(lines.size()) + 1,
                                           bytes_text(kLongestLine)));
    }
    if (read_more()) continue;
    if (first < waiting_.size()) take(waiting_.size() - first, waiting_.size() - first);
    break;
  }
  waiting_.erase(0, first);
  searched_ -= first;
  lines_read_ += static_cast<Index>(lines.size());
  return lines;
}

}  // namespace regard::program
