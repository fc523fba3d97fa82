// SPDX-License-Identifier: Apache-2.0
//
// What every subcommand of the program `regard` shares: how it is registered, how it fails, how it writes.
//
//     cli/<name>.cpp defines  void add_<name>(CLI::App& app);
//     it registers the subcommand with its help and, as footer, examples; a callback does the work and
//       returns                                         exit 0
//       throws UsageError                               exit 2: the command line is wrong
//       throws any other std::exception                 exit 1: a file, a shape, the machine
//     main prints one line `regard: …` on standard error for either. Data goes through write_stdout.
//
// Options are bound to std::string and read by the parse_ functions, so that dots stay dots in every locale. main.cpp
// rewrites the arguments before CLI11 sees them: `--name=value` becomes two arguments, an option that needs a value
// takes the next argument whatever it is (`--scale -1`), and an option registered with expected(0, 1) takes a value
// only after `=`; alone (`--causal`) its value is "true". Read next: main.cpp, attend.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/json_writer.h"
#include "regard/io/npy.h"
#include "regard/tensor.h"

namespace regard::program {

void add_attend(CLI::App& app);
void add_explain(CLI::App& app);
void add_compare(CLI::App& app);
void add_heads(CLI::App& app);
void add_embed(CLI::App& app);
void add_similar(CLI::App& app);
void add_lesson(CLI::App& app);
void add_bench(CLI::App& app);
void add_info(CLI::App& app);
void add_completion(CLI::App& app);
void add_man(CLI::App& app);
void add_pull(CLI::App& app);

// The command line is wrong. The text names the option and says what to write instead.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// ---- standard output

// The reader of standard output has gone: main ends without a word and with exit code 1.
class ClosedPipe : public std::runtime_error {
 public:
  ClosedPipe() : std::runtime_error("standard output is closed") {}
};

// Writes all of text to standard output at once, unbuffered. Throws ClosedPipe, or std::runtime_error with the reason
// (a full disk).
void write_stdout(std::string_view text);

// What the system says of an errno.
std::string reason(int error);
// Empty where it is not set.
std::string_view environment_variable(const char* name);

bool writes_to_terminal();
bool reads_from_terminal();  // standard input

// Registers --color auto|always|never.
void add_color_option(CLI::App& command, std::string& mode);
// always: yes; never: no; auto: standard output is a terminal, TERM is neither unset, empty nor dumb, and NO_COLOR is
// unset or empty. Throws UsageError for another word.
bool use_color(std::string_view mode);
// What POSIX says of the character set, LC_ALL, LC_CTYPE or LANG: the first of them that is not empty names UTF-8.
bool terminal_is_unicode();
// COLUMNS, else what the terminal says, else 80.
int output_width();

// ---- text (for a terminal: escape_for_terminal of regard/io/utf8.h; main applies it to every message)

// The command as it was typed, quoted for a shell: what "command" holds in JSON.
const std::string& command_line();
// One word of sh, bash or zsh, whatever stands in it: bare, or in single quotes.
std::string quote_for_shell(std::string_view argument);
// "1.5 GiB".
std::string bytes_text(std::uint64_t bytes);

// ---- values of options; each throws UsageError naming the option, its value and what is expected

double parse_number(std::string_view option, std::string_view text);  // finite
Index parse_integer(std::string_view option, std::string_view text);
std::uint64_t parse_bytes(std::string_view option, std::string_view text);  // 1000, 64K, 8G: powers of 1024
std::vector<std::string_view> split(std::string_view text, char separator);

// ---- options that depend on others: CLI11's needs() and excludes(), with what main says where they are broken

// option is of use only where `other` is given too.
void needs(CLI::Option* option, CLI::Option* other, std::string message);
// At most one of the two is given.
void excludes(CLI::Option* option, CLI::Option* other, std::string message);
// The message of what is broken, or nothing where it was declared without one.
std::string dependency_message(const CLI::ParseError& error);
// CLI11's help lists behind each option what it needs and excludes; here the help's texts say it.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
};

// What call returns. A std::invalid_argument that it throws is a mistake in what was typed: UsageError, with the
// option in front where one is named.
template <class Call>
auto usage(const std::string& option, const Call& call) {
  try {
    return call();
  } catch (const std::invalid_argument& error) {
    throw UsageError(option.empty() ? error.what() : option + ": " + error.what());
  }
}

// ---- files

// A file to read, or standard input for "-". Only regular files are opened: a folder, a FIFO or a device is rejected.
// num_bytes is absent for standard input. Throws std::runtime_error naming the path, when opened and when read; where
// it cannot be opened, also the option that named it and what that option expects, if they are given.
struct InputFile {
  ByteSource source;
  std::optional<std::uint64_t> num_bytes;
  std::string name;  // the path, or "standard input"
};
InputFile open_input(const std::string& path, const std::string& option = "", const std::string& expected = "");
// All bytes of a file or of standard input. Throws as open_input, and when there are more than max_bytes.
std::string read_text(const std::string& path, std::uint64_t max_bytes, const std::string& option = "");

// Writes all bytes, also to a descriptor that somebody made non-blocking. Returns 0 or the error.
int write_all(int descriptor, const char* bytes, std::size_t count);

// Files that appear together or not at all. Each is written under a temporary name in its own folder; commit() syncs
// and renames them; where one cannot be renamed, those before it become again what they were. Without commit(), and on
// Ctrl-C, SIGTERM and SIGHUP, the temporary files are removed. A path "-" is standard output, written directly. Every
// failure throws std::runtime_error naming the path.
class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  ~OutputFiles();

  // Opens the temporary file and returns its number. Rejects a path where something other than a file stands.
  std::size_t add(const std::string& path);
  void write(std::size_t file, const void* bytes, std::size_t count);
  // Syncs and closes a file that is whole, so that many files need few descriptors. commit() does so for the others.
  void close(std::size_t file);
  void commit();

 private:
  struct File {
    std::string name;        // as given
    std::string target;      // with symbolic links followed
    std::string temporary;   // empty for standard output
    std::string replaced{};  // second name of the file that stood at target, while commit() may still fail
    bool replaces = false;   // a file stands at target
    int descriptor = -1;
  };
  void remove_temporaries();
  // Undoes the first renames. Returns the names of files that could not be brought back.
  std::string take_back(std::size_t count);
  std::vector<File> files_;
};

// A folder for output files: made if it is missing, but not those above it, and removed again if it was made here and
// is empty at the end. Throws std::runtime_error naming the path.
class OutputFolder {
 public:
  explicit OutputFolder(const std::string& path);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool made_ = false;
};

// Of a page written to path: "\n  page   file:///home/you/bank.html   what it shows\n", the path as an address.
std::string page_line(const std::string& path, std::string_view shows);

// Throws UsageError when a path stands twice among the outputs, is an input too, or "-" stands twice among either.
struct NamedPath {
  std::string option;
  std::string path;
};
void check_paths(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs);

// ---- the build

struct Build {
  std::string version;   // "0.1.0"
  std::string commit;    // twelve digits, "+" behind them when files differed from it; or "unknown"
  std::string date;      // of the commit, or of the build where there is none: "2026-11-21"
  std::string compiler;  // "g++ 12.2.0"
};
Build build();
// schema, command, version and commit, with which the programs' own JSON begins.
void write_build(JsonWriter& json, const Build& build);

// ---- used by main

void set_command_line(int count, char** arguments);
// Standard descriptors that are closed are opened so that no file takes their number; SIGPIPE is ignored; Ctrl-C,
// SIGTERM and SIGHUP erase the line of progress, remove temporary files and end with 128 + the signal's number.
void prepare_process();

}  // namespace regard::program
