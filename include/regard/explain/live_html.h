// SPDX-License-Identifier: Apache-2.0
/// @file
/// Renders a live page: one HTML file with the core as a WebAssembly module, and a model or none, which recomputes
/// everything that it shows while the reader types.
///
/// @verbatim
///     first picture (page data) ─┐
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

/// A file of the model in a live page.
struct LiveFile {
  std::string name;                         ///< Its name, such as "model.safetensors".
  std::span<const std::byte> bytes{};       ///< Its contents.
  std::span<const std::byte> compressed{};  ///< The same, compressed with gzip: what one HTML file contains.
};

/// What a live page consists of, apart from its script and its style.
struct LivePage {
  std::string title{};                     ///< Title of the document.
  std::vector<NamedText> first{};          ///< The first picture: the texts of sentence_page_data() or page_data().
  std::span<const std::byte> core{};       ///< The WebAssembly module, compressed with gzip.
  std::string model{};                     ///< Name of the model; empty: the page has lessons and matrices only.
  std::string weights{};                   ///< "int8", "f16", "f32" or "none".
  const RoundingErrors* errors = nullptr;  ///< What rounding changes; null: nothing is rounded.
  /// The files of the model: config.json, tokenizer.json, model.safetensors.
  std::vector<LiveFile> files{};
};

/// Renders a live page as one HTML file.
///
/// The first picture comes before the script, and the files come last, so that the page is drawn before the model has
/// been read.
///
/// @param page  The page.
/// @return The HTML text. The same page gives the same bytes.
REGARD_EXPORT std::string render_live_html(const LivePage& page);

/// Renders a live page for a web server: as separate files, which the page loads from its own folder.
///
/// @param page  The page.
/// @return The text of index.html. The core belongs next to it as core.wasm.gz, and each file of the model by its name.
REGARD_EXPORT std::string render_live_site(const LivePage& page);

}  // namespace regard::inline v0
