// SPDX-License-Identifier: Apache-2.0
//
// Reads tokenizer.json. A file is untrusted: anything unsupported is rejected with its name and offset.
//
//     model (vocab, unk_token, prefix) → added_tokens → ids 0 … n − 1, each once → normalizer, pre_tokenizer → template
//
// Read next: tokenizer.cpp.
#include "tokenizer_json.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <set>

#include "regard/error.h"
#include "regard/io/json.h"
#include "regard/io/sorted_names.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

using Kind = JsonValue::Kind;

constexpr Index kLargestDepth = 128;
// Bound the work per byte of text: pieces of a word are searched from each of its characters, and added tokens at each
// byte. BERT's words have at most 100 characters; real added tokens have a few bytes.
constexpr Index kMaxCharactersPerWord = 1000;
constexpr std::size_t kMaxAddedBytes = 256;
// Tokens added around every text: two in BERT's template. A file may repeat a long list of them, so the length of the
// file does not bound their number.
constexpr std::size_t kMaxTemplateTokens = 1024;

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 60;
  if (text.size() <= kShown) return fmt::format("\"{}\"", escape_for_terminal(text));
  return fmt::format("\"{}…\" ({} bytes)", escape_for_terminal(truncate_text(text, kShown)), text.size());
}

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "true or false";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "a string";
    case Kind::array:
      return "an array";
    default:
      return "an object";
  }
}

class Reader {
 public:
  Reader(const std::string& source, const TokenizerOptions& options, const std::stop_token& stop)
      : source_(source), options_(options), stop_(stop) {}

  TokenizerFile read(std::string_view json) {
    const JsonValue root = read_json(json, source_, kLargestDepth, stop_, options_.max_memory_bytes);
    if (root.kind() != Kind::object) fail(root, "a tokenizer must be an object");
    if (const JsonValue* version = root.find("version"))
      if (expect(*version, Kind::string, "version").text() != "1.0")
        fail(*version, fmt::format("version {} is not supported; expected 1.0", in_quotes(version->text())));
    check_memory(json, root);
    read_model(member(root, "model", Kind::object));
    read_added_tokens(root.find("added_tokens"));
    check_ids(root);
    read_normalizer(member(root, "normalizer", Kind::object));
    const JsonValue& pre_tokenizer = member(root, "pre_tokenizer", Kind::object);
    expect_type(pre_tokenizer, "pre_tokenizer", "BertPreTokenizer");
    check_normalized_contents();
    read_post_processor(root.find("post_processor"));
    sort_pieces();
    return std::move(file_);
  }

 private:
  // Checks the memory for the structures that are built from the tree.
  void check_memory(std::string_view json, const JsonValue& root) {
    const JsonValue* model = root.find("model");
    const JsonValue* vocab = model != nullptr ? model->find("vocab") : nullptr;
    const JsonValue* added = root.find("added_tokens");
    const std::size_t num_pieces = vocab != nullptr ? vocab->members().size() : 0;
    const std::size_t num_added = added != nullptr ? added->items().size() : 0;
    max_tokens_ = static_cast<Index>(num_pieces + num_added);

    // Tables by name and by id, the tokens themselves and tries of them (TokenTrie), all of which grow by doubling.
    constexpr std::uint64_t kPerToken = 352, kPerByte = 32, kPerAdded = 1024, kPerAddedByte = 64;
    std::uint64_t needed = kPerToken * (num_pieces + num_added) + kPerAdded * num_added;
    for (std::size_t i = 0; i < num_pieces; ++i) needed += kPerByte * vocab->members()[i].first.size();
    for (std::size_t i = 0; i < num_added; ++i) {
      if (const JsonValue* content = added->items()[i].find("content"))
        needed += kPerAddedByte * std::min(content->text().size(), kMaxAddedBytes);
    }
    if (options_.max_memory_bytes) needed += json_memory_bytes(json, kLargestDepth, stop_);
    check_json_memory(source_, needed, options_.max_memory_bytes);
  }

  void look() const { throw_if_stopped(stop_, "Tokenizer::read"); }

  [[noreturn]] void fail(const JsonValue& where, std::string_view what) const {
    throw DataError(fmt::format("{}: byte {}: {}", escape_for_terminal(source_), where.offset, what));
  }

  const JsonValue& expect(const JsonValue& value, Kind kind, std::string_view name) const {
    if (value.kind() != kind) fail(value, fmt::format("{} is {}, not {}", name, name_of(value.kind()), name_of(kind)));
    return value;
  }
  const JsonValue& member(const JsonValue& object, std::string_view name, Kind kind) const {
    const JsonValue* value = object.find(name);
    if (value == nullptr) fail(object, fmt::format("{} is missing", name));
    return expect(*value, kind, name);
  }
  bool flag(const JsonValue& object, std::string_view name) const {
    return member(object, name, Kind::boolean).boolean();
  }
  void expect_type(const JsonValue& object, std::string_view what, std::string_view supported) const {
    const std::string& type = member(object, "type", Kind::string).text();
    if (type != supported)
      fail(object, fmt::format("{} {} is not supported; expected {}", what, in_quotes(type), supported));
  }
  // name() is only called for an error: a vocabulary has many tokens.
  template <class Name>
  Index whole(const JsonValue& value, double number, const Name& name, Index limit) const {
    if (!(number >= 0 && number < static_cast<double>(limit)) || number != std::floor(number))
      fail(value, fmt::format("{} is {}; expected an integer from 0 to {}", name(), number, limit - 1));
    return static_cast<Index>(number);
  }
  Index id(const JsonValue& value, std::string_view of, const std::string& token) const {
    const auto name = [&] { return fmt::format("the id of {}{}", of, in_quotes(token)); };
    if (value.kind() != Kind::number) expect(value, Kind::number, name());
    return whole(value, value.number(), name, options_.max_tokens);
  }

  void read_model(const JsonValue& model) {
    // Files from before tokenizers 0.9 do not state the type; it is inferred from their members, as Hugging Face does.
    if (model.find("type") != nullptr)
      expect_type(model, "model", "WordPiece");
    else if (model.find("continuing_subword_prefix") == nullptr || model.find("merges") != nullptr)
      fail(model, "model has no type and is not WordPiece");
    const JsonValue& vocabulary = member(model, "vocab", Kind::object);
    if (vocabulary.members().empty()) fail(vocabulary, "vocab is empty");
    check_count(vocabulary, vocabulary.members().size());
    tokens_.resize(static_cast<std::size_t>(max_tokens_));
    const auto token_at = [&](std::size_t i) { return std::string_view(vocabulary.members()[i].first); };
    vocabulary_ = SortedNames(vocabulary.members().size(), token_at, "Tokenizer::read", stop_);
    file_.pieces.reserve(vocabulary.members().size());
    std::size_t longest = 0;
    for (const auto& [token, value] : vocabulary.members()) {
      look();
      check_token(value, token, "a token of vocab");
      longest = std::max(longest, token.size());
      const Index number = id(value, "", token);
      set(value, number, token);
      file_.pieces.push_back(number);
    }
    const JsonValue& prefix = member(model, "continuing_subword_prefix", Kind::string);
    if (prefix.text().size() > longest) fail(prefix, "continuing_subword_prefix is longer than every token");
    file_.continuing_prefix = prefix.text();
    const JsonValue& unknown = member(model, "unk_token", Kind::string);
    const auto found = id_in_vocabulary(unknown.text());
    if (!found) fail(unknown, fmt::format("unk_token {} is not in vocab", in_quotes(unknown.text())));
    file_.unknown = *found;
    const JsonValue& characters = member(model, "max_input_chars_per_word", Kind::number);
    file_.max_characters =
        whole(characters, characters.number(), [] { return "max_input_chars_per_word"; }, kMaxCharactersPerWord + 1);
    if (file_.max_characters == 0) fail(characters, "max_input_chars_per_word is 0: every word would be unknown");
  }

  void read_added_tokens(const JsonValue* added) {
    if (added == nullptr || added->kind() == Kind::null) return;
    expect(*added, Kind::array, "added_tokens");
    if (!added->numbers().empty()) fail(*added, "an added token is a number, not an object");
    check_count(*added, added->items().size());
    std::set<std::string_view> seen;
    for (const JsonValue& item : added->items()) {
      look();
      expect(item, Kind::object, "an added token");
      AddedToken token;
      const std::string& content = member(item, "content", Kind::string).text();
      token.content = content;
      check_token(item, token.content, "an added token");
      if (token.content.size() > kMaxAddedBytes)
        fail(item, fmt::format("the added token {} is longer than {} bytes", in_quotes(token.content), kMaxAddedBytes));
      if (!seen.insert(content).second)
        fail(item, fmt::format("the added token {} occurs twice", in_quotes(token.content)));
      const JsonValue* number = item.find("id");
      if (number == nullptr) fail(item, "id is missing");
      token.token = id(*number, "the added token ", token.content);
      token.single_word = flag(item, "single_word");
      token.lstrip = flag(item, "lstrip");
      token.rstrip = flag(item, "rstrip");
      token.normalized = flag(item, "normalized");
      const auto found = id_in_vocabulary(content);
      if (!found)
        set(*number, token.token, content);
      else if (*found != token.token)
        fail(*number, fmt::format("the added token {} has id {}, but vocab gives it {}", in_quotes(token.content),
                                  token.token, *found));
      file_.added.push_back(std::move(token));
      added_items_.push_back(item.offset);
    }
  }

  void check_count(const JsonValue& where, std::size_t count) const {
    if (count > static_cast<std::size_t>(options_.max_tokens))
      fail(where, fmt::format("{} tokens are more than the {} that TokenizerOptions::max_tokens allows", count,
                              options_.max_tokens));
  }
  void check_token(const JsonValue& where, const std::string& token, std::string_view what) const {
    if (token.empty()) fail(where, fmt::format("{} is empty", what));
    if (token.size() > static_cast<std::size_t>(options_.max_token_bytes))
      fail(where, fmt::format("{}, {}, is longer than the {} bytes that TokenizerOptions::max_token_bytes allows", what,
                              in_quotes(token), options_.max_token_bytes));
  }

  // The trie of pieces is built from them in this order.
  void sort_pieces() {
    std::vector<Index> sorted(file_.pieces.size());
    for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i] = file_.pieces[vocabulary_.position(i)];
    file_.pieces = std::move(sorted);
  }

  // The id of the piece with this token in vocab.
  std::optional<Index> id_in_vocabulary(std::string_view token) const {
    const std::optional<std::size_t> found = vocabulary_.find(token);
    if (!found) return std::nullopt;
    return file_.pieces[*found];
  }

  void set(const JsonValue& where, Index id, const std::string& token) {
    ++num_tokens_;
    std::string_view& found = id < max_tokens_ ? tokens_[static_cast<std::size_t>(id)] : tokens_beyond_[id];
    if (!found.empty()) fail(where, fmt::format("{} and {} both have id {}", in_quotes(found), in_quotes(token), id));
    found = token;
  }

  // An id beyond the number of tokens implies a missing id below it.
  void check_ids(const JsonValue& root) {
    file_.tokens.resize(static_cast<std::size_t>(num_tokens_));
    for (Index i = 0; i < num_tokens_; ++i) {
      look();
      const std::string_view token = tokens_[static_cast<std::size_t>(i)];
      if (token.empty())
        fail(root,
             fmt::format("no token has id {}: the ids of {} tokens run from 0 to {}", i, num_tokens_, num_tokens_ - 1));
      file_.tokens[static_cast<std::size_t>(i)] = token;
    }
  }

  void read_normalizer(const JsonValue& normalizer) {
    expect_type(normalizer, "normalizer", "BertNormalizer");
    BertNormalizer& rules = file_.normalizer;
    rules.clean_text = flag(normalizer, "clean_text");
    rules.handle_chinese_chars = flag(normalizer, "handle_chinese_chars");
    rules.lowercase = flag(normalizer, "lowercase");
    const JsonValue* accents = normalizer.find("strip_accents");
    if (accents == nullptr || accents->kind() == Kind::null)
      rules.strip_accents = rules.lowercase;
    else
      rules.strip_accents = flag(normalizer, "strip_accents");
  }

  void check_normalized_contents() const {
    std::map<std::string, std::size_t> seen;
    for (std::size_t i = 0; i < file_.added.size(); ++i) {
      const AddedToken& token = file_.added[i];
      if (!token.normalized) continue;
      NormalizedText content;
      file_.normalizer.normalize(token.content, 0, content, stop_);
      JsonValue where;
      where.offset = added_items_[i];
      if (content.bytes.empty())
        fail(where, fmt::format("the added token {} is empty after normalization", in_quotes(token.content)));
      const auto [found, is_new] = seen.try_emplace(content.bytes, i);
      if (!is_new)
        fail(where, fmt::format("the added tokens {} and {} are the same after normalization",
                                in_quotes(file_.added[found->second].content), in_quotes(token.content)));
    }
  }

  void read_post_processor(const JsonValue* post_processor) {
    if (post_processor == nullptr || post_processor->kind() == Kind::null) return;
    expect(*post_processor, Kind::object, "post_processor");
    const std::string& type = member(*post_processor, "type", Kind::string).text();
    if (type == "TemplateProcessing")
      read_template(*post_processor);
    else if (type == "BertProcessing")
      read_bert_processing(*post_processor);
    else
      fail(*post_processor,
           fmt::format("post_processor {} is not supported; expected TemplateProcessing or BertProcessing",
                       in_quotes(type)));
  }

  // {"single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, …],
  //  "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [101], "tokens": ["[CLS]"]}, …}, "pair": …}
  void read_template(const JsonValue& processor) {
    const JsonValue& single = member(processor, "single", Kind::array);
    const JsonValue& specials = member(processor, "special_tokens", Kind::object);
    if (!single.numbers().empty()) fail(single, "single contains numbers");
    const auto name_at = [&](std::size_t i) { return std::string_view(specials.members()[i].first); };
    const SortedNames names(specials.members().size(), name_at, "Tokenizer::read", stop_);
    bool text_seen = false;
    for (const JsonValue& piece : single.items()) {
      look();
      expect(piece, Kind::object, "a piece of single");
      if (piece.members().size() != 1) fail(piece, "a piece of single has one member, SpecialToken or Sequence");
      const auto& [kind, value] = piece.members().front();
      expect(value, Kind::object, kind == "Sequence" ? "Sequence" : "SpecialToken");
      const JsonValue& id = member(value, "id", Kind::string);
      if (member(value, "type_id", Kind::number).number() != 0) fail(value, "single has a type_id other than 0");
      if (kind == "Sequence") {
        if (id.text() != "A" || text_seen)
          fail(value, "single must contain sequence A exactly once and no other sequence");
        text_seen = true;
      } else if (kind == "SpecialToken") {
        const std::optional<std::size_t> found = names.find(id.text());
        if (!found) fail(id, fmt::format("special_tokens does not contain {}", in_quotes(id.text())));
        const JsonValue& special = specials.members()[*found].second;
        read_special(expect(special, Kind::object, "a special token"), text_seen ? file_.after : file_.before);
        if (file_.before.size() + file_.after.size() > kMaxTemplateTokens)
          fail(single, fmt::format("single adds more than {} tokens around a text", kMaxTemplateTokens));
      } else {
        fail(piece, fmt::format("a piece of single is {}, not SpecialToken or Sequence", in_quotes(kind)));
      }
    }
    if (!text_seen) fail(single, "single must contain sequence A exactly once and no other sequence");
  }

  void read_special(const JsonValue& special, std::vector<Index>& to) const {
    const JsonValue& ids = member(special, "ids", Kind::array);
    const JsonValue& tokens = member(special, "tokens", Kind::array);
    if (ids.numbers().size() != tokens.items().size() || !ids.items().empty() || !tokens.numbers().empty())
      fail(special, "a special token must have as many numeric ids as string tokens");
    if (ids.numbers().size() > kMaxTemplateTokens)
      fail(special, fmt::format("a special token has more than {} ids", kMaxTemplateTokens));
    for (std::size_t i = 0; i < ids.numbers().size(); ++i)
      to.push_back(check_agreement(tokens.items()[i], ids, ids.numbers()[i]));
  }

  // {"sep": ["[SEP]", 102], "cls": ["[CLS]", 101]}
  void read_bert_processing(const JsonValue& processor) {
    for (const std::string_view name : {"cls", "sep"}) {
      const JsonValue& pair = member(processor, name, Kind::array);
      if (pair.items().size() != 2) fail(pair, fmt::format("{} must be a token and its id", name));
      const JsonValue& number = expect(pair.items()[1], Kind::number, "an id of post_processor");
      const Index token = check_agreement(pair.items()[0], number, number.number());
      (name == "cls" ? file_.before : file_.after).push_back(token);
    }
  }

  Index check_agreement(const JsonValue& token, const JsonValue& where, double number) const {
    expect(token, Kind::string, "a token of post_processor");
    const Index id = whole(
        where, number, [&] { return fmt::format("the id of post_processor's {}", in_quotes(token.text())); },
        static_cast<Index>(file_.tokens.size()));
    const std::string& known = file_.tokens[static_cast<std::size_t>(id)];
    if (known != token.text())
      fail(where,
           fmt::format("post_processor gives {} id {}, which is {}", in_quotes(token.text()), id, in_quotes(known)));
    return id;
  }

  const std::string& source_;
  const TokenizerOptions& options_;
  const std::stop_token& stop_;
  TokenizerFile file_;
  // Views of the tokens in the tree that read() holds; no token is empty.
  SortedNames vocabulary_;                // the indices of its members
  Index max_tokens_ = 0;                  // the number of tokens named in the file
  std::vector<std::string_view> tokens_;  // those with ids below max_tokens_, by id
  std::map<Index, std::string_view> tokens_beyond_;
  Index num_tokens_ = 0;
  std::vector<std::size_t> added_items_;  // the offsets of file_.added in the text
};

}  // namespace

TokenizerFile read_tokenizer_file(std::string_view json, const std::string& source, const TokenizerOptions& options,
                                  const std::stop_token& stop) {
  return Reader(source, options, stop).read(json);
}

}  // namespace regard::inline v0
