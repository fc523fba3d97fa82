// SPDX-License-Identifier: Apache-2.0
//
// The frame of every page; see html_page.h.
//
//     head: policy, title, style      body: data (JSON), script, which builds everything else
//
// Read next: web/page.js.
#include "html_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "regard/runtime.h"

namespace regard::inline v0 {
namespace {

int hex_digit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

// A hash in the form of a content security policy.
std::string base64_of_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(16 * hex_digit(hex[i]) + hex_digit(hex[i + 1])));
  return base64_of(bytes);
}

}  // namespace

std::string escape_for_markup(std::string_view text) {
  std::string result;
  for (char c : escape_for_terminal(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

std::string base64_of(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text((bytes.size() + 2) / 3 * 4, '=');
  char* out = text.data();
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    unsigned bits = 0;
    for (std::size_t n = 0; n < 3; ++n) bits = bits * 256 + (n < count ? std::to_integer<unsigned>(bytes[i + n]) : 0);
    for (std::size_t n = 0; n <= count; ++n) out[n] = kDigits[(bits >> (18 - 6 * n)) & 63];
    out += 4;
  }
  return text;
}

std::string page_begin(std::string_view title, const PageFrame& frame) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-{}'{}{}; "
      "style-src 'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<meta name=\"generator\" content=\"regard {}\">\n"
      "<link rel=\"icon\" href=\"data:,\">\n<title>{}</title>\n<style>",
      base64_of_hex(frame.script_sha256), frame.more_policy.empty() ? "" : " ", frame.more_policy,
      base64_of_hex(frame.style_sha256), version(), escape_for_markup(title));
  html += frame.style;
  html +=
      "</style>\n</head>\n<body>\n<noscript><p>This page is drawn from the data in this file and requires "
      "JavaScript. Without JavaScript, use the text output of regard.</p></noscript>\n";
  return html;
}

void append_data(std::string& html, const std::vector<NamedText>& data) {
  for (const NamedText& text : data) {
    html.append("<script type=\"application/json\" id=\"").append(text.name).append("\">");
    html.append(text.text).append("</script>\n");
  }
}

std::string page_html(std::string_view title, const std::vector<NamedText>& data) {
  const PageAssets assets = page_assets();
  std::string html = page_begin(title, {.script_sha256 = assets.script_sha256,
                                        .style = assets.style,
                                        .style_sha256 = assets.style_sha256,
                                        .more_policy = {}});
  append_data(html, data);
  html.append("<script>").append(assets.script).append("</script>\n</body>\n</html>\n");
  return html;
}

}  // namespace regard::inline v0
