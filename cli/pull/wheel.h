// SPDX-License-Identifier: Apache-2.0
//
// A wheel (a zip archive) in memory. Members are requested by name and unpacked piece by piece. Names in the archive
// are never used to write files.
//
//     local header · bytes  …  one entry of the directory for each member  …  end: where the directory begins
//
// Format: PKWARE's APPNOTE 6.3.10; stored and deflated members of less than 4 GiB. Read next: wheel.cpp, pull.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace regard::program {

class Wheel {
 public:
  // name is used in messages. All functions throw std::runtime_error "<name>: byte <offset>: …".
  Wheel(std::string bytes, std::string name);

  // The unpacked size according to the directory. Throws if there is no such member.
  std::int64_t num_bytes(std::string_view member) const;
  // Passes the unpacked bytes to take in pieces. Their number is the size that the directory states.
  void unpack(std::string_view member, const std::function<void(std::span<const std::byte>)>& take) const;

 private:
  struct Member {
    std::uint64_t flags, method, packed_bytes, num_bytes, header;
  };
  const Member& find(std::string_view member) const;
  std::uint64_t number(std::uint64_t at, int num_bytes) const;
  [[noreturn]] void fail(std::uint64_t at, const std::string& what) const;

  std::string bytes_;
  std::string name_;
  std::map<std::string, Member, std::less<>> members_;
};

}  // namespace regard::program
