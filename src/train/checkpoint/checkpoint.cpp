// SPDX-License-Identifier: Apache-2.0
//
// The folders of checkpoints: how they are created, which of them are kept, and how they are removed.
//
//     .step-00002000.partial ── all files written and flushed to disk ── rename ──▶ step-00002000
//     step-00001000 ── rename ──▶ .step-00001000.old ── removed
//
// A folder whose name does not begin with a dot is therefore always a complete checkpoint. The remains of a killed
// process are removed by the next save. The newest checkpoint is found by listing the folders, because a file that
// names it could contradict them.
// Read next: checkpoint_files.cpp.
#include "regard/train/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "checkpoint_files.h"
#include "instantiate.h"
#include "regard/error.h"
#include "regard/io/output_file.h"
#include "regard/io/utf8.h"

namespace regard::inline v0 {
namespace {

namespace fs = std::filesystem;

using internal::path_in;

constexpr std::string_view kStep = "step-";
constexpr std::size_t kMinDigits = 8;
constexpr std::size_t kMaxDigits = 13;  // 2^40 steps
constexpr std::size_t kCheckpointsKept = 2;

[[noreturn]] void fail_checkpoint(const std::string& path, const std::string& what) {
  throw DataError(fmt::format("{}: {}", escape_for_terminal(path), what));
}

// The step of a checkpoint's folder, −1 for any other name.
Index step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return -1;
  name.remove_prefix(kStep.size());
  if (name.size() < kMinDigits || name.size() > kMaxDigits || (name.size() > kMinDigits && name[0] == '0')) return -1;
  Index step = 0;
  for (const char c : name) {
    if (c < '0' || c > '9') return -1;
    step = 10 * step + (c - '0');
  }
  return step;
}

struct Listed {
  Index step;
  std::string name;
};

// The checkpoints, the newest last, and the remains of killed processes.
struct Listing {
  explicit Listing(const std::string& run) {
    std::error_code error;
    if (!fs::exists(fs::symlink_status(run, error))) return;
    fs::directory_iterator at(run, error);
    for (; !error && at != fs::directory_iterator(); at.increment(error)) {
      const std::string name = at->path().filename().string();
      std::error_code gone;
      if (const Index step = step_of(name); step >= 0 && at->is_directory(gone)) checkpoints.push_back({step, name});
      if (name.starts_with(fmt::format(".{}", kStep))) remains.push_back(name);
    }
    if (error) fail_checkpoint(run, "cannot be read: " + error.message());
    std::sort(checkpoints.begin(), checkpoints.end(), [](const Listed& a, const Listed& b) { return a.step < b.step; });
  }
  std::vector<Listed> checkpoints;
  std::vector<std::string> remains;
};

void remove_folder(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_checkpoint(path, "cannot be removed: " + error.message());
}

void rename_folder(const std::string& from, const std::string& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) fail_checkpoint(to, "cannot be moved into place: " + error.message());
}

// A folder that is removed with its contents, unless it has been renamed.
class PartialFolder {
 public:
  explicit PartialFolder(std::string path) : path_(std::move(path)) {
    std::error_code error;
    if (!fs::create_directory(path_, error) || error) fail_checkpoint(path_, "cannot be created: " + error.message());
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void create_run_folder(const std::string& run) {
  std::error_code error;
  if (fs::create_directory(run, error)) return sync_folder(fs::path(run).parent_path().string());
  if (error) fail_checkpoint(run, "the folder cannot be created: " + error.message());
}

}  // namespace

std::vector<std::string> list_checkpoints(const std::string& run) {
  std::vector<std::string> paths;
  for (const Listed& checkpoint : Listing(run).checkpoints) paths.push_back(path_in(run, checkpoint.name));
  return paths;
}

std::string trained_model_folder(const std::string& path) {
  std::error_code error;
  if (fs::exists(path_in(path, internal::kConfigName), error)) return path;
  const std::vector<std::string> checkpoints = list_checkpoints(path);
  if (checkpoints.empty()) {
    fail_checkpoint(path,
                    "has neither a config.json nor a checkpoint; expected the folder of a training run or of a model");
  }
  return checkpoints.back();
}

template <class T>
std::string save_checkpoint(const std::string& run, const TrainingState& state, const TrainingArrays<const T>& arrays) {
  const auto step = static_cast<Index>(state.history.size());
  internal::check_to_save(state, arrays);
  create_run_folder(run);
  const Listing before(run);
  if (!before.checkpoints.empty() && before.checkpoints.back().step > step) {
    fail_checkpoint(
        run,
        fmt::format("contains a checkpoint from step {}, later than step {} of this run; expected the folder of this "
                    "run, or an empty one",
                    before.checkpoints.back().step, step));
  }
  for (const std::string& name : before.remains) remove_folder(path_in(run, name));
  const std::string name = fmt::format("{}{:0{}}", kStep, step, kMinDigits);
  const std::string path = path_in(run, name);
  const auto remove_checkpoint = [&](const std::string& old) {
    const std::string hidden = path_in(run, fmt::format(".{}.old", old));
    rename_folder(path_in(run, old), hidden);
    remove_folder(hidden);
  };
  {
    const PartialFolder partial(path_in(run, fmt::format(".{}.partial", name)));
    internal::write_checkpoint(partial.path(), state, arrays);
    sync_folder(partial.path());
    if (!before.checkpoints.empty() && before.checkpoints.back().step == step) remove_checkpoint(name);
    rename_folder(partial.path(), path);
  }
  sync_folder(run);
  const std::vector<Listed> all = Listing(run).checkpoints;
  for (std::size_t i = 0; i + kCheckpointsKept < all.size(); ++i) remove_checkpoint(all[i].name);
  return path;
}

REGARD_INSTANTIATE_COMPUTE(save_checkpoint);

}  // namespace regard::inline v0
