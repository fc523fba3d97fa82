// SPDX-License-Identifier: Apache-2.0
//
// The file of a vocabulary. It is untrusted: a token that is created by merges has at most 64 bytes, because lengths
// could otherwise double with each merge.
//
//     characters, words     tokens, in the order of their ids
//     byte_pairs            merges, in the order of the tokens that they create
//
// Read next: vocabulary.cpp.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "regard/error.h"
#include "regard/io/json.h"
#include "regard/io/json_writer.h"
#include "regard/io/utf8.h"
#include "vocabulary_parts.h"

namespace regard::inline v0 {
namespace {

using internal::TokenPair;
using Kind = JsonValue::Kind;

constexpr std::string_view kVocabularySchema = "regard/1";
constexpr std::array<std::string_view, 3> kKinds{"characters", "byte_pairs", "words"};  // as VocabularyKind
constexpr Index kMaxVocabularyDepth = 8;

class VocabularyReader {
 public:
  explicit VocabularyReader(const std::string& source) : source_(source) {}

  [[noreturn]] void fail(std::size_t offset, std::string_view what) const {
    throw DataError(fmt::format("{}: byte {}: {}", escape_for_terminal(source_), offset, what));
  }

  const JsonValue& member(const JsonValue& object, std::string_view name, Kind kind) const {
    const JsonValue* value = object.find(name);
    if (value == nullptr) fail(object.offset, fmt::format("{} is missing", name));
    if (value->kind() != kind)
      fail(value->offset, fmt::format("{} is not {}", name, kind == Kind::array ? "an array" : "a string"));
    return *value;
  }

  VocabularyKind kind(const JsonValue& root) const {
    if (root.kind() != Kind::object) fail(root.offset, "a vocabulary must be an object");
    const JsonValue& schema = member(root, "schema", Kind::string);
    if (schema.text() != kVocabularySchema)
      fail(schema.offset, fmt::format("schema \"{}\" is not supported; expected {}", text_in_message(schema.text()),
                                      kVocabularySchema));
    const JsonValue& name = member(root, "kind", Kind::string);
    for (std::size_t i = 0; i < kKinds.size(); ++i)
      if (name.text() == kKinds[i]) return static_cast<VocabularyKind>(i);
    fail(name.offset, fmt::format("kind \"{}\" is not supported; expected {}", text_in_message(name.text()),
                                  fmt::join(kKinds, ", ")));
  }

  void check_count(const JsonValue& where, std::size_t count, std::size_t least, std::size_t most) const {
    if (count < least || count > most)
      fail(where.offset, fmt::format("there are {} of them; expected {} to {}", count, least, most));
  }

  std::vector<std::string> tokens(const JsonValue& array, VocabularyKind kind) const {
    if (!array.numbers().empty()) fail(array.offset, "a token is a number, not a string");
    check_count(array, array.items().size(), 1, internal::kMaxTokens);
    std::vector<std::string> tokens;
    tokens.reserve(array.items().size());
    for (const JsonValue& item : array.items()) {
      if (item.kind() != Kind::string) fail(item.offset, "a token is not a string");
      const std::string& token = item.text();
      if (const std::string_view reason = internal::unfit_token(kind, token); !reason.empty())
        fail(item.offset, fmt::format("the token \"{}\" {}", text_in_message(token), reason));
      if (kind == VocabularyKind::characters && !tokens.empty() && token <= tokens.back())
        fail(item.offset, fmt::format("the token \"{}\" is out of order", text_in_message(token)));
      tokens.push_back(token);
    }
    return tokens;
  }

  std::vector<TokenPair> merges(const JsonValue& array) const {
    if (!array.numbers().empty()) fail(array.offset, "a merge is a number, not a pair");
    check_count(array, array.items().size(), 0, internal::kMaxTokens - internal::kNumBytes);
    std::vector<TokenPair> merges;
    std::vector<std::size_t> bytes(internal::kNumBytes, 1);  // of each token
    merges.reserve(array.items().size());
    bytes.reserve(bytes.size() + array.items().size());
    for (const JsonValue& item : array.items()) {
      const std::vector<double>& pair = item.numbers();
      if (pair.size() != 2) fail(item.offset, "a merge is not a pair of tokens");
      for (const double id : pair)
        if (!(id >= 0 && id < static_cast<double>(bytes.size())) || id != std::floor(id))
          fail(item.offset, fmt::format("a merge has token {}; expected 0 to {}", id, bytes.size() - 1));
      merges.push_back({static_cast<std::uint32_t>(pair[0]), static_cast<std::uint32_t>(pair[1])});
      bytes.push_back(bytes[merges.back().left] + bytes[merges.back().right]);
      if (bytes.back() > internal::kMaxWordBytes)
        fail(item.offset, fmt::format("a token has {} bytes; the limit is {}", bytes.back(), internal::kMaxWordBytes));
    }
    return merges;
  }

 private:
  const std::string& source_;
};

}  // namespace

Vocabulary Vocabulary::read(std::string_view json, const std::string& source, const std::stop_token& stop,
                            std::optional<std::uint64_t> max_memory_bytes) {
  const JsonValue root = read_json(json, source, kMaxVocabularyDepth, stop, max_memory_bytes);
  const VocabularyReader reader(source);
  const auto parts = std::make_shared<Parts>();
  parts->kind = reader.kind(root);
  const bool has_merges = parts->kind == VocabularyKind::byte_pairs;
  const JsonValue& list = reader.member(root, has_merges ? "merges" : "tokens", Kind::array);
  // A token, a merge and their entries in the tables. Long tokens have about as many bytes as the text.
  constexpr std::uint64_t kPerToken = 160;
  std::uint64_t needed = json.size() + kPerToken * list.items().size();
  if (max_memory_bytes) needed += json_memory_bytes(json, kMaxVocabularyDepth, stop);
  check_json_memory(source, needed, max_memory_bytes);
  if (has_merges) {
    parts->merges = reader.merges(list);
    parts->tokens = internal::byte_pair_tokens(parts->merges);
    parts->table = internal::MergeTable(parts->merges);
    if (const auto repeated = parts->table.first_repeated())
      reader.fail(list.items()[*repeated].offset, "a merge occurs twice");
  } else {
    parts->tokens = reader.tokens(list, parts->kind);
    parts->sorted = internal::sorted_ids(parts->tokens);
    for (std::size_t i = 1; i < parts->sorted.size(); ++i)
      if (const std::uint32_t id = parts->sorted[i]; parts->tokens[id] == parts->tokens[parts->sorted[i - 1]])
        reader.fail(list.items()[id].offset,
                    fmt::format("the token \"{}\" occurs twice", text_in_message(parts->tokens[id])));
  }
  return Vocabulary(parts);
}

std::string Vocabulary::json() const {
  JsonWriter json;
  json.begin_object();
  json.string("schema", kVocabularySchema);
  json.string("kind", kKinds[static_cast<std::size_t>(kind())]);
  if (kind() == VocabularyKind::byte_pairs) {
    json.name("merges");
    json.begin_array();
    for (const TokenPair pair : parts_->merges) {
      json.begin_array(JsonLayout::one_line);
      json.whole(pair.left);
      json.whole(pair.right);
      json.end_array();
    }
    json.end_array();
  } else {
    json.list("tokens", parts_->tokens);
  }
  json.end_object();
  return json.take();
}

}  // namespace regard::inline v0
