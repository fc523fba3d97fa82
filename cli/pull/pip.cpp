// SPDX-License-Identifier: Apache-2.0
//
// Runs pip as a child process, which ends whenever this process ends. Its messages go to a file, from which the reason
// of a failure is extracted.
// Read next: pip.h.
#include "pip.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

namespace regard::program {
namespace {

constexpr int kCannotStart = 127;

// A child process; the destructor kills it if it is still running.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
        const std::string& log) {
    // All allocations are done before fork.
    const std::vector<char*> argv = pointers(arguments);
    const std::vector<char*> envp = pointers(environment);
    const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const int said = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const pid_t parent = ::getpid();
    process_ = nothing < 0 || said < 0 ? -1 : ::fork();
    if (process_ == 0) run(argv[0], argv.data(), envp.data(), nothing, said, parent);
    const int error = errno;
    if (nothing >= 0) ::close(nothing);
    if (said >= 0) ::close(said);
    if (process_ < 0) throw std::runtime_error(fmt::format("pip cannot be started: {}", std::strerror(error)));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  // False while the process is running.
  bool ended(int& status) {
    const pid_t done = ::waitpid(process_, &status, WNOHANG);
    if (done != process_) return false;
    process_ = -1;
    return true;
  }

 private:
  static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
    result.push_back(nullptr);
    return result;
  }

  [[noreturn]] static void run(const char* program, char* const* arguments, char* const* environment, int nothing,
                               int said, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kCannotStart);
    // Ignored signals would stay ignored in the new program.
    ::signal(SIGPIPE, SIG_DFL);
    ::signal(SIGXFSZ, SIG_DFL);
    ::dup2(nothing, STDIN_FILENO);
    ::dup2(nothing, STDOUT_FILENO);
    ::dup2(said, STDERR_FILENO);
    ::execve(program, arguments, environment);
    ::_exit(kCannotStart);
  }

  pid_t process_ = -1;
};

// The reason for a failure, extracted from pip's messages.
std::string reason_in(const std::string& log) {
  constexpr std::size_t kLongest = 200;
  std::ifstream file(log, std::ios::binary);
  constexpr std::size_t kMaxBytes = 1 << 16;
  std::string text(kMaxBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  const auto says = [&text](std::string_view words) { return text.find(words) != std::string::npos; };
  if (says("No module named pip")) return "this Python has no pip; install the Debian package python3-pip";
  if (says("DO NOT MATCH THE HASHES")) return "pip did not obtain the pinned wheel: the SHA-256 hash differs";
  if (says("No space left on device")) return "the disk is full";
  for (const char* sign : {"ConnectionError", "Connection broken", "ConnectTimeout", "ReadTimeout", "ProxyError",
                           "NameResolutionError", "Max retries exceeded", "connection broken"}) {
    if (says(sign)) return "pip cannot connect; check the network and https_proxy";
  }
  // The last line that pip marks as an error, else the last line.
  std::string_view line;
  std::string_view error;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view next = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), next.size() + 1));
    if (next.starts_with("ERROR: ")) error = next.substr(7);
    if (!next.empty()) line = next;
  }
  const std::string_view chosen = (error.empty() ? line : error).substr(0, kLongest);
  return chosen.empty() ? "pip printed no message" : fmt::format("pip reports: {}", chosen);
}

}  // namespace

void pip_download(const std::string& requirements, const std::string& folder, const std::function<void()>& watch) {
  const char* chosen = std::getenv("REGARD_PYTHON");
  const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "/usr/bin/python3";
  if (::access(python.c_str(), X_OK) != 0) {
    throw std::runtime_error(
        fmt::format("{} cannot be started: {}; install python3 and python3-pip", python, std::strerror(errno)));
  }
  const std::string list = folder + "/requirements.txt";
  const std::string log = folder + "/pip.log";
  const std::string temporary = folder + "/temporary";
  std::filesystem::create_directory(temporary);
  std::ofstream(list) << requirements;
  const std::vector<std::string> arguments = {
      python, "-I", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes",
      // No prompts, no cache and no progress bar; a dead connection is abandoned after about a minute.
      "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--progress-bar=off", "--retries=2",
      "--dest=" + folder + "/wheel", "--requirement=" + list};
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("TMPDIR=")) environment.emplace_back(*variable);
  }
  environment.push_back("TMPDIR=" + temporary);

  Child pip(arguments, environment, log);
  int status = 0;
  while (!pip.ended(status)) {
    watch();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  watch();
  if (WIFSIGNALED(status)) throw std::runtime_error(fmt::format("pip was terminated by signal {}", WTERMSIG(status)));
  if (WEXITSTATUS(status) == kCannotStart) throw std::runtime_error(python + " cannot be started");
  if (WEXITSTATUS(status) != 0) throw std::runtime_error(reason_in(log));
}

}  // namespace regard::program
