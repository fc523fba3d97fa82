// SPDX-License-Identifier: Apache-2.0
//
// Reads a wheel from its end: the directory lists every member, each entry is checked against the length of the archive
// before it is used, and zlib unpacks the requested members.
// Read next: wheel.h.
#include "wheel.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

namespace regard::program {
namespace {

constexpr std::string_view kEndSignature = "PK\5\6";
constexpr std::string_view kEntry = "PK\1\2";
constexpr std::string_view kLocal = "PK\3\4";
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kEntryBytes = 46;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kLongestComment = 65535;
constexpr std::uint64_t kStored = 0;
constexpr std::uint64_t kDeflated = 8;

}  // namespace

void Wheel::fail(std::uint64_t at, const std::string& what) const {
  throw std::runtime_error(fmt::format("{}: byte {}: {}", name_, at, what));
}

// Little-endian; the caller has checked that it is within the archive.
std::uint64_t Wheel::number(std::uint64_t at, int num_bytes) const {
  std::uint64_t x = 0;
  for (int i = num_bytes; i-- > 0;) x = x << 8 | static_cast<unsigned char>(bytes_[at + static_cast<std::uint64_t>(i)]);
  return x;
}

Wheel::Wheel(std::string bytes, std::string name) : bytes_(std::move(bytes)), name_(std::move(name)) {
  const std::string_view all = bytes_;
  if (all.size() < kEndBytes) fail(0, "too short for a wheel");
  // The end record is last except for a comment, whose length it states.
  std::uint64_t end = all.size() - kEndBytes;
  const std::uint64_t first = end - std::min(end, kLongestComment);
  while (!(all.substr(end).starts_with(kEndSignature) && number(end + 20, 2) == all.size() - end - kEndBytes)) {
    if (end-- == first) fail(all.size(), "not a wheel, or a truncated one: the end of the zip archive is missing");
  }
  const std::uint64_t count = number(end + 10, 2);
  std::uint64_t at = number(end + 16, 4);
  if (number(end + 4, 2) != 0 || number(end + 6, 2) != 0 || number(end + 8, 2) != count) {
    fail(end, "multi-part archives are not supported");
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    if (at > end || end - at < kEntryBytes || !all.substr(at).starts_with(kEntry)) {
      fail(std::min<std::uint64_t>(at, all.size()), "the archive's directory is corrupt");
    }
    const std::uint64_t name_bytes = number(at + 28, 2);
    const std::uint64_t entry_bytes = kEntryBytes + name_bytes + number(at + 30, 2) + number(at + 32, 2);
    if (end - at < entry_bytes) fail(at, "the archive's directory is corrupt");
    const Member member{number(at + 8, 2), number(at + 10, 2), number(at + 20, 4), number(at + 24, 4),
                        number(at + 42, 4)};
    const std::string_view member_name = all.substr(at + kEntryBytes, name_bytes);
    if (!members_.emplace(member_name, member).second) {
      fail(at, fmt::format("duplicate member \"{}\"", member_name.substr(0, 80)));
    }
    at += entry_bytes;
  }
}

const Wheel::Member& Wheel::find(std::string_view member) const {
  const auto found = members_.find(member);
  if (found == members_.end()) throw std::runtime_error(fmt::format("{}: has no member \"{}\"", name_, member));
  return found->second;
}

std::int64_t Wheel::num_bytes(std::string_view member) const {
  return static_cast<std::int64_t>(find(member).num_bytes);
}

void Wheel::unpack(std::string_view name, const std::function<void(std::span<const std::byte>)>& take) const {
  const Member& member = find(name);
  const std::uint64_t at = member.header;
  const std::string_view all = bytes_;
  if (at > all.size() || all.size() - at < kLocalBytes || !all.substr(at).starts_with(kLocal)) {
    fail(std::min<std::uint64_t>(at, all.size()), fmt::format("member \"{}\" does not begin here", name));
  }
  const std::uint64_t begin = at + kLocalBytes + number(at + 26, 2) + number(at + 28, 2);
  if (begin > all.size() || all.size() - begin < member.packed_bytes) {
    fail(all.size(), fmt::format("member \"{}\" is truncated", name));
  }
  constexpr std::uint64_t kEncrypted = 1;
  if ((member.flags & kEncrypted) != 0 || (member.method != kStored && member.method != kDeflated)) {
    fail(at, fmt::format("member \"{}\" uses an unsupported compression or encryption", name));
  }
  const std::string_view packed = all.substr(begin, member.packed_bytes);
  if (member.method == kStored) {
    if (member.packed_bytes != member.num_bytes) fail(at, fmt::format("member \"{}\" has conflicting sizes", name));
    take(std::as_bytes(std::span(packed)));
    return;
  }

  z_stream stream{};
  constexpr int kNoZlibHeader = -MAX_WBITS;
  if (inflateInit2(&stream, kNoZlibHeader) != Z_OK) throw std::bad_alloc();
  const auto close = [](z_stream* s) { inflateEnd(s); };
  const std::unique_ptr<z_stream, decltype(close)> closer(&stream, close);
  // zlib does not write to its input, although next_in is not const. Sizes are below 2^32.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::vector<std::byte> piece(1 << 18);
  std::uint64_t came = 0;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    state = inflate(&stream, Z_NO_FLUSH);
    const std::size_t count = piece.size() - stream.avail_out;
    came += count;
    const bool stuck = state == Z_OK && count == 0;
    if ((state != Z_OK && state != Z_STREAM_END) || stuck || came > member.num_bytes) {
      fail(begin, fmt::format("member \"{}\" does not unpack to the expected {} bytes", name, member.num_bytes));
    }
    take(std::span(piece).first(count));
  }
  if (came != member.num_bytes) {
    fail(begin, fmt::format("member \"{}\" unpacks to {} bytes instead of {}", name, came, member.num_bytes));
  }
}

}  // namespace regard::program
