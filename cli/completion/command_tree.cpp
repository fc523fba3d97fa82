// SPDX-License-Identifier: Apache-2.0
//
// Converts CLI11's options to plain data; see command_tree.h. Read next: completion.cpp.
#include "command_tree.h"

#include <algorithm>

#include "program.h"
#include "regard/explain/lesson.h"
#include "save_sentence.h"

namespace regard::program {
namespace {

// Names of steps: those of all lessons, or the standard steps.
std::vector<std::string> step_names(bool of_lessons) {
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (is_choice(name) && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  if (of_lessons) {
    for (const LessonEntry& lesson : lesson_entries()) {
      const ExplainInput input = lesson_input(lesson.name);
      for (const StepRequest& step : input.steps.empty() ? standard_steps(input) : input.steps)
        add(step.name.empty() ? std::string(operation_name(step.operation)) : step.name);
    }
    return names;
  }
  ExplainInput input;
  for (const char* name : {"X", "W_query", "W_key", "W_value", "W_output"})
    input.matrices.push_back({name, matrix_of({{1, 0}, {0, 1}})});
  input.settings.causal.rule = CausalRule::top_left;
  input.settings.heads = 2;
  for (const StepRequest& step : standard_steps(input)) add(step.name);
  return names;
}

// Possible values of an option that are too many for its type_name in the help.
std::vector<std::string> unlisted_choices(const std::string& command, const CLI::Option& option) {
  if (option.check_lname("step")) return step_names(command == "lesson");
  std::vector<std::string> names;
  if (option.check_lname("arrays")) {
    for (const std::string_view name : split(kSavedNames, ','))
      names.emplace_back(name.substr(name.find_first_not_of(' ')));
  }
  return names;
}

// Joins the lines of a help text. A control character would end a line of a script; our help texts have none.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return line;
}

CommandOption read_option(const std::string& command, const CLI::Option& option) {
  CommandOption read{{}, one_line(option.get_description()), value_type(option), option.get_items_expected_max() > 1};
  if (read.value.choices.empty()) read.value.choices = unlisted_choices(command, option);
  for (const std::string& name : option.get_snames()) read.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) read.names.push_back("--" + name);
  if (!option.nonpositional()) read.names.push_back(option.get_name(true));
  return read;
}

CommandTree read_command(const CLI::App& app, bool is_program) {
  CommandTree command{is_program ? "" : app.get_name(), one_line(app.get_description()), app.get_footer(), {}, {}};
  for (const std::string& title : app.get_groups()) {
    if (title.empty()) continue;
    OptionGroup group{title == "Options" ? "" : one_line(title), {}};
    for (const CLI::Option* option : app.get_options([&](const CLI::Option* o) { return o->get_group() == title; }))
      (option->nonpositional() ? group.options : command.arguments).push_back(read_option(command.name, *option));
    if (!group.options.empty()) command.groups.push_back(std::move(group));
  }
  return command;
}

}  // namespace

bool is_choice(std::string_view alternative) {
  constexpr std::string_view kFirst = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  return !alternative.empty() && kFirst.find(alternative[0]) != std::string_view::npos &&
         alternative.find_first_not_of(kLetters) == std::string_view::npos;
}

ValueType value_type(const CLI::Option& option) {
  ValueType value;
  if (option.get_items_expected_max() == 0) return value;
  value.kind = option.get_items_expected_min() == 0 && option.nonpositional() ? ValueType::Kind::after_equals
                                                                              : ValueType::Kind::needed;
  const std::string shown = option.get_type_name();
  std::string_view type = shown;
  if (type.starts_with("[=") && type.ends_with(']')) type = type.substr(2, type.size() - 3);
  for (std::string_view alternative : split(type, '|')) {
    value.alternatives.push_back(one_line(alternative));
    if (is_choice(alternative)) value.choices.emplace_back(alternative);
    if (alternative == "FILE") value.path = ValueType::Path::file;
    if (alternative == "FOLDER") value.path = ValueType::Path::folder;
    if (alternative.ends_with("=FILE")) value.path = ValueType::Path::named_file;
  }
  return value;
}

std::vector<CommandOption> CommandTree::options() const {
  std::vector<CommandOption> all;
  for (const OptionGroup& group : groups) all.insert(all.end(), group.options.begin(), group.options.end());
  return all;
}

ProgramTree read_tree(const CLI::App& app) {
  ProgramTree tree{read_command(app, true), {}};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* c) { return !c->get_group().empty(); }))
    tree.commands.push_back(read_command(*command, false));
  return tree;
}

}  // namespace regard::program
