// SPDX-License-Identifier: Apache-2.0
//
// `regard generate`: continues a prompt with the decoder of a training run.
//
//     prompt ── vocabulary ──▶ ids ── generate ── token by token ──▶ standard output, or JSON at the end
//
// The text is written as it is generated, as far as it is complete UTF-8: a token of byte pairs may end within a
// character. Read next: regard/model/generate.h, docs/guide/training.md.
#include "regard/model/generate.h"

#include <fmt/format.h>

#include <memory>

#include "program.h"
#include "regard/io/utf8.h"
#include "regard/train/trained_model.h"

namespace regard::program {
namespace {

constexpr std::uint64_t kMaxPromptBytes = std::uint64_t{64} << 20;
constexpr Index kDefaultTokens = 256;

struct GenerateArguments {
  std::string run, prompt, tokens, temperature, top_k, top_p, seed;
  bool json = false, map = false;
};

GenerateOptions parse_options(const GenerateArguments& arguments) {
  GenerateOptions options{.max_tokens = kDefaultTokens};
  if (!arguments.tokens.empty()) options.max_tokens = parse_integer("--tokens", arguments.tokens);
  if (options.max_tokens < 1) throw UsageError(fmt::format("--tokens is {}; expected at least 1", options.max_tokens));
  SamplingOptions& sampling = options.sampling;
  if (!arguments.temperature.empty()) sampling.temperature = parse_number("--temperature", arguments.temperature);
  if (!arguments.top_k.empty()) sampling.top_k = parse_integer("--top-k", arguments.top_k);
  if (!arguments.top_p.empty()) sampling.top_p = parse_number("--top-p", arguments.top_p);
  if (!arguments.seed.empty()) {
    const Index seed = parse_integer("--seed", arguments.seed);
    if (seed < 0) throw UsageError(fmt::format("--seed is {}; expected at least 0", seed));
    sampling.seed = static_cast<std::uint64_t>(seed);
  }
  usage("", [&] { check_sampling(sampling); });
  return options;
}

std::string prompt_of(const std::string& argument) {
  if (argument != "-") return argument;
  std::string text = read_text(argument, kMaxPromptBytes);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

// Escapes what could control a terminal, except for line breaks and tabs.
std::string for_terminal(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t plain = std::min(text.find_first_of("\n\t"), text.size());
    shown += escape_for_terminal(text.substr(0, plain));
    text.remove_prefix(plain);
    const std::size_t spaces = std::min(text.find_first_not_of("\n\t"), text.size());
    shown += text.substr(0, spaces);
    text.remove_prefix(spaces);
  }
  return shown;
}

// The number of bytes at the end that may be the beginning of a character.
std::size_t incomplete_bytes(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if (byte < 0x80) return 0;
    if (byte >= 0xc0) return n < (byte >= 0xf0 ? 4U : byte >= 0xe0 ? 3U : 2U) ? n : 0;
  }
  return 0;
}

// Writes a text in pieces, each up to its last complete character.
class StreamedText {
 public:
  void write(std::string_view piece) {
    waiting_ += piece;
    flush(waiting_.size() - incomplete_bytes(waiting_));
  }
  void finish() {
    flush(waiting_.size());
    if (!ends_line_) write_stdout("\n");
  }

 private:
  void flush(std::size_t count) {
    if (count == 0) return;
    const std::string_view text = std::string_view(waiting_).substr(0, count);
    write_stdout(is_terminal_ ? for_terminal(text) : std::string(text));
    ends_line_ = text.ends_with('\n');
    waiting_.erase(0, count);
  }

  const bool is_terminal_ = writes_to_terminal();
  std::string waiting_;
  bool ends_line_ = false;
};

void stream(const TrainedModel& model, const std::string& prompt, const std::vector<Index>& ids,
            GenerateOptions options) {
  StreamedText text;
  const bool words = model.vocabulary.kind() == VocabularyKind::words;
  text.write(words ? model.vocabulary.decode(ids) : prompt);
  options.on_token = [&](Index id) {
    text.write(fmt::format("{}{}", words ? " " : "", model.vocabulary.token(id)));
    return true;
  };
  generate(model.decoder, ids, options);
  text.finish();
}

std::string generated_json(const TrainedModel& model, const std::string& prompt, const std::vector<Index>& ids,
                           const GenerateOptions& options) {
  const Generated generated = generate(model.decoder, ids, options);
  JsonWriter json;
  json.begin_object();
  json.source(command_line());
  json.name("model");
  json.begin_object();
  json.string("folder", model.folder);
  json.string("sha256", model.decoder.checkpoint->sha256());
  json.end_object();
  json.name("sampling");
  json.begin_object();
  json.number("temperature", options.sampling.temperature);
  json.whole("top_k", options.sampling.top_k);
  json.number("top_p", options.sampling.top_p);
  json.string("seed", fmt::format("{}", options.sampling.seed));
  json.end_object();
  json.string("prompt", prompt);
  json.list("prompt_ids", ids);
  json.string("text", model.vocabulary.decode(generated.ids));
  json.list("ids", generated.ids);
  json.string("end", generated.end == GenerationEnd::context ? "context" : "tokens");
  json.end_object();
  return json.take();
}

void run_generate(const GenerateArguments& arguments) {
  const GenerateOptions options = parse_options(arguments);
  const std::string prompt = prompt_of(arguments.prompt);
  const TrainedModel model = load_trained_model(arguments.run, {.map = arguments.map});
  const std::vector<Index> ids = usage("the prompt", [&] { return model.vocabulary.encode(prompt); });
  const Index positions = model.decoder.config.max_positions;
  if (ids.empty()) throw UsageError("the prompt has no tokens; expected at least one");
  if (static_cast<Index>(ids.size()) > positions) {
    throw UsageError(
        fmt::format("the prompt has {} tokens and the model has {} positions; shorten it", ids.size(), positions));
  }
  if (arguments.json) {
    write_stdout(generated_json(model, prompt, ids, options));
  } else {
    stream(model, prompt, ids, options);
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  auto arguments = std::make_shared<GenerateArguments>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a decoder trained by regard train");
  command
      ->add_option("run", arguments->run,
                   "the folder of a training run (its newest checkpoint\nis used), or a checkpoint")
      ->type_name("RUN")
      ->required();
  command->add_option("prompt", arguments->prompt, "the beginning of the text, or - to read it from\nstandard input")
      ->type_name("\"PROMPT\"")
      ->required();
  const auto add = [&](const char* name, std::string& value, const char* type, const char* help) {
    command->add_option(name, value, help)->type_name(type);
  };
  add("--tokens", arguments->tokens, "N",
      "maximum number of tokens to generate (default: 256);\ngeneration also stops at the model's context length");
  add("--temperature", arguments->temperature, "X",
      "divide the logits by X (default: 1); with 0,\nalways choose the most probable token (greedy)");
  add("--top-k", arguments->top_k, "K", "sample only from the K most probable tokens\n(default: 0, all tokens)");
  add("--top-p", arguments->top_p, "P",
      "sample only from the smallest set of most probable\n"
      "tokens whose probabilities sum to at least P\n"
      "(default: 1, all tokens)");
  add("--seed", arguments->seed, "N", "random seed (default: 0)");
  command->add_flag("--json", arguments->json,
                    "print the text, the tokens and the settings as JSON\nafter generation ends");
  command->add_flag("--mmap", arguments->map, "memory-map the checkpoint instead of reading it");
  command->footer(
      "EXAMPLES\n"
      "  regard train --text book.txt --run book\n"
      "  regard generate book \"Once upon\" --temperature 0.8 --top-k 40 --seed 7\n"
      "  regard train --task sort --run sort\n"
      "  regard generate sort \"^ 2 0 1 2 1 0 =\" --temperature 0\n"
      "\n"
      "Each token depends only on the tokens before it, the options and the seed, not\n"
      "on the number of threads. The prompt is printed first.");
  command->callback([arguments] { run_generate(*arguments); });
}

}  // namespace regard::program
