// SPDX-License-Identifier: Apache-2.0
//
// `regard info`: version, compiler, instruction sets, threads, memory, caches and measured peaks of this
// machine, as the program sees them. Read next: regard/runtime.h, peaks.h.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "caches.h"
#include "peaks.h"
#include "program.h"
#include "regard/io/utf8.h"
#include "regard/runtime.h"

namespace regard::program {
namespace {

std::string cache_size(std::uint64_t bytes) {
  return bytes % (1 << 20) == 0 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

std::string as_text(const std::optional<Peaks>& peaks) {
  const Build b = build();
  std::string text = fmt::format("version           {}\ncommit            {}\ncompiler          {}\n", b.version,
                                 b.commit, b.compiler);
  const char* label = "instruction sets";
  for (const InstructionSet& set : instruction_sets()) {
    text += fmt::format("{:<18}{:<13}{}\n", label, set.name,
                        set.active      ? "active"
                        : set.available ? "available"
                                        : "not on this processor");
    label = "";
  }
  text += fmt::format("threads           {}\n", default_num_threads());
  text += fmt::format("memory            {} available\n", bytes_text(available_memory_bytes()));
  label = "caches";
  for (const Cache& cache : caches()) {
    std::string type = cache.type;
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
    text += fmt::format("{:<18}L{} {:<12} {:>8}   shared by processors {}\n", label, cache.level, type,
                        cache_size(cache.bytes), cache.shared_by);
    label = "";
  }
  return peaks ? text + peaks_text(*peaks) : text;
}

std::string as_json(const std::optional<Peaks>& peaks) {
  const Build b = build();
  std::string sets;
  for (const InstructionSet& set : instruction_sets()) {
    sets +=
        fmt::format("{}\n    {{\"name\": {}, \"available\": {}, \"active\": {}, \"fused_multiply_add\": {}}}",
                    sets.empty() ? "" : ",", json_string(set.name), set.available, set.active, set.fused_multiply_add);
  }
  std::string levels;
  for (const Cache& cache : caches()) {
    levels += fmt::format("{}\n    {{\"level\": {}, \"type\": {}, \"bytes\": {}, \"shared_by\": {}}}",
                          levels.empty() ? "" : ",", cache.level, json_string(cache.type), cache.bytes,
                          json_string(cache.shared_by));
  }
  return fmt::format(R"({{
  "schema": "regard/1",
  "command": {},
  "version": {},
  "commit": {},
  "compiler": {},
  "instruction_set": {},
  "instruction_sets": [{}],
  "threads": {},
  "memory_bytes": {},
  "caches": [{}]{}
}}
)",
                     json_string(command_line()), json_string(b.version), json_string(b.commit),
                     json_string(b.compiler), json_string(active_instruction_set()), sets, default_num_threads(),
                     available_memory_bytes(), levels, peaks ? ",\n  \"peaks\": " + peaks_json(*peaks) : "");
}

}  // namespace

void add_info(CLI::App& app) {
  struct Options {
    bool peaks = false, json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("info", "Show version, instruction sets, threads, caches and peaks");
  command->add_flag("--peaks", options->peaks,
                    "measure how fast this machine computes and reads,\nwhich takes about two seconds");
  command->add_flag("--json", options->json, "the same as JSON");
  command->footer(
      "ENVIRONMENT\n"
      "  REGARD_THREADS    number of threads\n"
      "  REGARD_FORCE_ISA  the instruction set to use: one that is listed as available\n"
      "\n"
      "EXAMPLES\n"
      "  regard info\n"
      "  regard info --peaks\n"
      "  regard info --json");
  command->callback([options] {
    std::optional<Peaks> peaks;
    if (options->peaks) peaks = measure_peaks();
    write_stdout(options->json ? as_json(peaks) : as_text(peaks));
  });
}

}  // namespace regard::program
