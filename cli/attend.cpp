// SPDX-License-Identifier: Apache-2.0
//
// `regard attend`: attention on NPY files. The options have the same names as in the library.
//
//     parse the command line                  errors are UsageErrors
//     open every input, check type and shape  only headers are read
//     compare the memory needed with the memory available
//     read, compute, write under temporary names, rename all files
//                                             with --html the page is one of the files
//
// Ranks 2 (L, D), 3 (H, L, D) and 4 (B, H, L, D) are views of rank 4; outputs have the rank of the query.
// Read next: attend_options.h (the text of the options), attend_inputs.h (the arrays), regard/attention.h.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>

#include "attend_inputs.h"
#include "attend_inspect.h"
#include "attend_options.h"
#include "program.h"
#include "progress.h"
#include "regard/attention.h"
#include "regard/explain/attention_html.h"
#include "regard/io/json_writer.h"
#include "regard/io/npy.h"
#include "regard/io/utf8.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

// ---- the call

// The options of the library, and the memory that they refer to.
template <class T>
struct Options {
  AttentionOptions options;
  std::map<std::string, NpyArray> arrays;
  std::map<std::string, std::vector<Index>> indices;
  std::map<std::string, std::vector<T>> per_head;
  Tensor<std::int32_t, 2> query_segments, key_segments;
};

template <class T>
void read_options(const AttendSettings& settings, Inputs& inputs, Options<T>& o) {
  AttentionOptions& options = o.options;
  options.causal = settings.causal;
  options.window = settings.window;
  options.soft_cap = settings.soft_cap;
  options.scale = settings.scale;
  options.block_size = settings.block_size;
  if (settings.alignment) options.query_offset = *settings.alignment;
  if (settings.offset) options.query_offset = *settings.offset;

  const auto array = [&](const char* option) -> const NpyArray* {
    Input* input = inputs.find(option);
    return input ? &o.arrays.emplace(option, input->file.read()).first->second : nullptr;
  };
  const auto list = [&]<class N>(const char* option, std::map<std::string, std::vector<N>>& owner, InputView<1>& to) {
    if (const NpyArray* a = array(option)) {
      to = owner[option] = numbers_of<N>(*a);
      // To the library, an empty list means that the option is not given.
      if (to.empty()) reject(inputs.at(option).file, option, "is empty");
    }
  };
  InputView<1> offsets;
  list("--query-offset", o.indices, offsets);
  if (!offsets.empty()) options.query_offset = offsets;
  list("--key-lengths", o.indices, options.key_lengths);
  list("--query-starts", o.indices, options.query_starts);
  list("--key-starts", o.indices, options.key_starts);
  list("--prefix", o.indices, options.prefix);
  list("--alibi-slopes", o.per_head, options.alibi_slopes);
  list("--sinks", o.per_head, options.sinks);
  const auto segments = [&](const char* option, Tensor<std::int32_t, 2>& owner, InputView<2>& to) {
    if (const NpyArray* a = array(option)) {
      owner = segments_of(inputs.at(option), *a);
      to = owner;
    }
  };
  segments("--query-segments", o.query_segments, options.query_segments);
  segments("--key-segments", o.key_segments, options.key_segments);
  if (const NpyArray* a = array("--block-mask")) options.block_mask = view_of<bool, 4>(*a);
  if (const NpyArray* a = array("--mask")) options.mask = view_of<bool, 4>(*a);
  if (const NpyArray* a = array("--bias")) {
    if (a->type == ElementType::float32) {
      options.bias = view_of<float, 4>(*a);
    } else {
      options.bias = view_of<double, 4>(*a);
    }
  }
}

// ---- memory

struct Extents {
  Index batch, heads, key_heads, queries, keys, depth, columns, weight_rows;
  std::array<Index, 2> cells;  // of the pooled map, with --inspect
};

Extents extents_of(Inputs& inputs, const AttendText& text, const AttendSettings& settings) {
  const std::array<Index, 4> q = inputs.shape4("--query");
  const std::array<Index, 4> k = inputs.shape4("--key");
  Index rows = q[2];
  if (!settings.rows.empty()) {
    rows = 0;
    for (const RowRange& range : settings.rows) {
      if (range.end > q[2]) {
        throw std::invalid_argument("--rows " + std::to_string(range.begin) + ":" + std::to_string(range.end) +
                                    " goes beyond the " + std::to_string(q[2]) + " rows of --query; rows count from 0");
      }
      if (__builtin_add_overflow(rows, range.end - range.begin, &rows)) throw std::bad_alloc();
    }
  }
  const auto cells = text.inspect ? inspect_cells(settings.inspect, q, k) : std::array<Index, 2>{};
  return {q[0], q[1], k[1], q[2], k[2], q[3], inputs.shape4("--value")[3], rows, cells};
}

// The size of the page; 0 without --html, and if it has only an inspection. Throws std::runtime_error if it would be
// too large.
double page_bytes(Inputs& inputs, const AttendText& text, const AttendSettings& settings) {
  if (text.html.empty()) return 0;
  const auto bytes = [&](const std::vector<RowRange>& rows) {
    const auto count = inputs.at("--query").file.type() == ElementType::float32 ? attention_html_bytes<float>
                                                                                : attention_html_bytes<double>;
    return count(inputs.shape4("--query"), inputs.shape4("--key"), inputs.shape4("--value"), rows,
                 !text.bias.empty() || !text.alibi_slopes.empty());
  };
  const double needed = bytes(settings.rows);
  if (text.inspect && settings.rows.empty() && needed > kMaxAttentionHtmlBytes) return 0;
  if (needed > kMaxAttentionHtmlBytes) {
    const auto size = [](double n) { return bytes_text(static_cast<std::uint64_t>(std::min(n, 0x1p62))); };
    const bool rows_help = bytes({{0, 1}}) <= kMaxAttentionHtmlBytes;
    throw std::runtime_error("--html: the page would take " + size(needed) + ", but the limit is " +
                             size(kMaxAttentionHtmlBytes) +
                             (rows_help ? "; choose rows with --rows A:B" : "; give fewer heads, or fewer keys") +
                             (settings.rows.empty() ? ", or give --inspect for a map of every head" : ""));
  }
  return needed;
}

// Bytes of the inputs, the outputs and the library's packed keys. In double, so that no product can overflow.
double needed_bytes(Inputs& inputs, const Extents& e, const AttendText& text, const AttendSettings& settings) {
  const auto size = static_cast<double>(type_bytes(inputs.at("--query").file.type()));
  const double query_rows =
      static_cast<double>(e.batch) * static_cast<double>(e.heads) * static_cast<double>(e.queries);
  double bytes = inputs.bytes() + query_rows * static_cast<double>(e.columns) * size;
  bytes += 4 * query_rows * size;  // row_max, row_sum, lse and the sinks' weights, requested or not
  if (!text.weights.empty()) {
    bytes += static_cast<double>(e.batch) * static_cast<double>(e.heads) * static_cast<double>(e.weight_rows) *
             static_cast<double>(e.keys) * size;
  }
  if (text.inspect)
    bytes += inspect_bytes({e.batch, e.heads, e.queries, e.depth}, e.keys, e.cells,
                           type_bytes(inputs.at("--query").file.type()), row_top_keys(settings.inspect, e.keys),
                           !text.save.empty());
  bytes += 6 * page_bytes(inputs, text, settings);  // its arrays, their text, the JSON, the page
  // The library packs a group of heads at a time: 32 MiB, or one head if that is larger.
  constexpr double kWave = 32.0 * (1 << 20);
  const double head = static_cast<double>(e.keys) * static_cast<double>(e.depth + e.columns) * size;
  return bytes +
         std::min(std::max(kWave, head), head * static_cast<double>(e.batch) * static_cast<double>(e.key_heads));
}

// Throws std::runtime_error if the memory needed is not available or not allowed; returns the bytes needed.
std::uint64_t check_memory(double needed, std::optional<std::uint64_t> allowed) {
  // An override is limited to the range of Index.
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 62;
  const std::uint64_t limit = std::min<std::uint64_t>(allowed ? *allowed : available_memory_bytes(), kMaxBytes);
  const auto bytes = static_cast<std::uint64_t>(std::min(needed, static_cast<double>(kMaxBytes)));
  if (needed > static_cast<double>(limit)) {
    throw std::runtime_error("this needs " + bytes_text(bytes) + " of memory, but " +
                             (allowed ? "--max-memory allows " + bytes_text(limit)
                                      : bytes_text(limit) +
                                            " is available; give fewer rows, heads or keys, or override with "
                                            "--max-memory " +
                                            std::to_string((bytes >> 30) + 1) + "G"));
  }
  return bytes;
}

// ---- compute and write

template <class T, int Rank>
void write_array(OutputFiles& files, std::size_t file, const Tensor<T, Rank>& tensor, std::size_t rank,
                 const std::string& option) {
  // Leading axes that the query does not have are 1 and are omitted.
  const auto& shape = tensor.shape();
  const std::size_t kept = rank - 4 + static_cast<std::size_t>(Rank);
  const std::string header = npy_header(std::is_same_v<T, Index>   ? ElementType::int64
                                        : std::is_same_v<T, float> ? ElementType::float32
                                                                   : ElementType::float64,
                                        std::span(shape).last(kept));
  files.write(file, header.data(), header.size());
  // In pieces, so that progress on a slow disk is visible.
  constexpr Index kPiece = Index{1} << 22;
  Progress progress("writing " + option);
  for (Index done = 0; done < tensor.size(); done += kPiece) {
    const Index count = std::min(kPiece, tensor.size() - done);
    files.write(file, tensor.data() + done, static_cast<std::size_t>(count) * sizeof(T));
    progress.update(done + count, tensor.size());
  }
}

// The output files by option. They are opened before the computation, so that an unwritable folder fails at once.
struct Outputs {
  std::optional<OutputFolder> folder;
  OutputFiles files;
  std::map<std::string, std::size_t> numbers;
};

struct Done {
  double seconds;
  std::uint64_t memory_bytes;
  std::map<std::string, std::vector<Index>> shapes;  // of outputs, as written
  Inspection inspection;
};

template <class T>
void compute(const AttendText& text, const AttendSettings& settings, Inputs& inputs, const Extents& e, Outputs& to,
             Done& done) {
  const NpyArray query = inputs.at("--query").file.read();
  const NpyArray key = inputs.at("--key").file.read();
  const NpyArray value = inputs.at("--value").file.read();
  Options<T> options;
  read_options(settings, inputs, options);

  const auto q = view_of<T, 4>(query);
  const auto k = view_of<T, 4>(key);
  const std::array<Index, 3> rows{e.batch, e.heads, e.queries};
  const bool chosen_rows = !settings.rows.empty();
  const auto make_rows = [&](const std::string& path, bool needed) {
    return path.empty() && !needed ? Tensor<T, 3>() : Tensor<T, 3>(rows);
  };
  Tensor<T, 4> context({e.batch, e.heads, e.queries, e.columns});
  const bool needs_sums = chosen_rows || !text.html.empty() || text.inspect;
  Tensor<T, 3> row_max = make_rows(text.row_max, needs_sums);
  Tensor<T, 3> row_sum = make_rows(text.row_sum, needs_sums);
  Tensor<T, 3> lse = make_rows(text.lse, false);
  Tensor<T, 3> sink_weights = make_rows(text.sink_weights, !text.html.empty() && !text.sinks.empty());
  Tensor<T, 4> weights;
  if (!text.weights.empty()) weights = Tensor<T, 4>({e.batch, e.heads, e.weight_rows, e.keys});

  AttentionOutputs outputs;
  outputs.context = context.view();
  outputs.row_max = row_max.view();
  outputs.row_sum = row_sum.view();
  outputs.lse = lse.view();
  outputs.sink_weights = sink_weights.view();
  if (!chosen_rows) outputs.weights = weights.view();
  RowStatistics<T> statistics;
  if (text.inspect) statistics = {rows, row_top_keys(settings.inspect, e.keys), !text.save.empty()};
  Runtime runtime;
  runtime.num_threads = settings.threads;

  const auto begin = std::chrono::steady_clock::now();
  {
    Progress progress("attention");
    runtime.progress = progress.report();
    const auto v = view_of<T, 4>(value);
    if (text.inspect) {
      attention_with_statistics(q, k, v, outputs, statistics.views(), options.options, runtime);
    } else {
      attention_forward(q, k, v, outputs, options.options, runtime);
    }
  }
  if (chosen_rows && !text.weights.empty()) {
    WeightsRequest request;
    request.row_max = row_max.view();
    request.row_sum = row_sum.view();
    request.rows = settings.rows;
    Progress progress("weights");
    runtime.progress = progress.report();
    attention_weights(q, k, request, weights.view(), options.options, runtime);
  }
  Inspected<T> inspected;
  if (text.inspect) {
    Progress progress("inspection");
    runtime.progress = progress.report();
    inspected = inspect<T>(q, k, {.row_max = row_max.view(), .row_sum = row_sum.view()}, settings.inspect, e.cells,
                           statistics.views(), options.options, runtime);
    done.inspection = inspected.heads;
  }
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const std::size_t rank = inputs.rank();
  const auto write = [&](const char* option, const auto& tensor) {
    const auto number = to.numbers.find(option);
    if (number == to.numbers.end()) return;
    const auto& shape = tensor.shape();
    done.shapes[option].assign(shape.begin() + static_cast<std::ptrdiff_t>(4 - rank), shape.end());
    write_array(to.files, number->second, tensor, rank, option);
  };
  write("--output", context);
  write("--lse", lse);
  write("--row-max", row_max);
  write("--row-sum", row_sum);
  write("--sink-weights", sink_weights);
  write("--weights", weights);
  write("--key-mass", inspected.key_mass);
  write("--pooled-map", inspected.pooled_map);
  write("--entropy", statistics.entropy);
  write("--largest-weight", statistics.largest_weight);
  write("--mean-distance", statistics.mean_distance);
  write("--top-keys", statistics.top_keys);
  write("--top-weights", statistics.top_weights);
  if (to.folder)
    write_pictures(inspected.heads, inspected.pooled_map.view(), settings.inspect.map_scale, to.folder->path(),
                   to.files);
  if (const auto number = to.numbers.find("--html"); number != to.numbers.end()) {
    runtime.progress = {};
    AttentionHtmlInspection inspection;
    if (text.inspect) inspection = attention_html_inspection<T>(inspected.heads, inspected.pooled_map.view());
    const std::string html =
        render_attention_html<T>(q, k, view_of<T, 4>(value), outputs, options.options,
                                 {.rows = settings.rows,
                                  .command = command_line(),
                                  .inspection = text.inspect ? &inspection : nullptr,
                                  .only_inspection = text.inspect && page_bytes(inputs, text, settings) == 0},
                                 runtime);
    to.files.write(number->second, html.data(), html.size());
  }
}

// "--key-lengths" becomes "key_lengths", and "--output" becomes "context".
std::string json_name(std::string_view option) {
  std::string name(option == "--output" ? "context" : option.substr(2));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string report(const AttendText& text, const AttendSettings& settings, Inputs& inputs, const Extents& e,
                   const Done& done) {
  JsonWriter json;
  json.begin_object();
  json.source(command_line());
  json.name("shapes");
  json.begin_object(JsonLayout::one_line);
  for (const NamedPath& input : text.inputs()) json.list(json_name(input.option), inputs.at(input.option).file.shape());
  for (const auto& [option, shape] : done.shapes) json.list(json_name(option), shape);
  json.end_object();
  json.name("plan");
  json.begin_object(JsonLayout::one_line);
  json.string("type", type_name(inputs.at("--query").file.type()));
  json.whole("threads", settings.threads > 0 ? settings.threads : default_num_threads());
  json.whole("chunk_keys", kAttentionChunkKeys);
  json.whole("chunks", attention_num_chunks(e.keys));
  json.whole("memory_bytes", done.memory_bytes);
  json.end_object();
  if (text.inspect) {
    json.name("inspect");
    write_inspection_json(json, done.inspection);
  }
  json.number("seconds", done.seconds);
  json.end_object();
  return json.take();
}

// The lines that name the files that were written.
std::string files_text(const AttendText& text) {
  std::string lines;
  if (!text.save.empty()) lines += "\n  saved  " + escape_for_terminal(text.save) + "\n";
  if (!text.html.empty()) lines += page_line(text.html, "maps of the heads");
  return lines;
}

// Rewrites an error of the library in terms of the command line: "attention_forward: key_lengths[0] is 7; …" becomes
// "n.npy: --key-lengths[0] is 7; …".
std::string in_options(std::string what, const AttendText& text) {
  const std::size_t colon = what.find(": ");
  if ((!what.starts_with("attention_") && !what.starts_with("render_attention_html")) || colon == std::string::npos)
    return what;
  what.erase(0, colon + 2);
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_";
  std::string subject;
  for (std::size_t at = 0; at < what.size();) {
    const std::size_t end = std::min(what.find_first_not_of(kLetters, at), what.size());
    std::string word = what.substr(at, end - at);
    // After the first word, only a name with an underscore is certain to be an option: "key" may be a word.
    const bool is_name = is_attend_option(word) && (at == 0 || word.find('_') != std::string::npos);
    if (is_name) {
      std::replace(word.begin(), word.end(), '_', '-');
      word.insert(0, "--");
      if (at == 0) subject = word;
      what.replace(at, end - at, word);
    }
    at = std::min(at + word.size() + 1, what.size());
  }
  for (const NamedPath& input : text.inputs()) {
    if (input.option == subject) return (input.path == "-" ? "standard input" : input.path) + ": " + what;
  }
  return what;
}

void attend(const AttendText& text) {
  const AttendSettings settings = parse(text);
  Inputs inputs(text);
  const Extents e = extents_of(inputs, text, settings);
  Done done;
  done.memory_bytes = check_memory(needed_bytes(inputs, e, text, settings), settings.max_memory);
  if (!text.save.empty() && e.batch * e.heads > kMaxPictures)
    throw std::runtime_error("--save would write a picture for each of " + std::to_string(e.batch * e.heads) +
                             " heads; the maximum is " + std::to_string(kMaxPictures) + "; give fewer heads at a time");
  Outputs to;
  for (const NamedPath& output : text.outputs()) to.numbers[output.option] = to.files.add(output.path);
  if (!text.save.empty()) to.folder.emplace(text.save);
  for (const NamedPath& file : text.saved()) to.numbers[file.option] = to.files.add(file.path);
  try {
    if (inputs.at("--query").file.type() == ElementType::float32) {
      compute<float>(text, settings, inputs, e, to, done);
    } else {
      compute<double>(text, settings, inputs, e, to, done);
    }
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(in_options(error.what(), text));
  }
  const std::string json = report(text, settings, inputs, e, done);
  if (const auto number = to.numbers.find("--inspect-json"); number != to.numbers.end())
    to.files.write(number->second, json.data(), json.size());
  // Printed before the files are renamed: if standard output fails, no file is created.
  if (text.json) {
    write_stdout(json);
  } else if (text.inspect) {
    write_stdout(render_inspection_text(
                     done.inspection,
                     {.width = output_width(), .unicode = terminal_is_unicode(), .one_line = text.top.empty()}) +
                 files_text(text));
  }
  to.files.commit();
}

}  // namespace

void add_attend(CLI::App& app) {
  auto text = std::make_shared<AttendText>();
  CLI::App* command = add_attend_options(app, *text);
  command->callback([text] { attend(*text); });
}

}  // namespace regard::program
