// SPDX-License-Identifier: Apache-2.0
//
// A call of `regard attend`, on one machine or on several.
//
//     Inputs (headers) ── extents_of ── check_memory ── read_options ── the library ── report
//
// Read next: attend_call.cpp, attend.cpp, attend_ranks.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attend_inputs.h"
#include "attend_options.h"
#include "regard/attention.h"
#include "regard/explain/inspection_report.h"

namespace regard::program {

// The options of the library, and the memory that they refer to.
template <class T>
struct Options {
  AttentionOptions options;
  std::map<std::string, NpyArray> arrays;
  std::map<std::string, std::vector<Index>> indices;
  std::map<std::string, std::vector<T>> per_head;
  Tensor<std::int32_t, 2> query_segments, key_segments;
};

// Reads the arrays of the options; with `rows`, only these rows of mask and bias.
template <class T>
void read_options(const AttendSettings& settings, Inputs& inputs, Options<T>& o,
                  const std::optional<RowRange>& rows = std::nullopt);

struct Extents {
  Index batch, heads, num_kv_heads, queries, keys, head_size, value_head_size, weight_rows;
  std::array<Index, 2> cells;  // of the pooled map, with --inspect
};

Extents extents_of(Inputs& inputs, const AttendText& text, const AttendSettings& settings);

// The size of the page; 0 without --html, and if it has only an inspection. Throws std::runtime_error if it would be
// too large.
double page_bytes(Inputs& inputs, const AttendText& text, const AttendSettings& settings);
// Bytes of the inputs, the outputs and the library's packed keys. In double, so that no product can overflow.
double needed_bytes(Inputs& inputs, const Extents& e, const AttendText& text, const AttendSettings& settings);
// Throws std::runtime_error if the memory needed is not available or not allowed; returns the bytes needed.
std::uint64_t check_memory(double needed, std::optional<std::uint64_t> allowed);

struct Done {
  double seconds;
  std::uint64_t memory_bytes;
  std::map<std::string, std::vector<Index>> shapes;  // of outputs, as written
  Inspection inspection;
};

// The JSON that --json prints.
std::string report(const AttendText& text, const AttendSettings& settings, Inputs& inputs, const Extents& e,
                   const Done& done, Index num_ranks = 1);
// Rewrites an error of the library in terms of the command line: "attention_forward: key_lengths[0] is 7; …" becomes
// "n.npy: --key-lengths[0] is 7; …".
std::string in_options(std::string what, const AttendText& text);

}  // namespace regard::program
