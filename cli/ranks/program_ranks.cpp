// SPDX-License-Identifier: Apache-2.0
//
// Loads regard-mpi.so: the file that $REGARD_MPI_PLUGIN names, else one next to the program, else the installed one.
// Read next: program_ranks.h.
#include "ranks/program_ranks.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <filesystem>
#include <memory>
#include <thread>

#include "program.h"
#include "ranks/mpi_plugin.h"
#include "regard/error.h"
#include "regard/io/utf8.h"

namespace regard::program {
namespace {

constexpr const char* kPlugin = "regard-mpi.so";

std::string plugin_path() {
  if (const std::string_view given = environment_variable("REGARD_MPI_PLUGIN"); !given.empty())
    return std::string(given);
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  for (const std::filesystem::path& path :
       {folder / kPlugin, folder / ".." / REGARD_LIBRARY_FOLDER / "regard" / kPlugin}) {
    if (std::filesystem::exists(path, error)) return path.string();
  }
  throw std::runtime_error(
      "--ranks needs the MPI plugin of this program, regard-mpi.so, which was not built; configure with "
      "-DREGARD_MPI=ON, or set REGARD_MPI_PLUGIN to the plugin for your MPI implementation");
}

struct Plugin {
  decltype(&regard_mpi_begin) begin;
  decltype(&regard_mpi_end) end;
};

// Never unloaded: MPI leaves threads and handlers behind.
Plugin load_plugin() {
  const std::string path = plugin_path();
  // Parts of some MPIs are loaded later and need the symbols of the first.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr)
    throw std::runtime_error(fmt::format("--ranks: the MPI plugin cannot be loaded: {}", dlerror()));
  const auto function = [&](const char* name) {
    void* const found = dlsym(library, name);
    if (found == nullptr)
      throw std::runtime_error(fmt::format("--ranks: {}: is not an MPI plugin of this program", path));
    return found;
  };
  return {reinterpret_cast<decltype(&regard_mpi_begin)>(function("regard_mpi_begin")),
          reinterpret_cast<decltype(&regard_mpi_end)>(function("regard_mpi_end"))};
}

}  // namespace

RanksOptions parse_timeout(const std::string& text) {
  if (text.empty()) return {};
  const double seconds = parse_number("--timeout", text);
  if (!(seconds > 0)) throw UsageError(fmt::format("--timeout is {}; expected a number of seconds above 0", text));
  return {.timeout = std::chrono::duration<double>(seconds)};
}

void run_on_ranks(const RanksOptions& options, const std::function<void(Ranks&)>& run) {
  const Plugin plugin = load_plugin();
  std::string lost, common;
  int exit_code = 0;
  Index rank = 0;
  std::exception_ptr stopped;
  {
    Ranks ranks(std::unique_ptr<Transport>(plugin.begin()), options);
    rank = ranks.rank();
    try {
      run(ranks);
    } catch (const RankError& error) {
      lost = error.what();
    } catch (const UsageError& error) {
      common = error.what();
      exit_code = 2;
    } catch (const std::invalid_argument& error) {
      common = error.what();
      exit_code = 1;
    } catch (const StoppedBySignal&) {
      stopped = std::current_exception();
    } catch (const std::exception& error) {
      ranks.fail(error.what());
      lost = fmt::format("rank {} of {} failed: {}", ranks.rank(), ranks.num_ranks(), error.what());
    }
  }
  // mpirun ends all processes when the first one exits with an error: before that, everything must have been printed.
  const auto print = [](const std::string& text) { fmt::print(stderr, "regard: {}\n", escape_for_terminal(text)); };
  if (!lost.empty()) {
    print(lost);
    // One process ends all: launchers may hang if several do so simultaneously.
    std::this_thread::sleep_for(std::chrono::seconds(2) + rank * std::chrono::milliseconds(500));
    plugin.end(1);
    throw ReportedError(lost, 1);
  }
  if (exit_code != 0 && rank == 0) print(common);
  plugin.end(0);
  if (stopped) std::rethrow_exception(stopped);
  if (exit_code != 0) throw ReportedError(common, exit_code);
}

}  // namespace regard::program
