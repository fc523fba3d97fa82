// SPDX-License-Identifier: Apache-2.0
//
// The frame of a live page; see regard/explain/live_html.h.
//
//     head: policy, title, style      body: text and heading, initial view (JSON), script, core and files of the model
//                                     as base64, in pieces that the script passes on as they arrive
//
// The policy lets the script compile the core and start a worker from its own text; a site also loads its own files.
// Read next: html_page.h, web/live/answers.js.
#include "regard/explain/live_html.h"

#include <fmt/format.h>

#include "explain/report/html_page.h"
#include "explain/report/json_style.h"

namespace regard::inline v0 {
namespace {

// {"model": …, "weights": …, "errors": {what: how much}}
std::string about_json(const LivePage& page) {
  JsonWriter json(json_style(ElementType::float64));
  json.begin_object();
  json.string("schema", "regard/1");
  json.string("model", page.model);
  json.string("weights", page.weights);
  json.string("sha256", page.sha256);
  if (page.errors != nullptr) {
    const RoundingErrors& errors = *page.errors;
    json.name("errors");
    json.begin_object();
    json.string("mean cosine with the vectors of the full model", fmt::format("{:.5f}", errors.mean_cosine));
    json.string("… minimum", fmt::format("{:.5f}", errors.min_cosine));
    json.string("mean difference of a weight", fmt::format("{:.2g}", errors.mean_weight_difference));
    json.string("… maximum", fmt::format("{:.2g}", errors.max_weight_difference));
    json.string("bank → river in layer 0, head 4",
                fmt::format("{:.3f} → {:.3f}", kFloat32BankToRiver, errors.bank_to_river));
    json.string("sentences with the same finding", fmt::format("{} of {}", errors.same_findings, kRoundingSentences));
    json.end_object();
  }
  json.end_object();
  return json.take();
}

// The text and heading of the initial view, as the script draws them.
std::string heading_markup(const LivePage& page) {
  if (page.heading.empty()) return "";
  return fmt::format(
      "<main><nav class=\"views\">&nbsp;</nav><header class=\"sentence-header live\"><p class=\"citation\">{}</p>"
      "<div class=\"words live-words has-arcs\"><span class=\"typing\">{}</span></div>"
      "<p class=\"live-status\">Reading the model …</p><h1 class=\"finding\"><span>{}</span></h1></header></main>\n",
      escape_for_markup(page.model), escape_for_markup(page.title), escape_for_markup(page.heading));
}

void append_piece(std::string& html, std::string_view attributes, const LivePiece& piece) {
  html += fmt::format("<p {}{}>", attributes, piece.is_compressed ? " data-packed" : "");
  html.append(base64_of(piece.bytes)).append("</p>\n");
}
std::string site_element(std::string_view attributes, std::string_view name) {
  return fmt::format("<p {} data-href=\"{}\"></p>\n", attributes, escape_for_markup(name));
}

// core and file_element(file, its attributes) give the elements of the core and of a file of the model.
template <class FileElement>
std::string live_html(const LivePage& page, std::string_view more_policy, const std::string& core,
                      const FileElement& file_element) {
  const PageAssets assets = page_assets();
  const std::string policy = fmt::format("'wasm-unsafe-eval'; worker-src blob:{}", more_policy);
  std::string html = page_begin(page.title, {.script_sha256 = assets.live_script_sha256,
                                             .style = assets.live_style,
                                             .style_sha256 = assets.live_style_sha256,
                                             .more_policy = policy});
  html += heading_markup(page);
  append_data(html, page.first);
  append_data(html, {{"live", about_json(page)}});
  html.append("<script>").append(assets.live_script).append("</script>\n");
  // Browsers read text faster outside a script, and hidden elements are not laid out.
  html.append("<div hidden>\n").append(core);
  for (const LiveFile& file : page.files) {
    file_element(html, file,
                 fmt::format("class=\"model-file\" data-name=\"{}\" data-size=\"{}\"", escape_for_markup(file.name),
                             file.bytes.size()));
  }
  return html += "</div>\n</body>\n</html>\n";
}

}  // namespace

std::string render_live_html(const LivePage& page) {
  std::string core;
  append_piece(core, "id=\"core\"", {page.core, true});
  return live_html(page, "", core, [](std::string& html, const LiveFile& file, const std::string& attributes) {
    std::string_view piece_attributes = attributes;
    for (const LivePiece& piece : file.pieces) {
      append_piece(html, piece_attributes, piece);
      piece_attributes = "class=\"model-piece\"";
    }
  });
}

std::string render_live_site(const LivePage& page) {
  return live_html(page, "; connect-src 'self'", site_element("id=\"core\"", "core.wasm.gz"),
                   [](std::string& html, const LiveFile& file, const std::string& attributes) {
                     html += site_element(attributes, file.name);
                   });
}

}  // namespace regard::inline v0
