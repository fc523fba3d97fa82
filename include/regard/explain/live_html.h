// SPDX-License-Identifier: Apache-2.0
/// @file
/// Renders a live page: one HTML file that contains the core as a WebAssembly module and, optionally, a model. As the
/// reader types, the page recomputes everything that it shows.
///
/// @verbatim
///     initial view (page data)  ─┐
///     core (WebAssembly)        ─┼─ render_live_html() ──▶ one HTML file, which makes no network requests
///     files of the model        ─┘
/// @endverbatim
///
/// Read next: docs/guide/live.md, src/explain/report/live_html.cpp, web/live/live.js.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/rounding_errors.h"
#include "regard/explain/steps.h"

namespace regard::inline v0 {

/// A part of a model file, as it is embedded in an HTML file.
struct LivePiece {
  std::span<const std::byte> bytes{};  ///< The embedded bytes, which must stay valid until the call returns.
  bool is_compressed = false;          ///< Whether these bytes are compressed with gzip.
};

/// A model file in a live page.
struct LiveFile {
  std::string name;                    ///< Name of the file, such as "model.safetensors".
  std::span<const std::byte> bytes{};  ///< Contents of the file, which must stay valid until the call returns.
  std::vector<LivePiece> pieces{};     ///< The contents in pieces, which the page reads while the HTML file is loading.
};

/// The contents of a live page, except for its script and its style sheet.
///
/// Spans and pointers do not own memory: the memory that they refer to must stay valid until the call returns.
struct LivePage {
  std::string title{};                     ///< Title of the document.
  std::string heading{};                   ///< The main result, in words; displayed before the script runs.
  std::vector<NamedText> first{};          ///< The initial view: the result of sentence_page_data() or page_data().
  std::span<const std::byte> core{};       ///< The WebAssembly module, compressed with gzip.
  std::string model{};                     ///< Name of the model; empty for a page with only lessons and matrices.
  std::string weights{};                   ///< Format of the parameters: "int8", "f16", "f32" or "none".
  std::string sha256{};                    ///< SHA-256 of model.safetensors, which the page does not verify.
  const RoundingErrors* errors = nullptr;  ///< Effects of rounding; nullptr if nothing is rounded.
  /// The files of the model: config.json, tokenizer.json, model.safetensors.
  std::vector<LiveFile> files{};
};

/// Renders a live page as one HTML file.
///
/// The heading and the data of the initial view come before the script, and the files come last, in pieces. The page
/// is therefore drawn before the model has been read, and the model is read while the HTML file is loading.
///
/// @param page  The page.
/// @return The HTML text. Equal pages produce identical bytes.
///
/// @par Example
/// @code{.cpp}
/// const LivePage page{.title = "Attention", .first = page_data(explanation), .core = core, .weights = "none"};
/// const std::string html = render_live_html(page);
/// @endcode
REGARD_EXPORT std::string render_live_html(const LivePage& page);

/// Renders a live page for a web server, with separate files that the page loads from its own folder.
///
/// @param page  The page.
/// @return The text of index.html. Place the core next to it as core.wasm.gz, and each model file under its own name.
REGARD_EXPORT std::string render_live_site(const LivePage& page);

}  // namespace regard::inline v0
