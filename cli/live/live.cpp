// SPDX-License-Identifier: Apache-2.0
//
// `regard live -o FILE`: writes a live page, which contains the core and the installed model. As the reader types, the
// page recomputes everything that it shows.
//
//     model ── rounded ──▶ files in memory ┬─ initial view of the text ──┐
//     core (WebAssembly) ── gzip ──────────┴─────────────────────────────┴─▶ one HTML file, or a folder for a server
//
// Read next: core_module.h, regard/explain/live_html.h, docs/guide/live.md.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>

#include "core_module.h"
#include "model_options.h"
#include "program.h"
#include "pull/model_cache.h"
#include "regard/explain/lesson.h"
#include "regard/explain/live_html.h"
#include "regard/explain/sentence_html.h"

namespace regard::program {
namespace {

constexpr std::uint64_t kMaxModelBytes = std::uint64_t{1} << 30;
constexpr const char* kExampleText = "he sat on the bank of the river";
constexpr const char* kExampleWord = "bank";
constexpr const char* kFirstLesson = "three-words";
constexpr std::size_t kPieceBytes = 3 << 18;  // 2^20 characters of base64

struct LiveArguments {
  std::string text, query, output, site;
  std::string weights = "int8";
};

struct Weights {
  std::string_view name;
  const char* model;        // nullptr if there is no model
  std::size_t least_saved;  // of 1000 bytes: unpacking a piece that is compressed less is not worth its time
};
constexpr std::array kWeights = {Weights{"int8", "minilm-int8", 110}, Weights{"f16", "minilm-f16", 75},
                                 Weights{"f32", kPulledModel, 75}, Weights{"none", nullptr, 0}};

const Weights& weights_named(const std::string& name) {
  const auto found =
      std::find_if(kWeights.begin(), kWeights.end(), [&](const Weights& one) { return name == one.name; });
  if (found == kWeights.end()) reject_value("--weights", name, "int8, f16, f32 or none");
  return *found;
}

std::string gzip(std::span<const std::byte> bytes, int level) {
  constexpr int kGzip = 16, kWindowBits = 15, kMemoryLevel = 9;
  z_stream stream{};
  if (deflateInit2(&stream, level, Z_DEFLATED, kWindowBits + kGzip, kMemoryLevel, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, deflateEnd);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  if (deflate(&stream, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("zlib cannot compress");
  packed.resize(stream.total_out);
  return packed;
}

ModelInMemory model_files(const char* model) {
  const std::string folder = model_folder(kPulledModel);
  if (const std::optional<ElementType> type = rounded_type(model)) return rounded_model(folder, *type, model);
  const auto file = [&folder](const char* name) { return read_text(folder + "/" + name, kMaxModelBytes); };
  const std::string bytes = file("model.safetensors");
  const std::span<const std::byte> all = std::as_bytes(std::span(bytes));
  return {.name = model,
          .config_json = file("config.json"),
          .tokenizer_json = file("tokenizer.json"),
          .safetensors = share_bytes({all.begin(), all.end()})};
}

void add_model(const LiveArguments& arguments, const ModelInMemory& files, LivePage& page) {
  const SentenceModel model = read_sentence_model(files);
  const bool own = !arguments.text.empty();
  const std::string text = own ? arguments.text : kExampleText;
  const std::string query = own ? arguments.query : kExampleWord;
  usage("", [&] {
    const SentenceAnalysis analysis = analyze_sentence(model, text, {.query = query, .truncate = true});
    page.heading = sentence_findings(analysis).finding;
    page.sha256 = analysis.sha256;
    page.first = sentence_page_data(model, analysis, {.command = command_line()});
  });
  page.title = text;
  page.model = files.name;
  const auto bytes_of = [](const std::string& file) { return std::as_bytes(std::span(file)); };
  page.files = {{.name = "config.json", .bytes = bytes_of(files.config_json)},
                {.name = "tokenizer.json", .bytes = bytes_of(files.tokenizer_json)},
                {.name = "model.safetensors", .bytes = files.safetensors.span()}};
}

void write_page(const LiveArguments& arguments, LivePage& page) {
  OutputFiles files;
  const auto write = [&files](const std::string& path, const void* bytes, std::size_t count) {
    files.write(files.add(path), bytes, count);
  };
  if (!arguments.output.empty()) {
    const std::size_t least_saved = weights_named(arguments.weights).least_saved;
    std::deque<std::string> compressed;
    for (LiveFile& file : page.files) {
      for (std::span<const std::byte> rest = file.bytes; !rest.empty();) {
        const std::span<const std::byte> piece = rest.first(std::min(kPieceBytes, rest.size()));
        compressed.push_back(gzip(piece, Z_DEFAULT_COMPRESSION));
        const bool is_compressed = compressed.back().size() * 1000 <= piece.size() * (1000 - least_saved);
        file.pieces.push_back({is_compressed ? std::as_bytes(std::span(compressed.back())) : piece, is_compressed});
        rest = rest.subspan(piece.size());
      }
    }
    const std::string html = render_live_html(page);
    write(arguments.output, html.data(), html.size());
  }
  std::optional<OutputFolder> folder;
  if (!arguments.site.empty()) {
    folder.emplace(arguments.site);
    const std::string html = render_live_site(page);
    write((folder->path() / "index.html").string(), html.data(), html.size());
    write((folder->path() / "core.wasm.gz").string(), page.core.data(), page.core.size());
    for (const LiveFile& file : page.files)
      write((folder->path() / file.name).string(), file.bytes.data(), file.bytes.size());
  }
  files.commit();
}

void live(const LiveArguments& arguments) {
  if (core_module().empty())
    throw std::runtime_error(
        "this program was built without the core of live pages; install clang-19 lld-19 wasi-libc "
        "libc++-19-dev-wasm32 libc++abi-19-dev-wasm32 libclang-rt-19-dev-wasm32, and build it again");
  const std::string core = gzip(core_module(), Z_BEST_COMPRESSION);
  LivePage page{.core = std::as_bytes(std::span(core)), .weights = arguments.weights};
  ModelInMemory files;
  if (const char* const model = weights_named(arguments.weights).model) {
    files = model_files(model);
    if (const std::optional<ElementType> type = rounded_type(model)) page.errors = &minilm_rounding_errors(*type);
    add_model(arguments, files, page);
  } else {
    const Explanation lesson = explain(lesson_input(kFirstLesson));
    page.title = "Attention, step by step";
    page.first = page_data(lesson, {.command = command_line()});
  }
  write_page(arguments, page);
  if (!arguments.output.empty() && arguments.output != "-")
    write_stdout(page_line(arguments.output, "type your own sentence").substr(1));
  if (!arguments.site.empty())
    write_stdout(fmt::format("  site   {}: put its files on any web server\n", arguments.site));
}

}  // namespace

void add_live(CLI::App& app) {
  auto arguments = std::make_shared<LiveArguments>();
  CLI::App* command = app.add_subcommand("live", "Write a page that recomputes attention as you type");
  command->add_option("text", arguments->text, "the sentence shown when the page opens")->type_name("\"TEXT\"");
  command->add_option("--query", arguments->query, "the query word selected when the page opens")->type_name("WORD");
  command
      ->add_option("-o,--output", arguments->output, "write one HTML file that works offline (- for\nstandard output)")
      ->type_name("FILE");
  command->add_option("--site", arguments->site, "write the page to FOLDER as separate files for a\nweb server")
      ->type_name("FOLDER");
  command
      ->add_option("--weights", arguments->weights,
                   "the model in the page: int8 (minilm-int8, 31 MB,\nthe default), f16 (minilm-f16, 58 MB),\n"
                   "f32 (minilm, 113 MB), or none (lessons and matrices\nonly)")
      ->type_name("int8|f16|f32|none");
  command->footer(
      "EXAMPLES\n"
      "  regard live -o live.html\n"
      "  regard live -o live.html \"time flies like an arrow\" --query flies\n"
      "  regard live -o lessons.html --weights none\n"
      "  regard live --site site\n"
      "\n"
      "The page runs in Chromium, Firefox and Safari, from a file or from a server.\n"
      "With the default weights, its results match those of\n"
      "regard explain --model minilm-int8.");
  command->callback([arguments] {
    const Weights& weights = weights_named(arguments->weights);
    if (arguments->output.empty() && arguments->site.empty())
      throw UsageError("nothing to write; give -o FILE for one file or --site FOLDER for a web server");
    if (weights.model == nullptr && !arguments->text.empty())
      throw UsageError("a sentence needs a model, which --weights none omits; give only one of them");
    if (!arguments->query.empty() && arguments->text.empty())
      throw UsageError("--query selects a word in a sentence; give the sentence in quotes");
    live(*arguments);
  });
}

}  // namespace regard::program
