// SPDX-License-Identifier: Apache-2.0
//
// The completion script for fish: one `complete` for each subcommand, option and argument. Its condition is that the
// subcommand is the first word and, for an argument, that the previous ones are given. Read next: command_tree.h.
#include <fmt/format.h>

#include "command_tree.h"

namespace regard::program {
namespace {

// fish passes the words before the cursor; the subcommand is the first that is not an option.
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

# Whether $argv[2] arguments of the subcommand precede the cursor.
function __regard_argument
    __regard_is $argv[1]; or return
    set -l words (commandline -opc)
    set -e words[1]
    set -l count -1
    set -l before nothing
    for word in $words
        if test $before = option
            set before nothing
        else if test $before = nothing; and test "$word" = --
            set before arguments
        else if test $before = nothing; and string match -q -- '-?*' $word
            if __regard_takes_word "$argv[1] $word"
                set before option
            end
        else
            set count (math $count + 1)
        end
    end
    test $count -eq $argv[2]
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

// In single quotes, where only these two characters are special.
std::string fish_quoted(std::string_view text) { return "'" + backslashed(text, "\\'") + "'"; }

// If the value is optional, fish must not require one.
std::string value_flags(const ValueType& value) {
  std::vector<std::string> words = value.choices;
  std::string flags;
  if (value.kind == ValueType::Kind::needed) flags = value.path == ValueType::Path::none ? " -x" : " -r";
  if (value.path == ValueType::Path::file) flags += " -F";
  if (value.path == ValueType::Path::folder) words.push_back("(__fish_complete_directories (commandline -ct) \"\")");
  if (value.path == ValueType::Path::named_file) words.push_back("(__regard_named_file)");
  if (words.size() > value.choices.size()) flags += " -f";
  if (!words.empty()) flags += " -a " + fish_quoted(joined(words, " "));
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
  for (std::size_t i = 0; i < command.arguments.size(); ++i) {
    const CommandOption& argument = command.arguments[i];
    ValueType value = argument.value;
    value.kind = ValueType::Kind::none;
    const std::string flags = value_flags(value);
    const std::string place =
        "complete -c regard -n " + fish_quoted(fmt::format("__regard_argument {} {}", command.name, i));
    if (!flags.empty()) lines += (argument.repeats ? condition : place) + flags + "\n";
  }
  return lines;
}

// A function that tells whether the word after "COMMAND OPTION" is the value of the option.
std::string options_with_values(const ProgramTree& tree) {
  std::string cases;
  for (const CommandTree& command : tree.commands) {
    for (const CommandOption& option : command.options()) {
      if (option.value.kind != ValueType::Kind::needed) continue;
      for (const std::string& name : option.names) cases += fmt::format(" {}", fish_quoted(command.name + " " + name));
    }
  }
  return "function __regard_takes_word\n    contains -- $argv[1]" + cases + "\nend\n\n";
}

}  // namespace

std::string fish_completion(const ProgramTree& tree) {
  std::string script = "# fish completion for regard, written by: regard completion fish\n\n";
  script += options_with_values(tree);
  script += kFunctions;
  for (const CommandTree& command : tree.commands)
    script += fmt::format("complete -c regard -n __regard_is -a {} -d {}\n", fish_quoted(command.name),
                          fish_quoted(command.description));
  script += completions_of(tree.program);
  for (const CommandTree& command : tree.commands) script += "\n" + completions_of(command);
  return script;
}

}  // namespace regard::program
