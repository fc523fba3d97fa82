// SPDX-License-Identifier: Apache-2.0
//
// The frame of every page: one HTML file that contains its data, script and style. A content security policy names the
// hashes of script and style, so that nothing else runs and nothing is fetched.
// Read next: html_page.cpp, cmake/embed_page.cmake, docs/reference/page.md.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "regard/explain/steps.h"

namespace regard::inline v0 {

// The files of web/, joined by the build. The hashes are SHA-256 in hex. A live page has its own script and style,
// which contain those of every page.
struct PageAssets {
  std::string_view script;
  std::string_view script_sha256;
  std::string_view style;
  std::string_view style_sha256;
  std::string_view live_script;
  std::string_view live_script_sha256;
  std::string_view live_style;
  std::string_view live_style_sha256;
};
PageAssets page_assets();

// Untrusted text as a text node of HTML or XML, with invisible characters written as \u{…}.
std::string escape_for_markup(std::string_view text);

std::string base64_of(std::span<const std::byte> bytes);

// What differs between pages before their data.
struct PageFrame {
  std::string_view script_sha256;
  std::string_view style;
  std::string_view style_sha256;
  std::string_view more_policy;  // sources of scripts and directives in addition to the script's hash
};
// Everything from the doctype up to the first element of the body. The title is any text.
std::string page_begin(std::string_view title, const PageFrame& frame);
// Appends the data as elements, as page_html() does.
void append_data(std::string& html, const std::vector<NamedText>& data);

// `data` are JSON texts, written by JsonWriter (which escapes everything that HTML could read as a tag); each becomes a
// script element of type application/json with its name as id. The title is any text.
std::string page_html(std::string_view title, const std::vector<NamedText>& data);

}  // namespace regard::inline v0
