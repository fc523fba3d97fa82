// SPDX-License-Identifier: Apache-2.0
//
// `regard info`: version, compiler, instruction sets, threads, memory, caches and measured peaks of this machine.
// Read next: regard/runtime.h, peaks.h.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "caches.h"
#include "peaks.h"
#include "program.h"
#include "regard/io/json_writer.h"
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
                                        : "not supported by this processor");
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
  JsonWriter json;
  json.begin_object();
  write_build(json, b);
  json.string("compiler", b.compiler);
  json.string("instruction_set", active_instruction_set());
  const auto write_set = [&json](const InstructionSet& set) {
    json.string("name", set.name);
    json.boolean("available", set.available);
    json.boolean("active", set.active);
    json.boolean("fused_multiply_add", set.fused_multiply_add);
  };
  json.objects("instruction_sets", instruction_sets(), write_set, JsonLayout::hanging, JsonLayout::one_line);
  json.whole("threads", default_num_threads());
  json.whole("memory_bytes", available_memory_bytes());
  const auto write_cache = [&json](const Cache& cache) {
    json.whole("level", cache.level);
    json.string("type", cache.type);
    json.whole("bytes", cache.bytes);
    json.string("shared_by", cache.shared_by);
  };
  json.objects("caches", caches(), write_cache, JsonLayout::hanging, JsonLayout::one_line);
  if (peaks) write_peaks(json, *peaks);
  json.end_object();
  return json.take();
}

}  // namespace

void add_info(CLI::App& app) {
  struct Options {
    bool peaks = false, json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("info", "Show version, instruction sets, threads, memory and caches");
  command->add_flag("--peaks", options->peaks, "measure peak FLOP/s and memory bandwidth (takes\nabout two seconds)");
  command->add_flag("--json", options->json, "print the same data as JSON");
  command->footer(
      "ENVIRONMENT\n"
      "  REGARD_THREADS    number of threads\n"
      "  REGARD_FORCE_ISA  instruction set to use; must be listed as available\n"
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
