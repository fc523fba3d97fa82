// SPDX-License-Identifier: Apache-2.0
//
// `regard lesson`: worked examples of attention from documents, computed step by step. It takes every option of
// `explain`; if an option changes a setting of the document, both results are shown.
//
//     NAME  →  lesson_input  →  variant with the given options  →  the steps of explain, or with --export their JSON
//
// Read next: explain_options.h, regard/explain/lesson.h, docs/guide/lessons.md.
#include "regard/explain/lesson.h"

#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "explain_options.h"
#include "program.h"
#include "regard/io/json_writer.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

std::string list_text() {
  std::string text, aliases;
  for (const LessonEntry& entry : lesson_entries()) {
    text += fmt::format("{:<12}  {}\n", entry.name, entry.title);
    if (!entry.alias.empty()) aliases += fmt::format("{}{} {}", aliases.empty() ? "" : ", ", entry.alias, entry.name);
  }
  return text + "\nregard lesson NAME runs a lesson; regard lesson NAME --step N shows one step.\n" +
         "Aliases: " + aliases + ".\n";
}

// "--scale sqrt --causal": the options that differ from the document, as typed.
std::string label_of(const ExplainText& text) {
  std::string label;
  const auto add = [&](const char* option, const std::string& value) {
    if (value.empty()) return;
    label += fmt::format("{}{}{}", label.empty() ? "" : " ", option, value == "true" ? "" : " " + value);
  };
  add("--causal", text.causal);
  add("--scale", text.scale);
  add("--dtype", text.dtype);
  add("--softmax", text.softmax);
  add("--softmax-base", text.softmax_base);
  return label;
}

// The list as JSON.
std::string list_json() {
  JsonWriter json;
  json.begin_object();
  json.string("schema", "regard/1");
  json.string("command", command_line());
  json.string("version", version());
  const auto write_entry = [&json](const LessonEntry& entry) {
    json.string("name", entry.name);
    json.string("alias", entry.alias);
    json.string("title", entry.title);
  };
  json.objects("lessons", lesson_entries(), write_entry, JsonLayout::lines, JsonLayout::one_line);
  json.end_object();
  return json.take();
}

void run_lesson(const std::string& name, bool write_input, const ExplainText& text) {
  if (!text.heads.empty())
    throw UsageError(
        "--heads does not apply to lessons, whose steps define the heads (by-hand has two); to split "
        "your own matrices, use regard explain");
  const ExplainInput lesson = lesson_input(name);
  ExplainInput changed = lesson;
  // With other words, the query stays at the same position.
  if (!text.tokens.empty() && !lesson.settings.query.empty()) {
    changed.settings.query = fmt::format("@{}", token_index(lesson.tokens, lesson.settings.query));
  }
  override_settings(text, changed);
  ExplainInput input = with_compared_settings(lesson, changed.settings, label_of(text));
  input.tokens = changed.tokens;
  if (write_input) {
    write_stdout(write_explain_input(input) + "\n");
  } else {
    show_explanation(input, text);
  }
}

void declare_dependencies(CLI::App& command) {
  CLI::Option* const name = command.get_option("NAME");
  CLI::Option* const write_input = command.get_option("--export");
  excludes(command.get_option("--list"), name, "--list lists every lesson; omit the lesson name");
  for (CLI::Option* option : command.get_options()) {
    const std::string& text = option->get_name();
    if (option == name || text == "--help" || text == "--list" || text == "--json" || text == "--color") continue;
    needs(option, name, text + " needs the name of a lesson; regard lesson lists all names");
  }
  for (const std::string view : {"--json", "--step", "--cell", "--full", "--html", "--pause"})
    excludes(write_input, command.get_option(view),
             "--export prints the lesson's input as JSON, and " + view +
                 " controls how results are shown; give only one of them");
}

}  // namespace

void add_lesson(CLI::App& app) {
  struct Options {
    std::string name;
    bool list = false;
    bool write_input = false;
    ExplainText text;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("lesson", "Run a worked example of attention, step by step");
  std::string names;
  for (const LessonEntry& entry : lesson_entries()) names += (names.empty() ? "" : "|") + entry.name;
  command->add_option("NAME", options->name, "the lesson (default: list all lessons)")->type_name(names);
  command->add_flag("--list", options->list, "list the lessons and their aliases");
  command->add_flag("--export", options->write_input, "print the lesson as JSON for regard explain --input")
      ->group("OUTPUT (all indices start at 0)");
  add_explain_options(*command, options->text, "SETTINGS (changed results are shown next to the lesson's)");
  command->get_option("--heads")->group("");  // not shown: it is rejected
  declare_dependencies(*command);
  command->footer(
      "EXAMPLES\n"
      "  regard lesson --list                           list the lessons\n"
      "  regard lesson three-words                      run one\n"
      "  regard lesson three-words --scale sqrt         the same with scaled scores\n"
      "  regard lesson roles --step weights --cell 1,0  show how a weight is computed\n"
      "  regard lesson by-hand --pause                  one step per keypress\n"
      "  regard lesson from-seed --export | regard explain --input -\n"
      "\n"
      "The exported JSON can be edited. regard explain then reports the number of\n"
      "values that still match the document.");
  command->callback([options, command] {
    // A lesson itself is valid, so every error is in the command line.
    if (command->get_option("NAME")->count() > 0)
      return usage("", [&] { run_lesson(options->name, options->write_input, options->text); });
    write_stdout(options->text.json ? list_json() : list_text());
  });
}

}  // namespace regard::program
