// SPDX-License-Identifier: Apache-2.0
//
// The subcommands and options, read from CLI11's option tree, so that the completions and the manual page need no
// second list of options.
//
//     CLI::App  →  ProgramTree  →  completion.cpp, manual.cpp
//
// The possible values of an option are in its type_name, which the help also shows: alternatives separated by |, where
// words in lower case are literal values and everything else is a placeholder:
//
//     sqrt|none|NUMBER    FILE    FOLDER    NAME=FILE    "TEXT"    [=top_left|bottom_right|N]: value only after =
//
// Read next: command_tree.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace regard::program {

struct ValueType {
  enum class Kind { none, after_equals, needed };  // none means a flag
  enum class Path { none, file, folder, named_file };
  Kind kind = Kind::none;
  Path path = Path::none;
  std::vector<std::string> alternatives{};  // as the help shows them
  std::vector<std::string> choices{};       // the literal ones
};

bool is_choice(std::string_view alternative);
ValueType value_type(const CLI::Option& option);

struct CommandOption {
  std::vector<std::string> names;  // "-o", "--output"; for a positional argument, its name in the help
  std::string help;                // one line
  ValueType value;
  bool repeats;
};

struct OptionGroup {
  std::string title;  // empty for --help and other options without a group
  std::vector<CommandOption> options;
};

struct CommandTree {
  std::string name;  // empty for the program itself
  std::string description;
  std::string footer;
  std::vector<OptionGroup> groups;
  std::vector<CommandOption> arguments;  // positional
  std::vector<CommandOption> options() const;
};

struct ProgramTree {
  CommandTree program;
  std::vector<CommandTree> commands;
};

// Options and subcommands that are hidden in the help are omitted.
ProgramTree read_tree(const CLI::App& app);

std::string joined(const std::vector<std::string>& words, std::string_view separator);
// The text with a backslash before each of these characters.
std::string backslashed(std::string_view text, std::string_view characters);

// completion_bash.cpp, completion_zsh.cpp, completion_fish.cpp. The script for that shell.
std::string bash_completion(const ProgramTree& tree);
std::string zsh_completion(const ProgramTree& tree);
std::string fish_completion(const ProgramTree& tree);

// manual.cpp. The manual page, in mdoc.
std::string manual_page(const ProgramTree& tree);

}  // namespace regard::program
