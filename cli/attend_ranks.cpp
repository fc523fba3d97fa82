// SPDX-License-Identifier: Apache-2.0
//
// `regard attend --ranks`: each process reads its rows of query, mask and bias and its keys and values; rows are
// divided into equal amounts of work. The files are written by rank 0, head by head, as the rows of the others arrive:
//
//     file     head 0: rows of rank 0, rank 1, …     head 1: rows of rank 0, …
//
// Read next: attend_call.h, ranks/program_ranks.h, regard/distributed/attention.h.
#include "attend_ranks.h"

#include <chrono>
#include <exception>

#include "attend_call.h"
#include "attend_inputs.h"
#include "program.h"
#include "ranks/program_ranks.h"
#include "regard/distributed/attention.h"
#include "regard/io/npy.h"

namespace regard::program {
namespace {

// Errors that one rank finds are reported by all.
template <class F>
void on_all(Ranks& ranks, const F& run) {
  constexpr const char* kNoName = "";  // no function's name precedes the message
  std::string mistake;
  try {
    run();
  } catch (const RankError&) {
    throw;
  } catch (const std::exception& error) {
    mistake = error.what();
  }
  mistake.empty() ? static_cast<void>(exchange_numbers(kNoName, 0, ranks)) : reject_call(kNoName, mistake, ranks);
}

std::vector<Index> row_starts(const AttendSettings& settings, const AttendText& text, const Extents& e,
                              Index num_ranks) {
  RowVisibility visibility;
  visibility.causal = settings.causal && text.prefix.empty();
  visibility.window = settings.window;
  if (settings.alignment) visibility.query_offset = *settings.alignment;
  if (settings.offset) visibility.query_offset = *settings.offset;
  // Other positions, and the starts of sequences, are in files.
  if (!text.query_starts.empty() || (!text.query_offset.empty() && !settings.alignment && !settings.offset))
    return split_evenly(e.queries, num_ranks);
  return split_by_work(visibility, e.queries, e.keys, num_ranks);
}

struct Shares {
  std::vector<Index> rows, keys;

  RowRange of(const std::vector<Index>& starts, Index rank) const {
    return {starts[static_cast<std::size_t>(rank)], starts[static_cast<std::size_t>(rank) + 1]};
  }
};

// Rows of one head at a time, in the order of the file. Only rank 0 has files.
template <class T, int Rank>
std::vector<Index> gather(const Tensor<T, Rank>& own, const Shares& shares, std::size_t rank_of_array, Ranks& ranks,
                          OutputFiles* files, std::size_t file) {
  std::array<Index, static_cast<std::size_t>(Rank)> shape = own.shape();
  const Index heads = shape[0] * shape[1], own_rows = shape[2];
  shape[2] = shares.rows.back();
  const Index row_elements = Rank > 3 ? shape[static_cast<std::size_t>(Rank) - 1] : 1;
  const std::vector<Index> written(shape.end() - static_cast<std::ptrdiff_t>(rank_of_array - 4 + shape.size()),
                                   shape.end());
  if (files) {
    const std::string header = npy_header(kElementType<T>, written);
    files->write(file, header.data(), header.size());
  }
  std::vector<T> piece;
  for (Index head = 0; head < heads; ++head) {
    const T* const rows_of_head = own.data() + head * own_rows * row_elements;
    const std::span<const T> own_piece(rows_of_head, static_cast<std::size_t>(own_rows * row_elements));
    if (!files) {
      if (!own_piece.empty()) ranks.wait(ranks.start_send(0, std::as_bytes(own_piece)));
      continue;
    }
    files->write(file, own_piece.data(), own_piece.size_bytes());
    for (Index r = 1; r < ranks.num_ranks(); ++r) {
      const RowRange rows = shares.of(shares.rows, r);
      piece.resize(static_cast<std::size_t>((rows.end - rows.begin) * row_elements));
      if (piece.empty()) continue;
      ranks.wait(ranks.start_receive(r, std::as_writable_bytes(std::span(piece))));
      files->write(file, piece.data(), piece.size() * sizeof(T));
    }
  }
  return written;
}

template <class T>
void compute(const AttendText& text, const AttendSettings& settings, Inputs& inputs, const Extents& e, Ranks& ranks,
             OutputFiles* files, const std::map<std::string, std::size_t>& numbers, Done& done) {
  const Index rank = ranks.rank();
  const Shares shares{row_starts(settings, text, e, ranks.num_ranks()), split_evenly(e.keys, ranks.num_ranks())};
  const RowRange rows = shares.of(shares.rows, rank), keys = shares.of(shares.keys, rank);
  NpyArray query, key, value;
  Options<T> options;
  on_all(ranks, [&] {
    const auto read = [&](const char* option, const RowRange& range) {
      Input& input = inputs.at(option);
      return input.file.read_rows(range.begin, range.end - range.begin, input.seek);
    };
    query = read("--query", rows);
    key = read("--key", keys);
    value = read("--value", keys);
    read_options(settings, inputs, options, std::optional<RowRange>(rows));
  });

  const Index count = rows.end - rows.begin;
  const std::array<Index, 3> row_shape{e.batch, e.heads, count};
  const auto make_rows = [&](const std::string& path) {
    return path.empty() ? Tensor<T, 3>() : Tensor<T, 3>(row_shape);
  };
  Tensor<T, 4> context({e.batch, e.heads, count, e.value_head_size}), weights;
  Tensor<T, 3> row_max = make_rows(text.row_max), row_sum = make_rows(text.row_sum), lse = make_rows(text.lse);
  Tensor<T, 3> sink_weights = make_rows(text.sink_weights);
  if (!text.weights.empty()) weights = Tensor<T, 4>({e.batch, e.heads, count, e.keys});
  AttentionOutputs outputs{.context = context.view()};
  // A tensor without rows has no memory, so its shape indicates that it is requested.
  if (!text.row_max.empty()) outputs.row_max = row_max.view();
  if (!text.row_sum.empty()) outputs.row_sum = row_sum.view();
  if (!text.lse.empty()) outputs.lse = lse.view();
  if (!text.sink_weights.empty()) outputs.sink_weights = sink_weights.view();
  if (!text.weights.empty()) outputs.weights = weights.view();

  const auto begin = std::chrono::steady_clock::now();
  attention_forward(view_of<T, 4>(query), view_of<T, 4>(key), view_of<T, 4>(value), outputs, options.options, ranks,
                    {.num_threads = settings.threads});
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  const auto write = [&](const char* option, const std::string& path, const auto& tensor) {
    if (path.empty()) return;
    const std::size_t file = files ? numbers.at(option) : 0;
    done.shapes[option] = gather(tensor, shares, inputs.rank(), ranks, files, file);
  };
  write("--output", text.output, context);
  write("--lse", text.lse, lse);
  write("--row-max", text.row_max, row_max);
  write("--row-sum", text.row_sum, row_sum);
  write("--sink-weights", text.sink_weights, sink_weights);
  write("--weights", text.weights, weights);
}

}  // namespace

void attend_on_ranks(const AttendText& text, const AttendSettings& settings) {
  run_on_ranks(parse_timeout(text.timeout), [&](Ranks& ranks) {
    std::optional<Inputs> inputs;
    std::optional<OutputFiles> files;  // on rank 0
    std::map<std::string, std::size_t> numbers;
    Extents e{};
    Done done{};
    on_all(ranks, [&] {
      inputs.emplace(text);
      e = extents_of(*inputs, text, settings);
      done.memory_bytes = check_memory(
          needed_bytes(*inputs, e, text, settings) / static_cast<double>(ranks.num_ranks()), settings.max_memory);
      if (ranks.rank() > 0) return;
      files.emplace();
      for (const NamedPath& output : text.outputs()) numbers[output.option] = files->add(output.path);
    });
    OutputFiles* const to = files ? &*files : nullptr;
    try {
      if (inputs->at("--query").file.type() == ElementType::float32) {
        compute<float>(text, settings, *inputs, e, ranks, to, numbers, done);
      } else {
        compute<double>(text, settings, *inputs, e, ranks, to, numbers, done);
      }
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(in_options(error.what(), text));
    }
    on_all(ranks, [&] {
      if (!to) return;
      if (text.json) write_stdout(report(text, settings, *inputs, e, done, ranks.num_ranks()));
      to->commit();
    });
  });
}

}  // namespace regard::program
