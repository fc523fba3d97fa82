// SPDX-License-Identifier: Apache-2.0
//
// The completion script for zsh: one call to _arguments for each subcommand. It works both as a file _regard in $fpath
// and when it is sourced. Read next: command_tree.h.
#include <fmt/format.h>

#include "command_tree.h"
#include "program.h"

namespace regard::program {
namespace {

const std::string kNextLine = " \\\n            ";

constexpr const char* kNamedFile = R"(_regard_named_file() {
    if compset -P '*='; then _files; else _message 'NAME=FILE'; fi
}

)";

constexpr const char* kScriptEnd = R"(
if [[ $funcstack[1] == _regard ]]; then _regard "$@"; else compdef _regard regard; fi
)";

// ":OFFSET:(top_left bottom_right)": the message and the completion action of a value for _arguments.
std::string message_and_action(const CommandOption& option, bool is_argument) {
  const ValueType& value = option.value;
  const std::string shown = is_argument ? option.names.front() : joined(value.alternatives, "|");
  std::string action;
  const std::string choices = joined(value.choices, " ");
  const auto with_choices = [&](const std::string& paths) {
    return value.choices.empty() ? paths : fmt::format("{{ compadd -- {}; {} }}", choices, paths);
  };
  switch (value.path) {
    case ValueType::Path::file:
      action = with_choices("_files");
      break;
    case ValueType::Path::folder:
      action = with_choices("_files -/");
      break;
    case ValueType::Path::named_file:
      action = "_regard_named_file";
      break;
    case ValueType::Path::none:
      action = value.choices.empty() ? " " : "(" + choices + ")";
      break;
  }
  return ":" + backslashed(shown, "\\:") + ":" + action;
}

// '(-o --output)-o+[help]:FILE:_files' for each name.
std::string option_specs(const CommandOption& option) {
  std::string specs;
  for (const std::string& name : option.names) {
    std::string spec = option.repeats            ? "*"
                       : option.names.size() > 1 ? fmt::format("({})", joined(option.names, " "))
                                                 : "";
    if (name == "--help" || name == "-h") spec = "(- *)";
    spec += name;
    if (option.value.kind == ValueType::Kind::after_equals) spec += "=-";
    if (option.value.kind == ValueType::Kind::needed) spec += name.starts_with("--") ? "=" : "+";
    spec += "[" + backslashed(option.help, "\\]") + "]";
    if (option.value.kind == ValueType::Kind::after_equals) spec += ":";
    if (option.value.kind != ValueType::Kind::none) spec += message_and_action(option, false);
    specs += kNextLine + quote_for_shell(spec);
  }
  return specs;
}

std::string all_option_specs(const CommandTree& command) {
  std::string specs;
  for (const CommandOption& option : command.options()) specs += option_specs(option);
  return specs;
}

std::string command_case(const CommandTree& command) {
  std::string specs = all_option_specs(command);
  for (const CommandOption& argument : command.arguments)
    specs += kNextLine +
             quote_for_shell(fmt::format("{}{}", argument.repeats ? '*' : ':', message_and_action(argument, true)));
  return fmt::format("        {})\n            _arguments -S{} && ret=0\n            ;;\n",
                     quote_for_shell(command.name), specs);
}

}  // namespace

std::string zsh_completion(const ProgramTree& tree) {
  std::string script = "#compdef regard\n# zsh completion for regard, written by: regard completion zsh\n\n";
  script += kNamedFile;
  script += "_regard_commands() {\n    local -a commands\n    commands=(\n";
  for (const CommandTree& command : tree.commands)
    script += "        " + quote_for_shell(backslashed(command.name, "\\:") + ":" + command.description) + "\n";
  script += "    )\n    _describe -t commands 'regard command' commands\n}\n\n";
  script +=
      "_regard() {\n"
      "    local context state state_descr line ret=1\n"
      "    typeset -A opt_args\n"
      "    _arguments -S -C" +
      all_option_specs(tree.program) +
      " \\\n            '1: :_regard_commands' \\\n            '*:: :->arguments' && ret=0\n"
      "    if [[ $state != arguments ]]; then return ret; fi\n"
      "    case $words[1] in\n";
  for (const CommandTree& command : tree.commands) script += command_case(command);
  return script + "    esac\n    return ret\n}\n" + kScriptEnd;
}

}  // namespace regard::program
