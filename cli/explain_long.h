// SPDX-License-Identifier: Apache-2.0
//
// `regard explain --html` of matrices with more weights than a page can hold: the page of an inspection, and some rows
// in full, in memory that is linear in queries and keys.
//
//     projections, as steps ──▶ Q, K, V ── attention_with_statistics, attention_columns ──▶ maps and numbers of heads
//                                     └── attention_weights of the query in focus and of some more ──▶ their rows
//
// Read next: explain_long.cpp, attend_inspect.h.
#pragma once

#include "explain_options.h"

namespace regard::program {

// Whether there are more weights than kExplainKeptNumbers, and the standard steps compute them as the library does:
// steps of one's own, variants and other kinds of softmax have no inspection.
bool has_long_page(const ExplainInput& input);

// Writes the page to text.html, and what the keys of each head receive to standard output, as text or JSON. Throws
// what explain() throws for the input itself.
void write_long_page(const ExplainInput& input, const ExplainText& text);

}  // namespace regard::program
