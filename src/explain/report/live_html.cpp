// SPDX-License-Identifier: Apache-2.0
//
// The frame of a live page; see regard/explain/live_html.h.
//
//     head: policy, title, style      body: first picture (JSON), script, core and files of the model as base 64
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
  if (page.errors != nullptr) {
    const RoundingErrors& errors = *page.errors;
    json.name("errors");
    json.begin_object();
    json.string("cosine with the vectors of the full model, mean", fmt::format("{:.5f}", errors.mean_cosine));
    json.string("… least", fmt::format("{:.5f}", errors.min_cosine));
    json.string("difference of a weight, mean", fmt::format("{:.2g}", errors.mean_weight_difference));
    json.string("… largest", fmt::format("{:.2g}", errors.max_weight_difference));
    json.string("bank → river in layer 0, head 4",
                fmt::format("{:.3f} → {:.3f}", kFloat32BankToRiver, errors.bank_to_river));
    json.string("sentences with the same finding", fmt::format("{} of {}", errors.same_findings, kRoundingSentences));
    json.end_object();
  }
  json.end_object();
  return json.take();
}

std::string bytes_element(std::string_view attributes, std::span<const std::byte> bytes) {
  std::string html = fmt::format("<script type=\"application/octet-stream\" {}>", attributes);
  html.append(base64_of(bytes)).append("</script>\n");
  return html;
}
std::string site_element(std::string_view attributes, std::string_view name) {
  return fmt::format("<script type=\"application/octet-stream\" {} data-href=\"{}\"></script>\n", attributes,
                     escape_for_markup(name));
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
  append_data(html, page.first);
  append_data(html, {{"live", about_json(page)}});
  html.append("<script>").append(assets.live_script).append("</script>\n");
  html += core;
  for (const LiveFile& file : page.files) {
    file_element(html, file,
                 fmt::format("class=\"model-file\" data-name=\"{}\" data-size=\"{}\"", escape_for_markup(file.name),
                             file.bytes.size()));
  }
  return html += "</body>\n</html>\n";
}

}  // namespace

std::string render_live_html(const LivePage& page) {
  return live_html(page, "", bytes_element("id=\"core\"", page.core),
                   [](std::string& html, const LiveFile& file, const std::string& attributes) {
                     html += bytes_element(attributes, file.compressed);
                   });
}

std::string render_live_site(const LivePage& page) {
  return live_html(page, "; connect-src 'self'", site_element("id=\"core\"", "core.wasm.gz"),
                   [](std::string& html, const LiveFile& file, const std::string& attributes) {
                     html += site_element(attributes, file.name);
                   });
}

}  // namespace regard::inline v0
