// SPDX-License-Identifier: Apache-2.0
//
// What `regard attend` does on one machine and on several: the options of the library from those of the command line,
// the memory that is needed, and the report. Read next: attend_call.h, attend.cpp, attend_ranks.cpp.
#include "attend_call.h"

#include <algorithm>

#include "attend_inspect.h"
#include "regard/attention.h"
#include "regard/explain/attention_html.h"
#include "regard/io/json_writer.h"
#include "regard/runtime.h"

namespace regard::program {

template <class T>
void read_options(const AttendSettings& settings, Inputs& inputs, Options<T>& o, const std::optional<RowRange>& rows) {
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
  const auto array_of_rows = [&](const char* option) -> const NpyArray* {
    Input* input = inputs.find(option);
    if (!input || !rows) return array(option);
    const std::vector<Index>& shape = input->file.shape();
    if (shape.size() < 2 || shape[shape.size() - 2] != inputs.shape4("--query")[2]) return array(option);
    return &o.arrays.emplace(option, input->file.read_rows(rows->begin, rows->end - rows->begin, input->seek))
                .first->second;
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
  if (const NpyArray* a = array_of_rows("--mask")) options.mask = view_of<bool, 4>(*a);
  if (const NpyArray* a = array_of_rows("--bias")) {
    if (a->type == ElementType::float32) {
      options.bias = view_of<float, 4>(*a);
    } else {
      options.bias = view_of<double, 4>(*a);
    }
  }
}

template void read_options<float>(const AttendSettings&, Inputs&, Options<float>&, const std::optional<RowRange>&);
template void read_options<double>(const AttendSettings&, Inputs&, Options<double>&, const std::optional<RowRange>&);

Extents extents_of(Inputs& inputs, const AttendText& text, const AttendSettings& settings) {
  const std::array<Index, 4> q = inputs.shape4("--query");
  const std::array<Index, 4> k = inputs.shape4("--key");
  Index rows = q[2];
  if (!settings.rows.empty()) {
    rows = 0;
    for (const RowRange& range : settings.rows) {
      if (range.end > q[2]) {
        throw std::invalid_argument("--rows " + std::to_string(range.begin) + ":" + std::to_string(range.end) +
                                    " goes beyond the " + std::to_string(q[2]) +
                                    " rows of --query; rows are numbered from 0");
      }
      if (__builtin_add_overflow(rows, range.end - range.begin, &rows)) throw std::bad_alloc();
    }
  }
  const auto cells = text.inspect ? inspect_cells(settings.inspect, q, k) : std::array<Index, 2>{};
  return {q[0], q[1], k[1], q[2], k[2], q[3], inputs.shape4("--value")[3], rows, cells};
}

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

double needed_bytes(Inputs& inputs, const Extents& e, const AttendText& text, const AttendSettings& settings) {
  const auto size = static_cast<double>(type_bytes(inputs.at("--query").file.type()));
  const double query_rows =
      static_cast<double>(e.batch) * static_cast<double>(e.heads) * static_cast<double>(e.queries);
  double bytes = inputs.bytes() + query_rows * static_cast<double>(e.value_head_size) * size;
  bytes += 4 * query_rows * size;  // row_max, row_sum, lse and the sinks' weights, requested or not
  if (!text.weights.empty()) {
    bytes += static_cast<double>(e.batch) * static_cast<double>(e.heads) * static_cast<double>(e.weight_rows) *
             static_cast<double>(e.keys) * size;
  }
  if (text.inspect)
    bytes += inspect_bytes({e.batch, e.heads, e.queries, e.head_size}, e.keys, e.cells,
                           type_bytes(inputs.at("--query").file.type()), row_top_keys(settings.inspect, e.keys),
                           !text.save.empty());
  bytes += 6 * page_bytes(inputs, text, settings);  // its arrays, their text, the JSON, the page
  // The library packs a group of heads at a time: 32 MiB, or one head if that is larger.
  constexpr double kWave = 32.0 * (1 << 20);
  const double head = static_cast<double>(e.keys) * static_cast<double>(e.head_size + e.value_head_size) * size;
  return bytes +
         std::min(std::max(kWave, head), head * static_cast<double>(e.batch) * static_cast<double>(e.num_kv_heads));
}

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

// "--key-lengths" becomes "key_lengths", and "--output" becomes "context".
static std::string json_name(std::string_view option) {
  std::string name(option == "--output" ? "context" : option.substr(2));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string report(const AttendText& text, const AttendSettings& settings, Inputs& inputs, const Extents& e,
                   const Done& done, Index num_ranks) {
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
  if (num_ranks > 1) json.whole("ranks", num_ranks);
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

}  // namespace regard::program
