// SPDX-License-Identifier: Apache-2.0
//
// Finds the lines of a shard in one pass over the file; see text_shard.h.
// Read next: text_lines.cpp.
#include "text_shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "progress.h"
#include "regard/io/sha256.h"

namespace regard::program {
namespace {

constexpr Index kMaxShards = 1'000'000;

// floor(index · bytes / count) without overflow.
Index shard_cut(Index bytes, Index index, Index count) { return bytes / count * index + bytes % count * index / count; }

// The first line that begins at or after a cut, found while the bytes of the file are read in order.
class LineAfterCut {
 public:
  LineAfterCut(Index cut, Index file_bytes) : cut_(cut), byte_(cut == 0 ? 0 : file_bytes), found_(cut == 0) {}

  void pass(const char* bytes, Index count, Index offset) {
    if (found_) return;
    const char* const end = bytes + count;
    for (const char* p = bytes; (p = static_cast<const char*>(std::memchr(p, '\n', static_cast<std::size_t>(end - p))));
         ++p) {
      ++lines_before_;
      const Index next = offset + (p - bytes) + 1;
      if (next < cut_) continue;
      byte_ = next;
      found_ = true;
      return;
    }
  }

  Index byte() const { return byte_; }  // the end of the file if there is none
  Index lines_before() const { return lines_before_; }

 private:
  Index cut_;
  Index byte_;
  bool found_;
  Index lines_before_ = 0;
};

}  // namespace

Shard parse_shard(const std::string& text) {
  const std::vector<std::string_view> numbers = split(text, '/');
  const auto fail = [&](const std::string& what) {
    throw UsageError(fmt::format("--shard is \"{}\"; {}", text, what));
  };
  if (numbers.size() != 2) fail("expected I/N, such as 0/16 for the first of 16 shards");
  const Shard shard{parse_integer("--shard", numbers[0]), parse_integer("--shard", numbers[1])};
  if (shard.count < 1 || shard.count > kMaxShards) fail(fmt::format("expected 1 to {} shards", kMaxShards));
  if (shard.index < 0 || shard.index >= shard.count)
    fail(fmt::format("shards are numbered from 0: expected 0/{} to {}/{}", shard.count, shard.count - 1, shard.count));
  return shard;
}

TextShard find_text_shard(const InputFile& file, const Shard& shard) {
  TextShard found{.shard = shard, .file_bytes = static_cast<Index>(file.num_bytes.value())};
  LineAfterCut first(shard_cut(found.file_bytes, shard.index, shard.count), found.file_bytes);
  LineAfterCut end(shard_cut(found.file_bytes, shard.index + 1, shard.count), found.file_bytes);
  Sha256 sum;
  Progress progress("reading");
  std::vector<std::byte> piece(std::size_t{1} << 20);
  Index offset = 0;
  for (std::size_t count; (count = file.source(piece)) > 0; offset += static_cast<Index>(count)) {
    const auto* const bytes = reinterpret_cast<const char*>(piece.data());
    sum.add(std::span(piece).first(count));
    first.pass(bytes, static_cast<Index>(count), offset);
    end.pass(bytes, static_cast<Index>(count), offset);
    progress.update(std::min(offset, found.file_bytes), found.file_bytes);
  }
  if (offset != found.file_bytes) throw std::runtime_error(file.name + ": changed while it was being read");
  found.first_byte = first.byte();
  found.end_byte = end.byte();
  found.first_line = first.lines_before() + 1;
  found.file_sha256 = sum.finish();
  return found;
}

}  // namespace regard::program
