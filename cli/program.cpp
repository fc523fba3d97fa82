// SPDX-License-Identifier: Apache-2.0
//
// Implements program.h: standard output, color, quoting, option values, input and output files, signals.
//
// Output files have a temporary name until commit(). The names are also kept in a fixed array of characters, so that a
// signal handler, which can neither lock nor allocate, can remove the files. Read next: program.h.
#include "program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <system_error>
#include <utility>

#include "progress.h"
#include "remains.h"

namespace regard::program {
namespace {

// ---- temporary files that a signal must remove

constexpr std::size_t kMaxOutputs = 1100;  // a picture for each of 1000 heads, and other files
struct TemporaryName {
  std::atomic<bool> used{false};
  std::array<char, PATH_MAX> path{};
};
constinit std::array<TemporaryName, kMaxOutputs> temporary_names{};
static_assert(std::atomic<bool>::is_always_lock_free);

void remember(std::size_t slot, const std::string& path) {
  temporary_names[slot].used = false;
  if (path.size() + 1 > PATH_MAX) return;  // no file can be made under such a name
  std::memcpy(temporary_names[slot].path.data(), path.c_str(), path.size() + 1);
  temporary_names[slot].used = true;
}

extern "C" void end_on_signal(int signal) {
  end_progress();
  for (const TemporaryName& name : temporary_names) {
    if (name.used) ::unlink(name.path.data());
  }
  ::_exit(128 + signal);
}

constexpr std::array<int, 3> kEndingSignals = {SIGINT, SIGTERM, SIGHUP};

// Blocks the terminating signals between the first rename and the last.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    sigemptyset(&held);
    for (int signal : kEndingSignals) sigaddset(&held, signal);
    ::pthread_sigmask(SIG_BLOCK, &held, &previous_);
  }
  ~SignalsHeld() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t previous_;
};

std::string command_line_text;

// The kind of a file that is not regular, for messages.
const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

}  // namespace

std::string reason(int error) { return std::generic_category().message(error); }

std::string_view environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// ---- standard output

namespace {

// Writes all bytes, also if the descriptor is non-blocking. Returns 0 or the errno.
int write_all(int descriptor, const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t written = ::write(descriptor, bytes, std::min<std::size_t>(count, std::size_t{1} << 30));
    if (written >= 0) {
      bytes += written;
      count -= static_cast<std::size_t>(written);
    } else if (errno == EAGAIN) {
      pollfd ready{descriptor, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

}  // namespace

void write_stdout(std::string_view text) {
  const int error = write_all(STDOUT_FILENO, text.data(), text.size());
  if (error == EPIPE) throw ClosedPipe();
  if (error == EBADF) throw std::runtime_error("standard output is closed; there is nowhere to write");
  if (error != 0) throw std::runtime_error("cannot write to standard output: " + reason(error));
}

bool writes_to_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool reads_from_terminal() { return ::isatty(STDIN_FILENO) == 1; }

void add_color_option(CLI::App& command, std::string& mode) {
  command
      .add_option("--color", mode,
                  "whether to color the output; auto (default): only on\n"
                  "a terminal, and only if NO_COLOR is not set")
      ->type_name("auto|always|never");
}

bool use_color(std::string_view mode) {
  if (mode == "always") return true;
  if (mode == "never") return false;
  if (mode != "auto" && !mode.empty()) reject_value("--color", mode, "auto, always or never");
  return writes_to_terminal() && environment_variable("NO_COLOR").empty() && !environment_variable("TERM").empty() &&
         environment_variable("TERM") != "dumb";
}

bool terminal_is_unicode() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(environment_variable(name));
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

int output_width() {
  constexpr int kDefault = 80;
  if (const std::string_view columns = environment_variable("COLUMNS"); !columns.empty()) {
    int width = 0;
    for (char c : columns) width = c >= '0' && c <= '9' && width < 10000 ? 10 * width + (c - '0') : 10000;
    if (width > 0 && width < 10000) return width;
  }
  winsize size{};
  if (writes_to_terminal() && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefault;
}

// ---- text

namespace {

// Keyed by CLI11's own message, which names both options.
std::map<std::string, std::string>& dependency_messages() {
  static std::map<std::string, std::string> messages;
  return messages;
}

}  // namespace

void needs(CLI::Option* option, CLI::Option* other, std::string message) {
  option->needs(other);
  dependency_messages()[CLI::RequiresError(option->get_name(), other->get_name()).what()] = std::move(message);
}

void excludes(CLI::Option* option, CLI::Option* other, std::string message) {
  option->excludes(other);
  dependency_messages()[CLI::ExcludesError(option->get_name(), other->get_name()).what()] = message;
  dependency_messages()[CLI::ExcludesError(other->get_name(), option->get_name()).what()] = std::move(message);
}

void excludes(CLI::App& command, const std::string& option, const std::string& other) {
  excludes(command.get_option(option), command.get_option(other), option + " and " + other + " cannot be combined");
}

std::string dependency_message(const CLI::ParseError& error) {
  const auto found = dependency_messages().find(error.what());
  return found == dependency_messages().end() ? "" : found->second;
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  const std::string text = CLI::Formatter::make_option_opts(option);
  // Dependencies that were declared without a message are kept.
  const auto has_message = [&](const CLI::Option* other) {
    return dependency_messages().contains(CLI::RequiresError(option->get_name(), other->get_name()).what()) ||
           dependency_messages().contains(CLI::ExcludesError(option->get_name(), other->get_name()).what());
  };
  const auto &needed = option->get_needs(), &excluded = option->get_excludes();
  const bool hide = std::any_of(needed.begin(), needed.end(), has_message) ||
                    std::any_of(excluded.begin(), excluded.end(), has_message);
  return hide ? text.substr(0, std::min(text.find(" Needs:"), text.find(" Excludes:"))) : text;
}

const std::string& command_line() { return command_line_text; }

std::string quote_for_shell(std::string_view argument) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == std::string_view::npos) return std::string(argument);
  std::string quoted = "'";
  for (char c : argument) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

void set_command_line(int count, char** arguments) {
  command_line_text = "regard";
  for (int i = 1; i < count; ++i) command_line_text += " " + quote_for_shell(arguments[i]);
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double size = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < kUnits.size(); ++unit) size /= 1024;
  return fmt::format("{:.1f} {}", size, kUnits[unit]);
}

// ---- values of options

void reject_value(std::string_view option, std::string_view text, std::string_view expected) {
  throw UsageError(fmt::format("{} is \"{}\"; expected {}", option, text, expected));
}

double parse_number(std::string_view option, std::string_view text) {
  double x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  if (error == std::errc::result_out_of_range) reject_value(option, text, "a number that fits in a double");
  if (error != std::errc() || end != text.data() + text.size()) {
    reject_value(option, text, "a number such as 0.125 or -1");
  }
  if (!std::isfinite(x)) reject_value(option, text, "a finite number");
  return x;
}

Index parse_integer(std::string_view option, std::string_view text) {
  Index n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error == std::errc::result_out_of_range) reject_value(option, text, "a signed 64-bit integer");
  if (error != std::errc() || end != text.data() + text.size()) reject_value(option, text, "an integer");
  return n;
}

std::uint64_t parse_bytes(std::string_view option, std::string_view text) {
  constexpr const char* kExpected = "a number of bytes such as 1000000, 512M or 8G";
  constexpr std::string_view kUnits = "KMGT";
  std::string_view digits = text;
  const std::size_t unit = text.empty() ? std::string_view::npos : kUnits.find(text.back());
  if (unit != std::string_view::npos) digits.remove_suffix(1);
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bytes);
  if (error != std::errc() || end != digits.data() + digits.size()) reject_value(option, text, kExpected);
  const std::uint64_t factor = unit == std::string_view::npos ? 1 : std::uint64_t{1} << (10 * (unit + 1));
  if (bytes > std::numeric_limits<std::uint64_t>::max() / factor) reject_value(option, text, kExpected);
  return bytes * factor;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// ---- files in

namespace {

// Shared by all copies of the source; the last one closes the descriptor.
class InputDescriptor {
 public:
  InputDescriptor(int number, bool owned) : number_(number), owned_(owned) {}
  ~InputDescriptor() {
    if (owned_) ::close(number_);
  }
  InputDescriptor(const InputDescriptor&) = delete;
  InputDescriptor& operator=(const InputDescriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
  bool owned_;
};

ByteSource source_of(std::shared_ptr<InputDescriptor> descriptor, const std::string& name) {
  return [descriptor = std::move(descriptor), name](std::span<std::byte> bytes) {
    std::size_t filled = 0;
    while (filled < bytes.size()) {
      const std::size_t wanted = std::min<std::size_t>(bytes.size() - filled, std::size_t{1} << 30);
      const ssize_t came = ::read(descriptor->number(), bytes.data() + filled, wanted);
      if (came == 0) break;
      if (came > 0) {
        filled += static_cast<std::size_t>(came);
      } else if (errno == EAGAIN) {
        pollfd ready{descriptor->number(), POLLIN, 0};
        ::poll(&ready, 1, -1);
      } else if (errno != EINTR) {
        const int error = errno;
        throw std::runtime_error(name +
                                 ": cannot be read: " + (error == EBADF ? std::string("it is closed") : reason(error)));
      }
    }
    return filled;
  };
}

}  // namespace

InputFile open_input(const std::string& path, const std::string& option, const std::string& expected) {
  const auto fail = [&](int error) {
    const std::string named = option.empty() ? "" : option + " ";
    const std::string remedy = expected.empty() ? "" : "; expected " + expected;
    throw std::runtime_error(named + path + ": cannot be opened: " + reason(error) + remedy);
  };
  if (path == "-") {
    const std::string name = "standard input";
    return {source_of(std::make_shared<InputDescriptor>(STDIN_FILENO, false), name), std::nullopt, name};
  }
  if (path.empty()) throw std::runtime_error("empty file name; expected the name of a file, or - for standard input");
  const auto reject_unless_regular = [&path](const struct stat& status) {
    if (S_ISREG(status.st_mode)) return;
    throw std::runtime_error(path + ": is " + kind_of(status.st_mode) + "; expected a file, or - for standard input");
  };
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) fail(errno);
  reject_unless_regular(status);
  // The file may have been replaced since: O_NONBLOCK keeps a FIFO from blocking, and the type is checked again.
  const int number = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  if (number < 0) fail(errno);
  auto descriptor = std::make_shared<InputDescriptor>(number, true);
  if (::fstat(number, &status) != 0) fail(errno);
  reject_unless_regular(status);
  const auto seek = [descriptor, path](std::uint64_t byte) {
    if (::lseek(descriptor->number(), static_cast<off_t>(byte), SEEK_SET) < 0)
      throw std::runtime_error(path + ": cannot be read: " + reason(errno));
  };
  return {source_of(descriptor, path), static_cast<std::uint64_t>(status.st_size), path, seek};
}

std::string read_text(const std::string& path, std::uint64_t max_bytes, const std::string& option) {
  const InputFile file = open_input(path, option);
  std::string text;
  constexpr std::size_t kPiece = 1 << 16;
  while (text.size() <= max_bytes) {
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    const std::size_t came = file.source(std::as_writable_bytes(std::span(text).subspan(before)));
    text.resize(before + came);
    if (came < kPiece) break;
  }
  if (text.size() > max_bytes) {
    throw std::runtime_error(file.name + ": is larger than " + bytes_text(max_bytes) + ", the maximum size");
  }
  return text;
}

// ---- files out

std::size_t OutputFiles::add(const std::string& path, Remains remains) {
  const auto fail = [&path](const std::string& what) { throw std::runtime_error(path + ": " + what); };
  const std::size_t slot = files_.size();
  if (slot == kMaxOutputs) fail("too many outputs");
  File file;
  file.name = path;
  if (path == "-") {
    file.name = "standard output";
    files_.push_back(std::move(file));
    return slot;
  }
  if (path.empty()) throw std::runtime_error("the name of an output file is empty");
  file.target = path;
  struct stat status{};
  mode_t mode = 0;
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) fail(std::string("is ") + kind_of(status.st_mode) + "; expected the name of a file");
    // A symbolic link is kept; its target is replaced.
    file.target = std::filesystem::canonical(path).string();
    file.replaces = true;
    mode = status.st_mode & 07777;
  }
  const std::filesystem::path target(file.target);
  if (target.filename().empty()) fail("is the name of a folder; expected the name of a file");
  const std::string prefix =
      remains == Remains::removed ? temporary_prefix(target.filename().string()) : std::string(".regard-");
  if (remains == Remains::removed) remove_remains(target.parent_path(), prefix);
  for (int attempt = 0;; ++attempt) {
    file.temporary = (target.parent_path() / fmt::format("{}{}-{}-{}", prefix, ::getpid(), slot, attempt)).string();
    remember(slot, file.temporary);
    file.contents = NewFile::create(file.temporary, file.name);
    if (file.contents && remains == Remains::removed) {
      file.lock = std::make_shared<TemporaryFileLock>(file.temporary);
      if (file.lock->lost()) file.contents.reset();
    }
    if (file.contents) break;
    temporary_names[slot].used = false;
  }
  if (file.replaces) file.contents->set_permissions(mode);
  files_.push_back(std::move(file));
  return slot;
}

void OutputFiles::write(std::size_t number, const void* bytes, std::size_t count) {
  const std::string_view text(static_cast<const char*>(bytes), count);
  if (File& file = files_[number]; file.contents) {
    file.contents->write(text);
  } else {
    write_stdout(text);
  }
}

void OutputFiles::close(std::size_t number) {
  if (auto contents = std::exchange(files_[number].contents, std::nullopt)) contents->close();
}

void OutputFiles::commit() {
  for (std::size_t i = 0; i < files_.size(); ++i) close(i);
  const SignalsHeld held;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    File& file = files_[i];
    if (file.temporary.empty()) continue;
    // A replaced file keeps a second name until every file is in place. Some file systems have no hard links.
    const std::string second = file.temporary + "-old";
    if (file.replaces && ::link(file.target.c_str(), second.c_str()) == 0) file.replaced = second;
    if (::rename(file.temporary.c_str(), file.target.c_str()) == 0) continue;
    const int error = errno;
    if (!file.replaced.empty()) ::unlink(file.replaced.c_str());
    const std::string lost = take_back(i);
    throw std::runtime_error(file.name + ": cannot be moved into place: " + reason(error) +
                             (lost.empty() ? "" : "; already replaced:" + lost));
  }
  for (const File& file : files_) {
    if (!file.replaced.empty()) ::unlink(file.replaced.c_str());
  }
  for (TemporaryName& name : temporary_names) name.used = false;
  files_.clear();
}

std::string OutputFiles::take_back(std::size_t count) {
  std::string lost;
  for (std::size_t i = 0; i < count; ++i) {
    const File& file = files_[i];
    if (file.temporary.empty()) continue;
    if (!file.replaces) {
      ::unlink(file.target.c_str());
    } else if (file.replaced.empty() || ::rename(file.replaced.c_str(), file.target.c_str()) != 0) {
      lost += " " + file.name;
    }
  }
  return lost;
}

void OutputFiles::remove_temporaries() {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].temporary.empty()) continue;
    ::unlink(files_[i].temporary.c_str());
    temporary_names[i].used = false;
  }
  files_.clear();
}

OutputFiles::~OutputFiles() { remove_temporaries(); }

OutputFolder::OutputFolder(const std::string& path) : path_(path) {
  std::error_code error;
  made_ = std::filesystem::create_directory(path_, error);
  if (error) throw std::runtime_error(path + ": the folder cannot be created: " + error.message());
}

OutputFolder::~OutputFolder() {
  std::error_code error;
  if (made_) std::filesystem::remove(path_, error);
}

std::string page_line(const std::string& path, std::string_view shows) {
  std::string address;
  for (const char c : std::filesystem::absolute(path).lexically_normal().string()) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain =
        byte < 0x80 && (std::isalnum(byte) != 0 || std::string_view("-._~/").find(c) != std::string::npos);
    address += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return fmt::format("\n  page   file://{}   {}\n", address, shows);
}

void check_paths(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs) {
  // Two paths are the same if they resolve to the same location, or, for existing files, to the same file.
  const auto same = [](const std::string& a, const std::string& b) {
    if (a == "-" || b == "-") return a == b;
    std::error_code error;
    if (std::filesystem::equivalent(a, b, error)) return true;
    const auto place = [&error](const std::string& path) {
      return std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
    };
    return place(a) == place(b);
  };
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t j = i + 1; j < inputs.size(); ++j) {
      if (inputs[i].path == "-" && inputs[j].path == "-") {
        throw UsageError(fmt::format("{} and {} both read standard input; one of them must be a file", inputs[i].option,
                                     inputs[j].option));
      }
    }
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    for (std::size_t j = i + 1; j < outputs.size(); ++j) {
      if (same(outputs[i].path, outputs[j].path)) {
        throw UsageError(fmt::format("{} and {} both write to {}; choose different names", outputs[i].option,
                                     outputs[j].option, outputs[i].path == "-" ? "standard output" : outputs[i].path));
      }
    }
    for (const NamedPath& input : inputs) {
      if (outputs[i].path != "-" && same(outputs[i].path, input.path)) {
        throw UsageError(fmt::format("{} would write {}, which {} reads; choose another name", outputs[i].option,
                                     outputs[i].path, input.option));
      }
    }
  }
}

// ---- the process

void prepare_process() {
  for (int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // Opened for the wrong direction on purpose: reading or writing still fails, and no other file can get the number.
    if (::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) break;
  }
  // write() then fails with EPIPE or EFBIG, and the temporary files are removed.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  for (int signal : kEndingSignals) {
    struct sigaction action{};
    // A signal that was ignored at the start (nohup) stays ignored.
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = end_on_signal;
    sigfillset(&action.sa_mask);
    ::sigaction(signal, &action, nullptr);
  }
}

void write_build(JsonWriter& json, const Build& build) {
  json.string("schema", "regard/1");
  json.string("command", command_line());
  json.string("version", build.version);
  json.string("commit", build.commit);
}

}  // namespace regard::program
