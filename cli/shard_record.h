// SPDX-License-Identifier: Apache-2.0
//
// The record of a shard of `regard embed`: what its vectors were computed from, and how. With it, a finished shard is
// not computed again, and `regard join` rejects shards that do not belong together.
//
//     OUTPUT.shard-3-of-16         the vectors of its lines, as NPY or CSV
//     OUTPUT.shard-3-of-16.json    the record, renamed into place last, with the SHA-256 of the vectors
//
// Read next: embed.cpp, join.cpp.
#pragma once

#include <optional>
#include <string>

#include "model_options.h"
#include "text_shard.h"

namespace regard::program {

std::string shard_path(const std::string& output, const Shard& shard);
std::string shard_record_path(const std::string& output, const Shard& shard);

struct ShardRecord {
  std::string version, instruction_set;
  std::string format;  // "npy" or "csv"
  std::string model_sha256, config_sha256, tokenizer_sha256;
  Index width = 0;
  bool truncate = false;
  TextShard text;
  Index num_lines = 0;  // this and the next are known when the shard is complete
  std::string vectors_sha256{};
};

// What determines the vectors of a shard.
ShardRecord shard_settings(const std::string& format, const SentenceModel& model, bool truncate, const TextShard& text);

std::string shard_record_json(const ShardRecord& record);
// Throws std::runtime_error naming the path if there is no such file or if it is not a record.
ShardRecord read_shard_record(const std::string& path);

// How a shard was made differently from another one, so that their vectors do not belong together; empty if they do.
// "from a different input than", to be followed by the name of the other shard.
std::string shard_difference(const ShardRecord& shard, const ShardRecord& other);

// Whether the shard of an output is complete, with these settings and unchanged vectors.
bool is_complete_shard(const std::string& output, const ShardRecord& settings);

}  // namespace regard::program
