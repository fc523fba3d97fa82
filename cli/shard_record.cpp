// SPDX-License-Identifier: Apache-2.0
//
// Writes, reads and compares the records of shards; see shard_record.h.
// Read next: join.cpp.
#include "shard_record.h"

#include <fmt/format.h>

#include "regard/io/json.h"
#include "regard/io/sha256.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxModelTextBytes = std::uint64_t{64} << 20;
constexpr double kMaxWhole = 9007199254740992;  // 2^53

std::string text_sha256(const std::string& path) {
  const std::string text = read_text(path, kMaxModelTextBytes);
  return sha256(std::as_bytes(std::span(text)));
}

std::string file_sha256(const std::string& path) {
  const InputFile file = open_input(path);
  Sha256 sum;
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (std::size_t count; (count = file.source(piece)) > 0;) sum.add(std::span(piece).first(count));
  return sum.finish();
}

// Reads members of a record.
class RecordReader {
 public:
  RecordReader(const JsonValue& root, const std::string& path) : root_(root), path_(path) {}

  const std::string& text(const char* object, const char* name) const {
    return member(object, name, JsonValue::Kind::string).text();
  }
  Index whole(const char* object, const char* name) const {
    const double number = member(object, name, JsonValue::Kind::number).number();
    if (!(number >= 0 && number <= kMaxWhole) || number != static_cast<double>(static_cast<Index>(number))) fail(name);
    return static_cast<Index>(number);
  }
  bool truth(const char* name) const { return member("", name, JsonValue::Kind::boolean).boolean(); }

 private:
  const JsonValue& member(std::string_view object, const char* name, JsonValue::Kind kind) const {
    const JsonValue* in = object.empty() ? &root_ : root_.find(object);
    const JsonValue* found = in == nullptr ? nullptr : in->find(name);
    if (found == nullptr || found->kind() != kind) fail(name);
    return *found;
  }
  [[noreturn]] void fail(const char* name) const {
    throw std::runtime_error(
        fmt::format("{}: is not the record of a shard: \"{}\" is missing or invalid", path_, name));
  }

  const JsonValue& root_;
  const std::string& path_;
};

bool has_fused_multiply_add(const ShardRecord& record) { return record.instruction_set != "generic"; }

}  // namespace

std::string shard_path(const std::string& output, const Shard& shard) {
  return fmt::format("{}.shard-{}-of-{}", output, shard.index, shard.count);
}

std::string shard_record_path(const std::string& output, const Shard& shard) {
  return shard_path(output, shard) + ".json";
}

ShardRecord shard_settings(const std::string& format, const SentenceModel& model, bool truncate,
                           const TextShard& text) {
  return {.version = std::string(version()),
          .instruction_set = active_instruction_set(),
          .format = format,
          .model_sha256 = model.sha256(),
          .config_sha256 = text_sha256(model.folder + "/config.json"),
          .tokenizer_sha256 = text_sha256(model.folder + "/tokenizer.json"),
          .width = model.encoder.config.width,
          .truncate = truncate,
          .text = text};
}

std::string shard_record_json(const ShardRecord& record) {
  JsonWriter json;
  json.begin_object();
  json.source(command_line());
  json.string("format", record.format);
  json.name("model");
  json.begin_object();
  json.string("sha256", record.model_sha256);
  json.string("config_sha256", record.config_sha256);
  json.string("tokenizer_sha256", record.tokenizer_sha256);
  json.whole("width", record.width);
  json.end_object();
  json.boolean("truncate", record.truncate);
  json.name("input");
  json.begin_object();
  json.whole("bytes", record.text.file_bytes);
  json.string("sha256", record.text.file_sha256);
  json.end_object();
  json.name("shard");
  json.begin_object();
  json.whole("index", record.text.shard.index);
  json.whole("count", record.text.shard.count);
  json.whole("first_byte", record.text.first_byte);
  json.whole("end_byte", record.text.end_byte);
  json.whole("first_line", record.text.first_line);
  json.end_object();
  json.name("vectors");
  json.begin_object();
  json.whole("lines", record.num_lines);
  json.string("sha256", record.vectors_sha256);
  json.end_object();
  json.end_object();
  return json.take();
}

ShardRecord read_shard_record(const std::string& path) {
  const JsonValue root = read_json(read_text(path, kMaxRecordBytes), path);
  const RecordReader in(root, path);
  return {.version = in.text("", "version"),
          .instruction_set = in.text("", "instruction_set"),
          .format = in.text("", "format"),
          .model_sha256 = in.text("model", "sha256"),
          .config_sha256 = in.text("model", "config_sha256"),
          .tokenizer_sha256 = in.text("model", "tokenizer_sha256"),
          .width = in.whole("model", "width"),
          .truncate = in.truth("truncate"),
          .text = {.shard = {.index = in.whole("shard", "index"), .count = in.whole("shard", "count")},
                   .first_byte = in.whole("shard", "first_byte"),
                   .end_byte = in.whole("shard", "end_byte"),
                   .first_line = in.whole("shard", "first_line"),
                   .file_bytes = in.whole("input", "bytes"),
                   .file_sha256 = in.text("input", "sha256")},
          .num_lines = in.whole("vectors", "lines"),
          .vectors_sha256 = in.text("vectors", "sha256")};
}

std::string shard_difference(const ShardRecord& shard, const ShardRecord& other) {
  if (shard.text.file_bytes != other.text.file_bytes || shard.text.file_sha256 != other.text.file_sha256)
    return "from a different input than";
  if (shard.model_sha256 != other.model_sha256 || shard.config_sha256 != other.config_sha256 ||
      shard.tokenizer_sha256 != other.tokenizer_sha256 || shard.width != other.width)
    return "with a different model than";
  if (shard.truncate != other.truncate)
    return shard.truncate ? "with --truncate, unlike" : "without --truncate, unlike";
  if (shard.format != other.format) return "in a different format than";
  if (shard.version != other.version) return "by a different version of regard than";
  // The other instruction sets give the same bits.
  if (has_fused_multiply_add(shard) != has_fused_multiply_add(other))
    return fmt::format("with instruction set {}, which rounds differently from {}, unlike", shard.instruction_set,
                       other.instruction_set);
  return "";
}

bool is_complete_shard(const std::string& output, const ShardRecord& settings) {
  const Shard& shard = settings.text.shard;
  try {
    const ShardRecord record = read_shard_record(shard_record_path(output, shard));
    return shard_difference(record, settings).empty() && record.text.shard.index == shard.index &&
           record.text.shard.count == shard.count && file_sha256(shard_path(output, shard)) == record.vectors_sha256;
  } catch (const std::runtime_error&) {
    return false;  // not there, or damaged
  }
}

}  // namespace regard::program
