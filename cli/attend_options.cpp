// SPDX-License-Identifier: Apache-2.0
//
// The options of `regard attend`: their help, their values, and the checks that need no file.
// Read next: attend.cpp (their use), docs/reference/semantics.md (their meaning).
#include "attend_options.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <limits>
#include <utility>

namespace regard::program {
namespace {

constexpr const char* kExamples =
    "SHAPES\n"
    "  --query (B, H, L, D), --key (B, Hkv, S, D), --value (B, Hkv, S, Dv)\n"
    "  B: batch; H, Hkv: heads; L: queries; S: keys; D, Dv: head sizes. B, or\n"
    "  both B and H, can be omitted; outputs have as many axes as --query. All three\n"
    "  inputs must have the same type, float32 or float64. Files are NumPy files\n"
    "  (.npy), or - for standard input or standard output.\n"
    "\n"
    "EXAMPLES\n"
    "  regard attend --query q.npy --key k.npy --value v.npy -o context.npy\n"
    "  regard attend --query q.npy --key k.npy --value v.npy -o context.npy --causal\n"
    "  regard attend … -o context.npy --causal=bottom_right --window 127,0\n"
    "  regard attend … -o context.npy --weights weights.npy --rows 0:2,7:8\n"
    "  regard attend … -o context.npy --mask mask.npy --scale none --lse lse.npy\n"
    "  regard attend … --causal --html page.html\n"
    "  regard attend … --causal --inspect --save maps     at any length\n"
    "  regard attend … -o - | python3 -c 'import numpy, sys; …'";

// Options whose value is the name of an array file, in the order in which the files are opened.
using Member = std::string AttendText::*;
struct ArrayOption {
  const char* name;
  Member text;
  InputKind kind;
  const char* group;
  const char* help;
};
constexpr const char* kArrays = "ARRAYS";
constexpr const char* kSeen = "MASKS (a key is visible to a query only if all given masks allow it)";
constexpr const char* kScores = "SCORES";
constexpr ArrayOption kArrayOptions[] = {
    {"--query", &AttendText::query, InputKind::matrix, kArrays, "the queries, (B, H, L, D)"},
    {"--key", &AttendText::key, InputKind::matrix, kArrays, "the keys, (B, Hkv, S, D); H is a multiple of Hkv"},
    {"--value", &AttendText::value, InputKind::matrix, kArrays, "the values, (B, Hkv, S, Dv)"},
    {"--mask", &AttendText::mask, InputKind::boolean, kSeen,
     "bool array, broadcast to (B, H, L, S); true means\nvisible"},
    {"--key-lengths", &AttendText::key_lengths, InputKind::indices, kSeen,
     "(B) int32 or int64: the number of visible keys of\neach batch entry; later keys are masked"},
    {"--prefix", &AttendText::prefix, InputKind::indices, kSeen,
     "(B) integers: with --causal, the number of leading\nkeys that are visible to every query"},
    {"--query-segments", &AttendText::query_segments, InputKind::segments, kSeen,
     "(B, L) integers: a query attends only to keys of its\nown segment, or to none if its segment is negative"},
    {"--key-segments", &AttendText::key_segments, InputKind::segments, kSeen,
     "(B, S) integers: the segment of each key"},
    {"--query-starts", &AttendText::query_starts, InputKind::indices, kSeen,
     "for n packed sequences in (H, total, D): n + 1\nintegers, the first row of each sequence, then total"},
    {"--key-starts", &AttendText::key_starts, InputKind::indices, kSeen, "as --query-starts, for --key and --value"},
    {"--block-mask", &AttendText::block_mask, InputKind::boolean, kSeen,
     "bool array (B or 1, H or 1, blocks of L, blocks of\nS); true means visible"},
    {"--bias", &AttendText::bias, InputKind::bias, kScores,
     "added to the scores; broadcast to (B, H, L, S);\nfloat32, or the type of --query"},
    {"--alibi-slopes", &AttendText::alibi_slopes, InputKind::per_head, kScores,
     "(H): the slope of each head; -slope * distance is\nadded to the scores"},
    {"--sinks", &AttendText::sinks, InputKind::per_head, kScores,
     "(H): an extra logit, without a value, in the softmax\nof each row; -inf means no sink"},
};

constexpr const char* kQueryOffsetValues =
    "top_left, bottom_right, an integer or a .npy file of int32 or int64 with one number per batch entry";

struct OutputOption {
  const char* name;
  Member text;
  const char* help;
};
constexpr OutputOption kOutputOptions[] = {
    {"-o,--output", &AttendText::output, "the context, (B, H, L, Dv)"},
    {"--lse", &AttendText::lse, "log(sum(exp(scores))) of each row, (B, H, L)"},
    {"--row-max", &AttendText::row_max, "largest visible score of each row, (B, H, L)"},
    {"--row-sum", &AttendText::row_sum, "sum of exp(score - row_max), (B, H, L)"},
    {"--weights", &AttendText::weights, "the attention weights, (B, H, L, S), or only the\nrows that --rows selects"},
    {"--sink-weights", &AttendText::sink_weights, "the sinks' weights, (B, H, L)"},
    {"--html", &AttendText::html, "a self-contained HTML page that shows rows as\nweighted sums, and whole heads"},
};

std::string name_of(const char* option) {
  const std::string name = option;
  return name.substr(name.find("--"));
}

std::optional<QueryAlignment> parse_alignment(std::string_view text) {
  if (text == "top_left") return QueryAlignment::top_left;
  if (text == "bottom_right") return QueryAlignment::bottom_right;
  return std::nullopt;
}

bool looks_like_number(std::string_view text) {
  const std::size_t digit = text.starts_with('-') ? 1 : 0;
  return text.size() > digit && text.find_first_not_of("0123456789", digit) == std::string_view::npos;
}

// Any number: as a value of --query-offset, 1.5 is an error and not a file name.
bool is_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

Index parse_at_least(std::string_view option, std::string_view text, Index least) {
  const Index n = parse_integer(option, text);
  if (n < least) {
    throw UsageError(std::string(option) + " is " + std::to_string(n) + "; expected " + std::to_string(least) +
                     " or more");
  }
  return n;
}

// --causal and --query-offset, of which only one can set the offset.
void parse_position(const AttendText& text, AttendSettings& settings) {
  settings.causal = !text.causal.empty();
  const bool in_causal = settings.causal && text.causal != "true";
  if (in_causal && !text.query_offset.empty()) {
    throw UsageError("--causal=" + text.causal +
                     " and --query-offset both set the offset; write --causal without a value");
  }
  const std::string& offset = in_causal ? text.causal : text.query_offset;
  settings.alignment = parse_alignment(offset);
  if (settings.alignment) return;
  if (looks_like_number(offset)) {
    settings.offset = parse_integer(in_causal ? "--causal" : "--query-offset", offset);
  } else if (in_causal) {
    reject_value("--causal", offset, "top_left, bottom_right or an integer");
  } else if (is_number(offset)) {
    reject_value("--query-offset", offset, kQueryOffsetValues);
  }
}

std::vector<RowRange> parse_rows(const AttendText& text) {
  if (text.rows.empty()) return {};
  if (text.weights.empty() && text.html.empty()) throw UsageError("--rows needs --weights FILE or --html FILE");
  std::vector<RowRange> rows;
  for (std::string_view range : split(text.rows, ',')) {
    const auto ends = split(range, ':');
    if (ends.size() != 2)
      reject_value("--rows", text.rows, "BEGIN:END such as 0:2 for rows 0 and 1, or several separated by commas");
    const Index begin = parse_at_least("--rows", ends[0], 0);
    rows.push_back({begin, parse_at_least("--rows: the end of a range", ends[1], begin)});
  }
  return rows;
}

InspectSettings parse_inspect(const AttendText& text) {
  InspectSettings settings;
  if (!text.map_size.empty()) {
    const auto sides = split(text.map_size, ',');
    if (sides.size() > 2)
      reject_value("--map-size", text.map_size, "a number such as 512, or rows and columns: 64,512");
    settings.map_size = {parse_at_least("--map-size", sides.front(), 1), parse_at_least("--map-size", sides.back(), 1)};
  }
  if (!text.map_scale.empty() && text.map_scale != "log" && text.map_scale != "linear")
    reject_value("--map-scale", text.map_scale, "log or linear");
  if (text.map_scale == "linear") settings.map_scale = MapScale::linear;
  if (!text.top.empty()) settings.heads.top = parse_at_least("--top", text.top, 0);
  if (!text.track_keys.empty()) {
    settings.heads.track_keys.clear();
    for (std::string_view key : split(text.track_keys, ','))
      settings.heads.track_keys.push_back(parse_at_least("--track-keys", key, 0));
  }
  return settings;
}

std::optional<double> parse_soft_cap(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const double cap = parse_number("--soft-cap", text);
  if (!(cap > 0)) throw UsageError("--soft-cap is " + text + "; expected a number above 0");
  return cap;
}

std::optional<double> parse_scale_factor(const std::string& text) {
  if (text.empty() || text == "sqrt") return std::nullopt;
  if (text == "none") return 1.0;
  if (text.find_first_of("0123456789") == std::string::npos)
    reject_value("--scale", text, "sqrt, none or a finite number");
  return parse_number("--scale", text);
}

std::array<Index, 2> parse_block_size(const std::string& text) {
  if (text.empty()) return {};
  const auto sides = split(text, ',');
  if (sides.size() != 2) reject_value("--block-size", text, "BQ,BK such as 16,64");
  return {parse_at_least("--block-size", sides[0], 1), parse_at_least("--block-size", sides[1], 1)};
}

// The library reduces a number that is larger than the machine can use.
int parse_threads(const std::string& text) {
  if (text.empty()) return 0;
  return static_cast<int>(std::min<Index>(parse_at_least("--threads", text, 0), std::numeric_limits<int>::max()));
}

// ---- conditions on several options that CLI11 cannot check: one of several, or only for some values

void check_inputs(const AttendText& text) {
  for (const ArrayOption& option : kArrayOptions) {
    if (option.kind == InputKind::matrix && (text.*option.text).empty())
      throw UsageError(std::string(option.name) +
                       " is missing; attend needs a file for each of --query, --key and --value");
  }
  for (const NamedPath& input : text.inputs()) {
    if (text.ranks && input.path == "-")
      throw UsageError(input.option + " - would be read by every process; with --ranks, name a file");
  }
}

void check_outputs(const AttendText& text) {
  std::vector<NamedPath> written = text.outputs();
  if (written.empty() && !text.json && !text.inspect) {
    throw UsageError(
        "nothing would be written; name an output such as -o context.npy or --html page.html, or give --inspect or "
        "--json");
  }
  for (const NamedPath& file : text.saved()) written.push_back({"--save", file.path});
  check_paths(text.inputs(), written);
}

// The files that are given as -.
void check_standard_streams(const AttendText& text) {
  for (const NamedPath& input : text.inputs()) {
    if (input.path == "-" && reads_from_terminal()) {
      throw UsageError(input.option +
                       " - would read a binary file from the terminal; name a file, or redirect one to standard input");
    }
  }
  const std::string report = text.json ? "--json" : text.inspect ? "--inspect" : "";
  for (const auto& [option, path] : text.outputs()) {
    if (path != "-") continue;
    if (!report.empty())
      throw UsageError(option + " - and " + report + " both write to standard output; give " + option + " a file");
    if (writes_to_terminal() && option != "--html")
      throw UsageError(option + " - would write binary data to the terminal; name a file, or redirect the output");
  }
}

// The dependencies between options, which CLI11 checks.
void add_dependencies(CLI::App& command) {
  const auto each_needs_other = [&](const std::string& a, const std::string& b) {
    needs(command.get_option(a), command.get_option(b), a + " needs " + b);
    needs(command.get_option(b), command.get_option(a), b + " needs " + a);
  };
  each_needs_other("--query-starts", "--key-starts");
  each_needs_other("--query-segments", "--key-segments");
  each_needs_other("--block-mask", "--block-size");
  for (const std::string name : {"--save", "--map-size", "--map-scale", "--top", "--track-keys"})
    needs(command.get_option(name), command.get_option("--inspect"), name + " needs --inspect");
  needs(command.get_option("--sink-weights"), command.get_option("--sinks"), "--sink-weights needs --sinks");
  needs(command.get_option("--timeout"), command.get_option("--ranks"), "--timeout needs --ranks");
  for (const std::string name : {"--inspect", "--html", "--rows"}) excludes(command, "--ranks", name);
}

}  // namespace

Window parse_window(std::string_view text) {
  Window window;
  const auto sides = split(text, ',');
  if (sides.size() != 2) reject_value("--window", text, "LEFT,RIGHT such as 127,0 or -,0 (- means no limit)");
  if (sides[0] != "-") window.left = parse_at_least("--window: the left side", sides[0], 0);
  if (sides[1] != "-") window.right = parse_at_least("--window: the right side", sides[1], 0);
  return window;
}

std::vector<NamedPath> AttendText::inputs() const {
  std::vector<NamedPath> paths;
  for (const ArrayOption& option : kArrayOptions) {
    if (!(this->*option.text).empty()) paths.push_back({option.name, this->*option.text});
  }
  if (!query_offset.empty() && !looks_like_number(query_offset) && !parse_alignment(query_offset)) {
    paths.push_back({"--query-offset", query_offset});
  }
  return paths;
}

std::vector<NamedPath> AttendText::outputs() const {
  std::vector<NamedPath> paths;
  for (const OutputOption& option : kOutputOptions) {
    if (!(this->*option.text).empty()) paths.push_back({name_of(option.name), this->*option.text});
  }
  return paths;
}

std::vector<NamedPath> AttendText::saved() const {
  if (save.empty()) return {};
  std::vector<NamedPath> paths;
  for (const std::string name : {"key_mass", "pooled_map", "entropy", "largest_weight", "mean_distance", "top_keys",
                                 "top_weights", "inspect_json"}) {
    if (top == "0" && name.starts_with("top_")) continue;
    std::string option = "--" + name;
    std::replace(option.begin(), option.end(), '_', '-');
    paths.push_back({option, std::filesystem::path(save) / (name == "inspect_json" ? "inspect.json" : name + ".npy")});
  }
  return paths;
}

std::string values_of_input(std::string_view option) {
  if (option == "--query-offset") return kQueryOffsetValues;
  switch (kind_of_input(option)) {
    case InputKind::boolean:
      return "a .npy file of bool";
    case InputKind::indices:
    case InputKind::segments:
      return "a .npy file of int32 or int64";
    default:
      return "a .npy file of float32 or float64";
  }
}

InputKind kind_of_input(std::string_view option) {
  const auto* found = std::find_if(std::begin(kArrayOptions), std::end(kArrayOptions),
                                   [&](const ArrayOption& array) { return array.name == option; });
  return found == std::end(kArrayOptions) ? InputKind::indices : found->kind;
}

bool is_attend_option(std::string_view name) {
  for (const char* option : {"causal", "query_offset", "window", "block_size", "soft_cap", "scale"}) {
    if (name == option) return true;
  }
  return std::any_of(std::begin(kArrayOptions), std::end(kArrayOptions), [&](const ArrayOption& array) {
    std::string library_name = array.name + 2;
    std::replace(library_name.begin(), library_name.end(), '-', '_');
    return library_name == name;
  });
}

CLI::App* add_attend_options(CLI::App& app, AttendText& text) {
  CLI::App* command = app.add_subcommand("attend", "Compute attention on arrays in NumPy files (.npy)");
  command->footer(kExamples);
  const auto add_arrays = [&](const char* group) {
    for (const ArrayOption& option : kArrayOptions) {
      if (std::string_view(option.group) != group) continue;
      command->add_option(option.name, text.*option.text, option.help)->type_name("FILE")->group(group);
    }
  };
  const auto add = [&](const char* name, Member member, const char* type, const char* group, const char* help) {
    return command->add_option(name, text.*member, help)->type_name(type)->group(group);
  };
  add_arrays(kArrays);
  const char* outputs = "OUTPUTS (either all or none are written)";
  for (const OutputOption& option : kOutputOptions) add(option.name, option.text, "FILE", outputs, option.help);
  add("--rows", &AttendText::rows, "A:B,C:D", outputs,
      "rows for --weights and --html: from A up to, but not\nincluding, B, numbered from 0; one or more ranges");
  add("--causal", &AttendText::causal, "[=top_left|bottom_right|N]", kSeen,
      "query i attends to keys up to i + offset. The offset\nis 0 unless given here or by --query-offset; it is\n"
      "required if L and S differ")
      ->expected(0, 1);
  add("--query-offset", &AttendText::query_offset, "top_left|bottom_right|N|FILE", kSeen,
      "top_left: offset 0; bottom_right: offset S - L; N:\nthis offset; FILE: one offset per batch entry");
  add("--window", &AttendText::window, "LEFT,RIGHT", kSeen,
      "only keys from i + offset - LEFT to i + offset +\nRIGHT are visible; - means no limit");
  add_arrays(kSeen);
  add("--block-size", &AttendText::block_size, "BQ,BK", kSeen,
      "numbers of queries and keys in a block of\n--block-mask");
  add("--scale", &AttendText::scale, "sqrt|none|NUMBER", kScores,
      "factor applied to the scores; sqrt: 1/sqrt(D)\n(default); none: 1");
  add("--soft-cap", &AttendText::soft_cap, "C", kScores, "soft-cap the scaled scores: C * tanh(score / C),\nC > 0");
  add_arrays(kScores);
  const char* inspection = "INSPECTION (memory is linear in L and S)";
  command
      ->add_flag("--inspect", text.inspect,
                 "print how much attention each key receives in each\nhead; with --html, also show maps of all heads")
      ->group(inspection);
  add("--save", &AttendText::save, "FOLDER", inspection,
      "write a picture of each head, key_mass.npy (B, H, S)\nwith the total weight on each key, pooled_map.npy\n"
      "(B, H, rows, columns) with mean weights, and more;\nsee docs/guide/inspection.md");
  add("--map-size", &AttendText::map_size, "N|ROWS,COLUMNS", inspection,
      "size of a pooled map, in cells (default: at most\n512 x 512)");
  add("--map-scale", &AttendText::map_scale, "log|linear", inspection,
      "color scale of the pictures; log (default): four\ndecades; linear: proportional");
  add("--top", &AttendText::top, "N", inspection,
      "number of heavy hitters (the keys with the most\nweight) to list per head, and per query in the\n"
      "files (default: 5; in text output, as many as fit on\none line)");
  add("--track-keys", &AttendText::track_keys, "KEY,KEY", inspection,
      "keys whose shares of the weight are always listed,\nnumbered from 0 (default: 0)");
  add("--threads", &AttendText::threads, "N", "RUNNING", "number of threads; 0 (default): one per core");
  add("--max-memory", &AttendText::max_memory, "BYTES", "RUNNING",
      "memory limit, such as 8G (default: the available\nmemory)");
  command
      ->add_flag("--ranks", text.ranks,
                 "distribute rows and keys over the processes started\nby mpirun; see docs/guide/several-machines.md")
      ->group("RUNNING");
  add("--timeout", &AttendText::timeout, "SECONDS", "RUNNING",
      "with --ranks: time to wait for an unresponsive\nprocess (default: 60)");
  command->add_flag("--json", text.json, "print shapes, plan and timing as JSON")->group("RUNNING");
  add_dependencies(*command);
  return command;
}

AttendSettings parse(const AttendText& text) {
  check_inputs(text);
  AttendSettings settings;
  parse_position(text, settings);
  if (!text.window.empty()) settings.window = parse_window(text.window);
  settings.rows = parse_rows(text);
  settings.inspect = parse_inspect(text);
  settings.soft_cap = parse_soft_cap(text.soft_cap);
  settings.scale = parse_scale_factor(text.scale);
  settings.block_size = parse_block_size(text.block_size);
  settings.threads = parse_threads(text.threads);
  if (!text.max_memory.empty()) settings.max_memory = parse_bytes("--max-memory", text.max_memory);
  check_outputs(text);
  check_standard_streams(text);
  return settings;
}

}  // namespace regard::program
