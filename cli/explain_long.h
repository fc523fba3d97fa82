// SPDX-License-Identifier: Apache-2.0
//
// `regard explain --html` for matrices with too many weights for a page: the page shows an inspection and some rows in
// full, and memory is linear in queries and keys.
//
//     projection steps ──▶ Q, K, V ── attention_with_statistics, attention_columns ──▶ maps and statistics of heads
//                                └── attention_weights of the query in focus and of others ──▶ their rows
//
// Read next: explain_long.cpp, attend_inspect.h.
#pragma once

#include "explain_options.h"

namespace regard::program {

// Whether there are more weights than kMaxKeptElements and the standard steps compute them as the library does.
// Custom steps, variants and other kinds of softmax have no inspection.
bool has_long_page(const ExplainInput& input);

// Writes the page to text.html, and to standard output, as text or JSON, how much attention the keys of each head
// receive. Throws what explain() throws for the input.
void write_long_page(const ExplainInput& input, const ExplainText& text);

}  // namespace regard::program
