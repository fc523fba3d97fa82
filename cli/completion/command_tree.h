// SPDX-License-Identifier: Apache-2.0
//
// What the command line can hold, read off the tree of CLI11's options, so that the completions and the manual page
// know every option without a second list of them.
//
//     CLI::App  →  ProgramTree  →  completion.cpp, manual.cpp
//
// What a value may be stands in its type_name, which the help shows, too: alternatives divided by |, of which words in
// small letters are meant as they are written and all else is a placeholder:
//
//     sqrt|none|NUMBER    FILE    FOLDER    NAME=FILE    "TEXT"    [=top_left|bottom_right|N]: only after =
//
// Read next: command_tree.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace regard::program {

struct ValueType {
  enum class Kind { none, after_equals, needed };  // none: a flag
  enum class Path { none, file, folder, named_file };
  Kind kind = Kind::none;
  Path path = Path::none;
  std::vector<std::string> alternatives{};  // as the help shows them
  std::vector<std::string> choices{};       // those that are meant as they are written
};

bool is_choice(std::string_view alternative);
ValueType value_type(const CLI::Option& option);

struct CommandOption {
  std::vector<std::string> names;  // "-o", "--output"; of an argument without one, what the help calls it
  std::string help;                // one line
  ValueType value;
  bool repeats;
};

struct OptionGroup {
  std::string title;  // "" for --help and what else has none of its own
  std::vector<CommandOption> options;
};

struct CommandTree {
  std::string name;  // "" for the program itself
  std::string description;
  std::string footer;
  std::vector<OptionGroup> groups;
  std::vector<CommandOption> arguments;  // by position
  std::vector<CommandOption> options() const;
};

struct ProgramTree {
  CommandTree program;
  std::vector<CommandTree> commands;
};

// Options and subcommands that the help does not show are left out.
ProgramTree read_tree(const CLI::App& app);

std::string joined(const std::vector<std::string>& words, std::string_view separator);
// With a backslash before each of these characters.
std::string backslashed(std::string_view text, std::string_view characters);

// completion_bash.cpp, completion_zsh.cpp, completion_fish.cpp. The script for that shell.
std::string bash_completion(const ProgramTree& tree);
std::string zsh_completion(const ProgramTree& tree);
std::string fish_completion(const ProgramTree& tree);

// manual.cpp. The manual page, in mdoc.
std::string manual_page(const ProgramTree& tree);

}  // namespace regard::program
