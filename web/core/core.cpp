// SPDX-License-Identifier: Apache-2.0
//
// The core of a live page: the answers of the WebAssembly module. A request is one line of JSON, followed by a payload
// for some; its answer is JSON made of the same texts that `regard … --html` writes into a page.
//
//     {"do": "tokenizer"}                                       reads tokenizer.json, before the other files are there
//     {"do": "open", "name": "minilm-int8", "sha256": …}        the files that were added, as a model
//     {"do": "sentence", "text": …, "query": …, "layer": …, "head": …, "hide": […], "quick": true, "sums": true,
//      "arrays": true}
//     {"do": "compare", "word": …, "sentences": […], "hide": […]}
//     {"do": "lessons"}      {"do": "lesson", "name": …, "layout": "columns"}
//     {"do": "explain", "lesson": …} and the input's JSON
//     {"do": "csv", "name": …} or {"do": "npy", "name": …} and the bytes of a file: its matrix
//     {"do": "write_npy"} and {"name": matrix}: an NPY file, as hexadecimal digits
//
// Errors become JavaScript Errors (platform/throw.cpp).
// Read next: exports.cpp, web/live/core.js.
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "regard/explain/compare.h"
#include "regard/explain/lesson.h"
#include "regard/explain/sentence_html.h"
#include "regard/explain/steps.h"
#include "regard/io/csv.h"
#include "regard/io/json_fields.h"
#include "regard/io/json_writer.h"
#include "regard/io/npy.h"
#include "requests.h"

namespace regard {
namespace {

constexpr const char* kRequest = "request";

struct Core {
  std::optional<Tokenizer> tokenizer{};
  std::optional<SentenceModel> model{};
};
Core& core() {
  static Core core;
  return core;
}

std::string text_or(const JsonFields& request, std::string_view name) {
  return request.find(name) == nullptr ? "" : request.text(name);
}
std::vector<std::string> texts(const JsonFields& request, std::string_view name) {
  std::vector<std::string> all;
  if (const JsonValue* const list = request.find(name)) {
    for (const JsonValue& item : list->items()) all.push_back(item.text());
  }
  return all;
}
std::optional<Index> index_or_none(const JsonFields& request, std::string_view name) {
  if (request.find(name) == nullptr) return std::nullopt;
  return request.whole(name, 0, 1 << 20);
}
bool is_set(const JsonFields& request, std::string_view name) {
  return request.find(name) != nullptr && request.boolean(name);
}

// {"name": text, …}, where each text is JSON; web/live/worker.js finds "explanation" and "page" by their line breaks.
std::string object_of(const std::vector<NamedText>& members) {
  JsonWriter json({.indent = 0});
  json.begin_object();
  for (const NamedText& member : members) json.json(member.name, member.text);
  json.end_object();
  return json.take();
}

const SentenceModel& opened_model() {
  if (!core().model) throw InvalidArgument("no model is open");
  return *core().model;
}

SharedBytes taken_file(std::string_view name) {
  const auto at = added_files().find(name);
  if (at == added_files().end()) throw InvalidArgument("missing file: " + std::string(name));
  return added_files().extract(at).mapped();
}
std::string_view text_of(const SharedBytes& file) {
  return {reinterpret_cast<const char*>(file.first.get()), file.count};
}

std::string read_tokenizer() {
  core().tokenizer.emplace(Tokenizer::read(text_of(taken_file("tokenizer.json")), "tokenizer.json"));
  return "{}\n";
}

std::string open_model(const JsonFields& request) {
  const std::string& name = request.text("name");
  if (!core().tokenizer) read_tokenizer();
  core().model.emplace(read_sentence_model({.name = name,
                                            .config_json = std::string(text_of(taken_file("config.json"))),
                                            .tokenizer_json = {},
                                            .tokenizer = std::move(core().tokenizer),
                                            .safetensors = taken_file("model.safetensors"),
                                            .sha256 = text_or(request, "sha256")}));
  core().tokenizer.reset();
  const ModelExtents extents = core().model->extents();
  JsonWriter json;
  json.begin_object();
  json.string("name", request.text("name"));
  json.whole("layers", extents.num_layers);
  json.whole("heads", extents.num_heads);
  json.whole("head_size", extents.head_size);
  json.whole("max_tokens", extents.max_positions);
  json.string("sha256", core().model->sha256());
  json.end_object();
  return json.take();
}

std::string sentence(const JsonFields& request) {
  const SentenceModel& model = opened_model();
  const SentenceAnalysisOptions options{.query = text_or(request, "query"),
                                        .layer = index_or_none(request, "layer"),
                                        .head = index_or_none(request, "head"),
                                        .hide = texts(request, "hide"),
                                        .truncate = true,
                                        .hide_each = !is_set(request, "quick"),
                                        .only_query = true};
  const SentenceAnalysis analysis = analyze_sentence(model, request.text("text"), options);
  return object_of(sentence_page_data(model, analysis,
                                      {.command = text_or(request, "command"),
                                       .gram = !is_set(request, "quick"),
                                       .sums = !is_set(request, "quick") || is_set(request, "sums"),
                                       .arrays = is_set(request, "arrays") ? &answer_arrays() : nullptr}));
}

std::string compare(const JsonFields& request) {
  const Comparison comparison = compare_word(opened_model(), request.text("word"), texts(request, "sentences"),
                                             {.hide = texts(request, "hide"), .control = {}, .truncate = true});
  return object_of({{"comparison", render_compare_json(comparison, text_or(request, "command"))}});
}

std::string lessons() {
  JsonWriter json;
  json.begin_object();
  json.objects("lessons", lesson_entries(), [&json](const LessonEntry& entry) {
    json.string("name", entry.name);
    json.string("alias", entry.alias);
    json.string("title", entry.title);
  });
  json.end_object();
  return json.take();
}

std::string explained(const ExplainInput& input, const std::string& command, const std::vector<NamedText>& more) {
  std::vector<NamedText> answer = page_data(explain(input), {.command = command});
  answer.insert(answer.end(), more.begin(), more.end());
  return object_of(answer);
}

std::string lesson(const JsonFields& request) {
  ExplainInput input = lesson_input(request.text("name"));
  const std::string own_layout = input.settings.layout == Layout::rows ? "\"rows\"" : "\"columns\"";
  if (request.find("layout") != nullptr) input = with_layout(std::move(input), parse_layout(request.text("layout")));
  return explained(input, text_or(request, "command"),
                   {{"input", write_explain_input(input)}, {"own_layout", own_layout}});
}

std::string explain_payload(const JsonFields& request, std::string_view payload) {
  ExplainInput input = read_explain_input(payload, "the numbers");
  input.lesson = text_or(request, "lesson");
  return explained(input, text_or(request, "command"), {});
}

std::string matrix_answer(const Matrix& matrix) {
  JsonWriter json;
  json.begin_object();
  json.matrix("matrix", matrix);
  json.end_object();
  return json.take();
}

std::string npy_file(std::string_view payload) {
  const ExplainInput input = read_explain_input(payload, "the numbers");
  if (input.matrices.size() != 1) throw InvalidArgument("an NPY file has one matrix");
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string file;
  for (const char byte : write_npy(input.matrices[0].matrix)) {
    file += kDigits[static_cast<unsigned char>(byte) >> 4];
    file += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  JsonWriter json;
  json.begin_object();
  json.string("file", file);
  json.end_object();
  return json.take();
}

}  // namespace

std::string answer_to(std::string_view text) {
  const std::size_t line = std::min(text.find('\n'), text.size());
  const std::string_view payload = text.substr(std::min(line + 1, text.size()));
  const JsonValue root = read_json(text.substr(0, line), kRequest);
  const JsonFields request(kRequest, root);
  const std::string& action = request.text("do");
  if (action == "tokenizer") return read_tokenizer();
  if (action == "open") return open_model(request);
  if (action == "sentence") return sentence(request);
  if (action == "compare") return compare(request);
  if (action == "lessons") return lessons();
  if (action == "lesson") return lesson(request);
  if (action == "explain") return explain_payload(request, payload);
  if (action == "csv") return matrix_answer(read_csv(payload, request.text("name")));
  if (action == "npy") return matrix_answer(read_npy(payload, request.text("name")));
  if (action == "write_npy") return npy_file(payload);
  throw InvalidArgument("unknown request: " + action);
}

}  // namespace regard
