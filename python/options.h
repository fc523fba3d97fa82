// SPDX-License-Identifier: Apache-2.0
//
// Converts keyword arguments to AttentionOptions. The names are the same; some values have a shorter form in Python:
//
//     causal=True | "top_left" | "bottom_right"        the strings also set query_offset
//     query_offset="bottom_right" | 3 | [0, 5]         window=(511, 0) | (None, 0)
//     mask, bias, block_mask: missing leading axes have extent 1
//
// Read next: options.cpp, attention.cpp.
#pragma once

#include "keywords.h"
#include "regard/attention.h"

namespace regard::python {

// Takes the options from the keywords, and holds the data that `options` refers to. T is float or double.
template <class T>
class Options {
 public:
  // query: if it has no rows, options with one value per batch entry or head may be empty.
  Options(Keywords& keywords, const Array& query);
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  AttentionOptions options;

 private:
  void take_positions(Keywords& keywords);
  InputView<1> take_list(Keywords& keywords, const char* name, const char* expected, std::vector<Index>& held);
  InputView<1> take_numbers(Keywords& keywords, const char* name, std::vector<T>& held);

  const bool rows_;  // whether query has any rows

  std::vector<Index> query_offset_, key_lengths_, query_starts_, key_starts_, prefix_;
  std::vector<T> alibi_slopes_, sinks_;
  Array query_segments_, key_segments_, block_mask_, mask_, bias_;
};

}  // namespace regard::python
