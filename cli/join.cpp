// SPDX-License-Identifier: Apache-2.0
//
// `regard join OUTPUT`: the output of `regard embed`, from the shards that `regard embed --shard` has written.
//
//     names in the folder ── are all there? ── records ── do they belong together? ── header of the whole,
//     then the rows of each shard, whose SHA-256 is compared ── rename
//
// Read next: shard_record.h, docs/guide/many-documents.md.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "program.h"
#include "progress.h"
#include "regard/io/npy.h"
#include "regard/io/sha256.h"
#include "shard_record.h"

namespace regard::program {
namespace {

// The numbers N for which the folder has a file OUTPUT.shard-I-of-N.
std::set<Index> shard_counts(const std::string& output) {
  const std::filesystem::path path(output);
  const std::string name = path.filename().string();
  std::set<Index> counts;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path.parent_path().empty() ? "." : path.parent_path(), error), end;
       !error && entry != end; entry.increment(error)) {
    const std::string found = entry->path().filename().string();
    const std::size_t of = found.rfind("-of-");
    if (!found.starts_with(name + ".shard-") || of == std::string::npos || of < name.size()) continue;
    try {
      const Shard shard = parse_shard(found.substr(name.size() + 7, of - name.size() - 7) + "/" + found.substr(of + 4));
      if (shard_path(name, shard) == found) counts.insert(shard.count);
    } catch (const UsageError&) {
      continue;  // such as the record of a shard
    }
  }
  return counts;
}

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

Index count_of_shards(const std::string& output) {
  const std::set<Index> counts = shard_counts(output);
  if (counts.empty()) {
    throw std::runtime_error(
        fmt::format("{}: has no shards; expected {}, written by regard embed --shard 0/N --output {}, and so on",
                    output, output + ".shard-0-of-N", output));
  }
  if (counts.size() > 1) {
    throw std::runtime_error(fmt::format("{}: has shards of {} and of {}; remove the unwanted ones", output,
                                         *counts.begin(), *std::next(counts.begin())));
  }
  return *counts.begin();
}

// "3, 5 and 9"; after 20 of them, "…".
std::string numbers_text(const std::vector<Index>& numbers) {
  constexpr std::size_t kMaxShown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(numbers.size(), kMaxShown); ++i) {
    const bool last = i + 1 == numbers.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", numbers[i]);
  }
  return numbers.size() > kMaxShown ? text + ", …" : text;
}

// Throws std::runtime_error that names the first shard that is missing or does not belong to the others.
std::vector<ShardRecord> read_records(const std::string& output) {
  const Index count = count_of_shards(output);
  std::vector<Index> missing;
  for (Index i = 0; i < count; ++i) {
    const Shard shard{i, count};
    if (!is_file(shard_path(output, shard)) || !is_file(shard_record_path(output, shard))) missing.push_back(i);
  }
  if (!missing.empty()) {
    throw std::runtime_error(fmt::format("{}: {} {} of {} {} missing; run regard embed --shard {}/{} first", output,
                                         missing.size() == 1 ? "shard" : "shards", numbers_text(missing), count,
                                         missing.size() == 1 ? "is" : "are", missing.front(), count));
  }
  std::vector<ShardRecord> records;
  for (Index i = 0; i < count; ++i) {
    const Shard shard{i, count};
    const std::string path = shard_record_path(output, shard);
    const ShardRecord& record = records.emplace_back(read_shard_record(path));
    if (const std::string difference = shard_difference(record, records.front()); !difference.empty()) {
      throw std::runtime_error(fmt::format("{} was made {} {}; run regard embed again for the one that is out of date",
                                           shard_path(output, shard), difference, shard_path(output, {0, count})));
    }
    const TextShard& text = record.text;
    const Index begin = i == 0 ? 0 : records[static_cast<std::size_t>(i) - 1].text.end_byte;
    if (text.shard.index != i || text.shard.count != count || text.first_byte != begin || text.end_byte < begin ||
        (i + 1 == count && text.end_byte != text.file_bytes)) {
      throw std::runtime_error(path + ": is not the record of this shard; a file may have been renamed");
    }
  }
  return records;
}

// Copies the rows of a shard, without its NPY header.
void copy_shard(const std::string& path, const ShardRecord& record, OutputFiles& files, std::size_t file) {
  const auto fail = [&] {
    throw std::runtime_error(
        path + ": differs from its record: it was damaged, or copied incompletely; remove it and " +
        fmt::format("run regard embed --shard {}/{} again", record.text.shard.index, record.text.shard.count));
  };
  const InputFile in = open_input(path);
  Sha256 sum;
  if (record.format == "npy") {
    const std::string header = npy_header(ElementType::float32, std::array{record.num_lines, record.width});
    std::string found(header.size(), '\0');
    found.resize(in.source(std::as_writable_bytes(std::span(found))));
    if (found != header) fail();
    sum.add(std::as_bytes(std::span(found)));
  }
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (std::size_t count; (count = in.source(piece)) > 0;) {
    sum.add(std::span(piece).first(count));
    files.write(file, piece.data(), count);
  }
  if (sum.finish() != record.vectors_sha256) fail();
}

void join(const std::string& output) {
  if (output.empty()) throw UsageError("missing output file; give the --output file of regard embed --shard");
  if (output == "-") throw UsageError("the output is -; give the --output file of regard embed --shard");
  const std::vector<ShardRecord> records = read_records(output);
  OutputFiles files;
  const std::size_t file = files.add(output);
  if (records.front().format == "npy") {
    Index num_lines = 0;
    for (const ShardRecord& record : records) num_lines += record.num_lines;
    const std::string header = npy_header(ElementType::float32, std::array{num_lines, records.front().width});
    files.write(file, header.data(), header.size());
  }
  Progress progress("join");
  for (std::size_t i = 0; i < records.size(); ++i) {
    copy_shard(shard_path(output, records[i].text.shard), records[i], files, file);
    progress.update(static_cast<Index>(i) + 1, static_cast<Index>(records.size()));
  }
  files.commit();
}

}  // namespace

void add_join(CLI::App& app) {
  auto output = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("join", "Join the shards written by regard embed into one file");
  command->add_option("output", *output, "the --output file given with every --shard")->type_name("FILE");
  command->footer(
      "EXAMPLES\n"
      "  regard embed --input sentences.txt --output vectors.npy --shard 0/2\n"
      "  regard embed --input sentences.txt --output vectors.npy --shard 1/2\n"
      "  regard join vectors.npy\n"
      "\n"
      "The file is byte-identical to the output of a run without --shard. No file is\n"
      "written if a shard is missing or damaged, or was computed with a different\n"
      "input, model or options. The shards are kept. docs/guide/many-documents.md\n"
      "shows how to compute them on several machines.");
  command->callback([output] { join(*output); });
}

}  // namespace regard::program
