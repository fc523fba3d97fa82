// SPDX-License-Identifier: Apache-2.0
//
// The options of `regard attend`: their texts as typed, and what they mean before any file is opened.
// Read next: attend.cpp.
#pragma once

#include <array>
#include <optional>

#include "map_picture.h"
#include "program.h"
#include "regard/attention.h"
#include "regard/explain/inspection_report.h"

namespace regard::program {

// Every option as typed; empty: not given.
struct AttendText {
  std::string query, key, value;
  std::string output, lse, row_max, row_sum, sink_weights, weights, html;
  std::string rows, query_offset, causal, window, mask, bias, key_lengths, query_starts, key_starts, query_segments,
      key_segments, prefix, block_mask, block_size, alibi_slopes, sinks, soft_cap, scale, threads, max_memory;
  std::string save, map_size, map_scale, top, track_keys;
  bool inspect = false;
  bool json = false;

  // The array files that are given. --query comes first.
  std::vector<NamedPath> inputs() const;
  // The array files that are written, and the page.
  std::vector<NamedPath> outputs() const;
  // The files of --save, named like options. The last is no array.
  std::vector<NamedPath> saved() const;
};

// Of --inspect.
struct InspectSettings {
  std::array<Index, 2> map_size{};  // rows and columns of the pooled map; 0: as many as there can be, up to 512
  MapScale map_scale = MapScale::logarithmic;
  InspectionOptions heads;
};

struct AttendSettings {
  bool causal = false;
  std::optional<QueryAlignment> alignment;
  std::optional<Index> offset;
  Window window;
  std::optional<double> soft_cap;
  std::optional<double> scale;
  std::array<Index, 2> block_size{};
  std::vector<RowRange> rows;
  InspectSettings inspect;
  int threads = 0;
  std::optional<std::uint64_t> max_memory;
};

// What an array file must hold.
enum class InputKind { matrix, boolean, bias, per_head, indices, segments };
InputKind kind_of_input(std::string_view option);
// What the option of an array file takes, for messages: "a .npy file of bool".
std::string values_of_input(std::string_view option);

// Whether this is the library's name of an option: "key_lengths" for --key-lengths.
bool is_attend_option(std::string_view name);

// Registers the subcommand; text must live as long as app.
CLI::App* add_attend_options(CLI::App& app, AttendText& text);
// Throws UsageError for what can be seen to be wrong without opening a file.
AttendSettings parse(const AttendText& text);

}  // namespace regard::program
