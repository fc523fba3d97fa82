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

#include "attend_call.h"
#include "attend_inputs.h"
#include "attend_inspect.h"
#include "attend_options.h"
#include "attend_ranks.h"
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

// The output files by option. They are opened before the computation, so that an unwritable folder fails immediately.
struct Outputs {
  std::optional<OutputFolder> folder;
  OutputFiles files;
  std::map<std::string, std::size_t> numbers;
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
  Tensor<T, 4> context({e.batch, e.heads, e.queries, e.value_head_size});
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

// The lines that name the files that were written.
std::string files_text(const AttendText& text) {
  std::string lines;
  if (!text.save.empty()) lines += "\n  saved  " + escape_for_terminal(text.save) + "\n";
  if (!text.html.empty()) lines += page_line(text.html, "maps of the heads");
  return lines;
}

void attend(const AttendText& text) {
  const AttendSettings settings = parse(text);
  if (text.ranks) return attend_on_ranks(text, settings);
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
