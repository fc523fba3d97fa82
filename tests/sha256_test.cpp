// SPDX-License-Identifier: Apache-2.0
//
// SHA-256 compared with NIST's examples (csrc.nist.gov, "SHA-256" example values; FIPS 180-2, appendix B), and with
// itself in pieces of every length around a block.
#include "regard/io/sha256.h"

#include <gtest/gtest.h>

#include <string_view>
#include <utility>
#include <vector>

namespace regard::sha256_test {
namespace {

std::string sum_of(std::string_view text) { return sha256(std::as_bytes(std::span(text))); }

TEST(Sha256, PublishedExamples) {
  EXPECT_EQ(sum_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sum_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sum_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sum_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                   "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sum_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The same NIST page: lengths at which the padding changes.
TEST(Sha256, LengthsAroundABlock) {
  const std::vector<std::pair<std::size_t, std::string_view>> zeros = {
      {55, "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7"},
      {56, "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb"},
      {57, "65a16cb7861335d5ace3c60718b5052e44660726da4cd13bb745381b235a1785"},
      {64, "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b"},
      {1000, "541b3e9daa09b20bf85fa273e5cbd3e80185aa4ec298e765db87742b70138a53"}};
  for (const auto& [count, expected] : zeros) EXPECT_EQ(sum_of(std::string(count, '\0')), expected) << count;
}

TEST(Sha256, MatchesWhenHashedInPieces) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>(i * 7);
  const std::string whole = sum_of(text);
  for (std::size_t piece = 1; piece <= 130; ++piece) {
    Sha256 sum;
    for (std::size_t at = 0; at < text.size(); at += piece) {
      sum.add(std::as_bytes(std::span(text).subspan(at, std::min(piece, text.size() - at))));
    }
    EXPECT_EQ(sum.finish(), whole) << piece;
  }
}

}  // namespace
}  // namespace regard::sha256_test
