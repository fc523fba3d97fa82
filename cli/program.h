// SPDX-License-Identifier: Apache-2.0
//
// What the subcommands of the program `regard` share: registration, errors, and input and output.
//
//     cli/<name>.cpp defines  void add_<name>(CLI::App& app);
//     it registers the subcommand with its help and, as the footer, examples. Its callback does the work and
//       returns                                         exit 0
//       throws UsageError                               exit 2: an error in the command line
//       throws any other std::exception                 exit 1: a file, a shape, the machine
//     In both cases main prints one line `regard: …` to standard error. Data is written with write_stdout.
//
// Options are bound to std::string and parsed by the parse_ functions, which use a decimal point in every locale.
// main.cpp rewrites the arguments before CLI11 parses them: `--name=value` becomes two arguments; an option that needs
// a value takes the next argument in any case (`--scale -1`); an option registered with expected(0, 1) takes a value
// only after `=`, and without one (`--causal`) its value is "true". Read next: main.cpp, attend.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "regard/io/json_writer.h"
#include "regard/io/npy.h"
#include "regard/io/output_file.h"
#include "regard/tensor.h"

namespace regard::program {

void add_attend(CLI::App& app);
void add_explain(CLI::App& app);
void add_compare(CLI::App& app);
void add_heads(CLI::App& app);
void add_embed(CLI::App& app);
void add_join(CLI::App& app);
void add_similar(CLI::App& app);
void add_lesson(CLI::App& app);
void add_live(CLI::App& app);
void add_plan(CLI::App& app);
void add_bench(CLI::App& app);
void add_info(CLI::App& app);
void add_completion(CLI::App& app);
void add_man(CLI::App& app);
void add_pull(CLI::App& app);
void add_train(CLI::App& app);
void add_generate(CLI::App& app);

// An error in the command line. The message names the option and states what to write instead.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The user ended long work by a signal, and everything was saved. main reports the message and exits with 128 + signal.
class StoppedBySignal : public std::runtime_error {
 public:
  StoppedBySignal(int by_signal, const std::string& message) : std::runtime_error(message), signal(by_signal) {}
  int signal;
};

// ---- standard output

// The reader of standard output has closed the pipe: main exits silently with code 1.
class ClosedPipe : public std::runtime_error {
 public:
  ClosedPipe() : std::runtime_error("standard output is closed") {}
};

// Writes text to standard output, unbuffered. Throws ClosedPipe, or std::runtime_error with the reason (such as a full
// disk).
void write_stdout(std::string_view text);

// The system's message for an errno.
std::string reason(int error);
// Empty if the variable is not set.
std::string_view environment_variable(const char* name);

bool writes_to_terminal();
bool reads_from_terminal();  // standard input

// Registers --color auto|always|never.
void add_color_option(CLI::App& command, std::string& mode);
// always: true; never: false; auto: whether standard output is a terminal, TERM is not unset, empty or dumb, and
// NO_COLOR is unset or empty. Throws UsageError for any other word.
bool use_color(std::string_view mode);
// Whether the locale uses UTF-8, as in POSIX: the first of LC_ALL, LC_CTYPE and LANG that is not empty names it.
bool terminal_is_unicode();
// COLUMNS, else the width of the terminal, else 80.
int output_width();

// ---- text (escape_for_terminal of regard/io/utf8.h makes it safe for a terminal; main applies it to every message)

// The command as it was typed, quoted for a shell: member "command" of the JSON output.
const std::string& command_line();
// The argument as one word of sh, bash or zsh: unquoted if possible, else in single quotes.
std::string quote_for_shell(std::string_view argument);
// "1.5 GiB".
std::string bytes_text(std::uint64_t bytes);

// ---- values of options; each function throws UsageError naming the option, its value and what is expected

double parse_number(std::string_view option, std::string_view text);  // finite
Index parse_integer(std::string_view option, std::string_view text);
std::uint64_t parse_bytes(std::string_view option, std::string_view text);  // 1000, 64K, 8G: powers of 1024
std::vector<std::string_view> split(std::string_view text, char separator);
// Throws: --map-scale is "cubic"; expected log or linear.
[[noreturn]] void reject_value(std::string_view option, std::string_view text, std::string_view expected);

// ---- options that depend on others: CLI11's needs() and excludes() with our error messages

// option requires `other`.
void needs(CLI::Option* option, CLI::Option* other, std::string message);
// At most one of the two can be given.
void excludes(CLI::Option* option, CLI::Option* other, std::string message);
// The message says that the two cannot be combined.
void excludes(CLI::App& command, const std::string& option, const std::string& other);
// The message for a violated dependency; empty if it was declared without one.
std::string dependency_message(const CLI::ParseError& error);
// Omits the lists "Needs:" and "Excludes:" that CLI11 appends to each option; our help texts state the dependencies.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override;
};

// Returns call(). A std::invalid_argument that it throws is an error in the command line and becomes a UsageError,
// preceded by the option if one is given.
template <class Call>
auto usage(const std::string& option, const Call& call) {
  try {
    return call();
  } catch (const std::invalid_argument& error) {
    throw UsageError(option.empty() ? error.what() : option + ": " + error.what());
  }
}

// ---- files

// A file to read, or standard input for "-". Only regular files are opened; a folder, a FIFO or a device is rejected.
// num_bytes and seek are absent for standard input. Opening and reading throw std::runtime_error naming the path. If
// the file cannot be opened, the message also names the option and what it expects, if they are given.
struct InputFile {
  ByteSource source;
  std::optional<std::uint64_t> num_bytes;
  std::string name;                              // the path, or "standard input"
  std::function<void(std::uint64_t)> seek = {};  // moves the source to this byte
};
InputFile open_input(const std::string& path, const std::string& option = "", const std::string& expected = "");
// All bytes of a file or of standard input. Throws as open_input does, and if there are more than max_bytes.
std::string read_text(const std::string& path, std::uint64_t max_bytes, const std::string& option = "");

class TemporaryFileLock;

// Output files that are all written or none. Each is written under a temporary name in its folder; commit() syncs and
// renames them. If a rename fails, the previous ones are undone. Without commit(), and on Ctrl-C, SIGTERM and SIGHUP,
// the temporary files are removed. The path "-" is standard output, which is written directly. Every failure throws
// std::runtime_error naming the path.
class OutputFiles {
 public:
  OutputFiles() = default;
  OutputFiles(const OutputFiles&) = delete;
  OutputFiles& operator=(const OutputFiles&) = delete;
  ~OutputFiles();

  // Opens the temporary file and returns its index. Rejects a path that exists and is not a regular file. With
  // Remains::removed, temporary files that killed processes have left for the same path are removed (remains.h).
  enum class Remains { kept, removed };
  std::size_t add(const std::string& path, Remains remains = Remains::kept);
  void write(std::size_t file, const void* bytes, std::size_t count);
  // Syncs and closes a complete file, so that many files need few descriptors. commit() does so for the others.
  void close(std::size_t file);
  void commit();

 private:
  struct File {
    std::string name;                   // as given
    std::string target;                 // with symbolic links followed
    std::string temporary;              // empty for standard output
    std::string replaced{};             // second name of the previous file at target, while commit() may still fail
    bool replaces = false;              // target exists
    std::optional<NewFile> contents{};  // until it is closed; none for standard output
    std::shared_ptr<TemporaryFileLock> lock{};
  };
  void remove_temporaries();
  // Undoes the first `count` renames. Returns the names of files that could not be restored.
  std::string take_back(std::size_t count);
  std::vector<File> files_;
};

// A folder for output files. It is created if it is missing (its parents are not), and removed at the end if it was
// created here and is still empty. Throws std::runtime_error naming the path.
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

// The line that announces a page written to path: "\n  page   file:///home/you/bank.html   what it shows\n".
std::string page_line(const std::string& path, std::string_view shows);

// Throws UsageError if a path occurs twice among the outputs or is also an input, or if "-" occurs twice among either.
struct NamedPath {
  std::string option;
  std::string path;
};
void check_paths(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs);

// ---- the build

struct Build {
  std::string version;   // "0.1.0"
  std::string commit;    // twelve hex digits, with a "+" if files differed from it; or "unknown"
  std::string date;      // of the commit, else of the build: "2026-11-21"
  std::string compiler;  // "g++ 12.2.0"
};
Build build();
// Writes schema, command, version and commit, the first members of the program's JSON.
void write_build(JsonWriter& json, const Build& build);

// ---- used by main

void set_command_line(int count, char** arguments);
// Opens closed standard descriptors, so that no file can get their numbers. Ignores SIGPIPE. Makes Ctrl-C, SIGTERM and
// SIGHUP erase the progress line, remove temporary files and exit with 128 + the number of the signal.
void prepare_process();

}  // namespace regard::program
