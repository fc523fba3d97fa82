// SPDX-License-Identifier: Apache-2.0
//
// `regard embed < lines`: a vector for each line, as in sentence-transformers: mean over tokens, L2 norm 1.
//
//     lines ── for_each_line_vector ──▶ CSV or JSON, batch by batch; NPY at the end, since its header has the count
//
// With --shard, the lines are those of one shard of a file, and a record is written next to its vectors.
//
// Read next: line_vectors.h, shard_record.h, docs/guide/sentence-vectors.md.
#include <fmt/format.h>

#include <memory>

#include "line_vectors.h"
#include "model_options.h"
#include "program.h"
#include "regard/io/json_writer.h"
#include "regard/io/npy.h"
#include "regard/io/sha256.h"
#include "regard/io/utf8.h"
#include "shard_record.h"

namespace regard::program {
namespace {

struct EmbedArguments {
  std::string input, output, format, shard;
  ModelArguments model;
};

enum class Format { csv, json, npy };

Format format_of(const EmbedArguments& arguments) {
  const auto named = [](std::string_view name) -> std::optional<Format> {
    if (name == "csv") return Format::csv;
    if (name == "json") return Format::json;
    if (name == "npy") return Format::npy;
    return std::nullopt;
  };
  if (!arguments.format.empty()) {
    if (const auto format = named(arguments.format)) return *format;
    reject_value("--format", arguments.format, "npy, json or csv");
  }
  if (arguments.output.empty() || arguments.output == "-") return Format::csv;
  const std::size_t point = arguments.output.rfind('.');
  if (point != std::string::npos) {
    if (const auto format = named(std::string_view(arguments.output).substr(point + 1))) return *format;
  }
  throw UsageError("--output " + arguments.output + " does not end in .npy, .json or .csv; add --format");
}

void append_numbers(std::string& text, std::span<const float> vector) {
  for (std::size_t e = 0; e < vector.size(); ++e) {
    fmt::format_to(std::back_inserter(text), "{}{}", e == 0 ? "" : ",", vector[e]);
  }
}

// Writes the vectors in one of the formats, with the text before and after them.
class VectorWriter {
 public:
  // sum: receives the bytes that are written, unless it is null.
  VectorWriter(Format format, const SentenceModel& model, OutputFiles& files, std::size_t file, Sha256* sum)
      : format_(format), width_(model.encoder.config.width), files_(files), file_(file), sum_(sum) {
    if (format != Format::json) return;
    json_.begin_object();
    json_.source(command_line());
    write_model(json_, model);
    json_.name("lines");
    json_.begin_array();
  }

  void add(const LineVectors& lines) {
    std::string text;
    for (std::size_t i = 0; i < lines.texts.size(); ++i) {
      const std::span<const float> vector = lines.vector(i);
      if (format_ == Format::npy) {
        waiting_.insert(waiting_.end(), vector.begin(), vector.end());
      } else if (format_ == Format::csv) {
        append_numbers(text, vector);
        text += '\n';
      } else {
        json_.begin_object(JsonLayout::one_line);
        json_.whole("line", lines.first_line + static_cast<Index>(i));
        json_.list("token_ids", lines.ids[i], JsonLayout::compact);
        json_.list("vector", vector, JsonLayout::compact);
        json_.end_object();
      }
    }
    count_ += static_cast<Index>(lines.texts.size());
    write(format_ == Format::json ? json_.take_part() : text);
  }

  void finish() {
    if (format_ == Format::json) {
      json_.end_array();
      json_.end_object();
      write(json_.take());
    }
    if (format_ != Format::npy) return;
    write(npy_header(ElementType::float32, std::array{count_, width_}));
    write({reinterpret_cast<const char*>(waiting_.data()), waiting_.size() * sizeof(float)});
  }

  Index num_lines() const { return count_; }

 private:
  void write(std::string_view bytes) {
    files_.write(file_, bytes.data(), bytes.size());
    if (sum_ != nullptr) sum_->add(std::as_bytes(std::span(bytes)));
  }

  Format format_;
  Index width_;
  OutputFiles& files_;
  std::size_t file_;
  Sha256* sum_;
  JsonWriter json_{{.float32 = true}};
  Index count_ = 0;
  std::vector<float> waiting_;
};

void write_vectors(const EmbedArguments& arguments, const SentenceModel& model, TextLines& lines,
                   VectorWriter& writer) {
  for_each_line_vector(model, lines, EmptyLines::keep, arguments.model.truncate, "embed",
                       [&](const LineVectors& batch) { writer.add(batch); });
  writer.finish();
}

void embed_shard(const EmbedArguments& arguments, Format format) {
  const Shard shard = parse_shard(arguments.shard);
  if (arguments.input.empty() || arguments.input == "-")
    throw UsageError("--shard needs --input FILE: a shard of standard input cannot be read");
  if (arguments.output.empty() || arguments.output == "-")
    throw UsageError("--shard needs --output FILE; the shard files are named after it");
  if (format == Format::json)
    throw UsageError("--shard writes npy or csv; a JSON document cannot be joined from shards");
  const std::string vectors = shard_path(arguments.output, shard);
  const std::string record_file = shard_record_path(arguments.output, shard);
  check_paths({{"--input", arguments.input}},
              {{"--output", arguments.output}, {"--output", vectors}, {"--output", record_file}});
  const SentenceModel model = load_encoder_model(arguments.model, "embed");
  TextLines lines(arguments.input, shard);
  ShardRecord record =
      shard_settings(format == Format::npy ? "npy" : "csv", model, arguments.model.truncate, *lines.shard());
  if (is_complete_shard(arguments.output, record)) {
    fmt::print(stderr, "regard: {} is complete and is not recomputed\n", escape_for_terminal(vectors));
    return;
  }
  OutputFiles files;
  const std::size_t file = files.add(vectors, OutputFiles::Remains::removed);
  const std::size_t last_file = files.add(record_file, OutputFiles::Remains::removed);
  Sha256 sum;
  VectorWriter writer(format, model, files, file, &sum);
  write_vectors(arguments, model, lines, writer);
  record.num_lines = writer.num_lines();
  record.vectors_sha256 = sum.finish();
  const std::string text = shard_record_json(record);
  files.write(last_file, text.data(), text.size());
  files.commit();
}

void embed(const EmbedArguments& arguments) {
  const Format format = format_of(arguments);
  if (!arguments.shard.empty()) return embed_shard(arguments, format);
  const std::string output = arguments.output.empty() ? "-" : arguments.output;
  if (format == Format::npy && output == "-" && writes_to_terminal())
    throw UsageError("--format npy would write binary data to the terminal; give --output FILE.npy, or --format csv");
  if (arguments.input.empty() && reads_from_terminal())
    throw UsageError("no text is given; give --input FILE, or one text per line on standard input");
  const std::string input = arguments.input.empty() ? "-" : arguments.input;
  check_paths({{"--input", input}}, {{"--output", output}});
  TextLines lines(input);
  OutputFiles files;
  const SentenceModel model = load_encoder_model(arguments.model, "embed");
  VectorWriter writer(format, model, files, files.add(output), nullptr);
  write_vectors(arguments, model, lines, writer);
  files.commit();
}

}  // namespace

void add_embed(CLI::App& app) {
  auto arguments = std::make_shared<EmbedArguments>();
  CLI::App* command = app.add_subcommand("embed", "Compute an embedding (sentence vector) for each line of a text");
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help) {
    command->add_option(name, value, help)->type_name(type);
  };
  add("--input", arguments->input, "FILE", "file with one text per line (default: -, standard\ninput)");
  add("-o,--output", arguments->output, "FILE", "output file, written atomically (default: -,\nstandard output)");
  add("--format", arguments->format, "npy|json|csv",
      "output format (default: the extension of the output\nfile; csv on standard output)");
  add("--shard", arguments->shard, "I/N",
      "compute only shard I of the N shards of the input\nlines, numbered from 0, and write it next to the\n"
      "output file; regard join then combines the shards.\nComplete shards are not recomputed");
  add_model_options(*command, arguments->model);
  command->footer(
      "EXAMPLES\n"
      "  regard embed < sentences.txt > vectors.csv\n"
      "  regard embed --input sentences.txt --output vectors.npy\n"
      "  regard embed --input sentences.txt --output vectors.npy --shard 3/16\n"
      "\n"
      "Row n of the output corresponds to line n, even if that line is empty.\n"
      "docs/guide/sentence-vectors.md gives the formula.");
  command->callback([arguments] { embed(*arguments); });
}

}  // namespace regard::program
