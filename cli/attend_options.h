// SPDX-License-Identifier: Apache-2.0
//
// The options of `regard attend`: as typed, and parsed before any file is opened.
// Read next: attend.cpp.
#pragma once

#include <array>
#include <optional>

#include "map_picture.h"
#include "program.h"
#include "regard/attention.h"
#include "regard/explain/inspection_report.h"

namespace regard::program {

// Every option as typed; empty if not given.
struct AttendText {
  std::string query, key, value;
  std::string output, lse, row_max, row_sum, sink_weights, weights, html;
  std::string rows, query_offset, causal, window, mask, bias, key_lengths, query_starts, key_starts, query_segments,
      key_segments, prefix, block_mask, block_size, alibi_slopes, sinks, soft_cap, scale, threads, max_memory;
  std::string save, map_size, map_scale, top, track_keys;
  std::string timeout;
  bool inspect = false;
  bool ranks = false;
  bool json = false;

  // The array files that are given; --query is the first.
  std::vector<NamedPath> inputs() const;
  // The array files to write, and the page.
  std::vector<NamedPath> outputs() const;
  // The files that --save writes, with names in the form of options. The last is not an array.
  std::vector<NamedPath> saved() const;
};

// The settings of --inspect.
struct InspectSettings {
  std::array<Index, 2> map_size{};  // rows and columns of the pooled map; 0 means the default, up to 512
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

// The contents that an array file must have.
enum class InputKind { matrix, boolean, bias, per_head, indices, segments };
InputKind kind_of_input(std::string_view option);
// What the option expects, for messages: "a .npy file of bool".
std::string values_of_input(std::string_view option);

// The value of --window.
Window parse_window(std::string_view text);

// Whether this is the name of an option in the library: "key_lengths" for --key-lengths.
bool is_attend_option(std::string_view name);

// Registers the subcommand. text must outlive app.
CLI::App* add_attend_options(CLI::App& app, AttendText& text);
// Throws UsageError for every error that can be detected without opening a file.
AttendSettings parse(const AttendText& text);

}  // namespace regard::program
