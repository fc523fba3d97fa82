// SPDX-License-Identifier: Apache-2.0
//
// The completion script for fish: one `complete` for each subcommand, option and argument, under the condition that
// its subcommand is the first word. Read next: command_tree.h.
#include <fmt/format.h>

#include "command_tree.h"

namespace regard::program {
namespace {

// fish hands over the words before the cursor; the subcommand is the first that is no option.
constexpr const char* kFunctions = R"(function __regard_is
    set -l words (commandline -opc)
    set -e words[1]
    for word in $words
        string match -q -- '-*' $word; or break
        set -e words[1]
    end
    if test (count $argv) -eq 0
        test (count $words) -eq 0
    else
        test "$words[1]" = $argv[1]
    end
end

function __regard_named_file
    set -l name (string match -r -- '^(?:--[^=]*=)?([^-=][^=]*=)' (commandline -ct))
    test (count $name) -eq 2; or return
    set -l path (string replace -r -- '^(?:--[^=]*=)?[^=]*=' '' (commandline -ct))
    for file in (__fish_complete_path $path)
        printf '%s%s\n' $name[2] $file
    end
end

complete -c regard -f
)";

// In single quotes, where only these two have a meaning.
std::string fish_quoted(std::string_view text) { return "'" + backslashed(text, "\\'") + "'"; }

// Where the value may be left out, fish must not ask for one.
std::string value_flags(const ValueType& value) {
  const std::string choices = fish_quoted(joined(value.choices, " "));
  std::string flags;
  if (value.kind == ValueType::Kind::needed) flags = value.path == ValueType::Path::none ? " -x" : " -r";
  if (value.path == ValueType::Path::file) flags += " -F";
  if (value.path == ValueType::Path::folder) flags += " -f -a '(__fish_complete_directories (commandline -ct) \"\")'";
  if (value.path == ValueType::Path::named_file) flags += " -f -a '(__regard_named_file)'";
  if (!value.choices.empty()) flags += " -a " + choices;
  return flags;
}

std::string completions_of(const CommandTree& command) {
  const std::string condition =
      "complete -c regard -n " + fish_quoted(command.name.empty() ? "__regard_is" : "__regard_is " + command.name);
  std::string lines;
  for (const CommandOption& option : command.options()) {
    std::string names;
    for (const std::string& name : option.names)
      names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    lines += condition + names + value_flags(option.value) +
             (option.help.empty() ? "" : " -d " + fish_quoted(option.help)) + "\n";
  }
  for (const CommandOption& argument : command.arguments) {
    ValueType value = argument.value;
    value.kind = ValueType::Kind::none;
    const std::string flags = value_flags(value);
    if (!flags.empty()) lines += condition + flags + "\n";
  }
  return lines;
}

}  // namespace

std::string fish_completion(const ProgramTree& tree) {
  std::string script = "# fish completion for regard, written by: regard completion fish\n\n";
  script += kFunctions;
  for (const CommandTree& command : tree.commands)
    script += fmt::format("complete -c regard -n __regard_is -a {} -d {}\n", fish_quoted(command.name),
                          fish_quoted(command.description));
  script += completions_of(tree.program);
  for (const CommandTree& command : tree.commands) script += "\n" + completions_of(command);
  return script;
}

}  // namespace regard::program
