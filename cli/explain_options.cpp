// SPDX-License-Identifier: Apache-2.0
//
// The options that `explain` and `lesson` share, and the keys for paging; see explain_options.h.
// Read next: explain.cpp.
#include "explain_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "explain_long.h"

namespace regard::program {
namespace {

Index parse_count(const std::string& option, const std::string& text, Index least, Index most) {
  const Index n = parse_integer(option, text);
  if (n < least || n > most)
    throw UsageError(fmt::format("{} is {}; expected an integer from {} to {}", option, n, least, most));
  return n;
}

// A row or column, given by its index or by its word as it is printed: love, can#1.
Index parse_cell_part(std::string_view text, const std::vector<std::string>& tokens) {
  const bool number = text.find_first_not_of("0123456789", text.starts_with('-') ? 1 : 0) == std::string_view::npos;
  if (number || text.empty() || tokens.empty()) return parse_integer("--cell", text);
  return usage("--cell", [&] { return token_index(tokens, text); });
}

Cell parse_cell(const std::string& text, const ExplainInput& input) {
  const std::vector<std::string_view> parts = split(text, ',');
  if (parts.size() != 2 && parts.size() != 3)
    reject_value("--cell", text, "ROW,COLUMN such as 1,0 or love,I, or HEAD,ROW,COLUMN");
  const std::size_t row = parts.size() - 2;
  std::vector<std::string> rows = query_tokens(input);
  std::vector<std::string> columns = input.key_tokens.empty() ? rows : input.key_tokens;
  if (input.settings.layout == Layout::columns) std::swap(rows, columns);
  return {.row = parse_cell_part(parts[row], rows),
          .column = parse_cell_part(parts[row + 1], columns),
          .head = parts.size() == 3 ? parse_integer("--cell", parts[0]) : 0};
}

enum class Navigation { forward, back, stop };

// Reads keys from the controlling terminal, one at a time and without echo; the destructor restores the terminal.
class KeyReader {
 public:
  KeyReader() : terminal_(::open("/dev/tty", O_RDWR | O_CLOEXEC)) {
    if (terminal_ < 0 || ::tcgetattr(terminal_, &before_) != 0) {
      if (terminal_ >= 0) ::close(terminal_);
      throw UsageError("--pause needs a terminal");
    }
    termios raw = before_;
    // Ctrl-C is read as a key, so that it cannot end the program before the terminal is restored.
    raw.c_lflag &= static_cast<tcflag_t>(~(ICANON | ECHO | ISIG));
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(terminal_, TCSANOW, &raw);
  }
  KeyReader(const KeyReader&) = delete;
  KeyReader& operator=(const KeyReader&) = delete;
  ~KeyReader() {
    ::tcsetattr(terminal_, TCSANOW, &before_);
    ::close(terminal_);
  }
  // Waits for a key that is bound to an action.
  Navigation next() const {
    constexpr unsigned char kEscape = 27, kControlC = 3, kControlD = 4;
    while (true) {
      const int key = read_byte();
      if (key < 0 || key == 'q' || key == kControlC || key == kControlD) return Navigation::stop;
      if (key == ' ' || key == '\r' || key == '\n') return Navigation::forward;
      if (key == 'b') return Navigation::back;
      if (key != kEscape || !has_more()) continue;
      // ← is ESC [ D or ESC O D, → is C in place of D, Page Up is ESC [ 5 ~, Page Down ESC [ 6 ~.
      std::string sequence;
      do sequence += static_cast<char>(std::max(read_byte(), 0));
      while (sequence.size() < 8 && has_more() && (sequence.size() < 2 || sequence.back() < '@'));
      if (sequence == "[D" || sequence == "OD" || sequence == "[5~") return Navigation::back;
      if (sequence == "[C" || sequence == "OC" || sequence == "[6~") return Navigation::forward;
    }
  }

 private:
  // -1 at the end of input.
  int read_byte() const {
    unsigned char byte = 0;
    return ::read(terminal_, &byte, 1) == 1 ? byte : -1;
  }
  // Whether further bytes of the same key follow; they arrive together.
  bool has_more() const {
    constexpr int kMilliseconds = 50;
    pollfd waiting{.fd = terminal_, .events = POLLIN, .revents = 0};
    return ::poll(&waiting, 1, kMilliseconds) == 1;
  }

  int terminal_;
  termios before_{};
};

void write_pages(const std::vector<std::string>& pages) {
  const KeyReader keys;
  bool first = true;
  for (std::size_t i = 0; i < pages.size();) {
    write_stdout((first ? "" : "\n") + pages[i]);
    first = false;
    const std::string hint = fmt::format("-- {} of {}; space: {}; b: back; q: quit --", i + 1, pages.size(),
                                         i + 1 < pages.size() ? "next" : "end");
    write_stdout(hint);
    Navigation choice = keys.next();
    while (choice == Navigation::back && i == 0) choice = keys.next();
    write_stdout("\r" + std::string(hint.size(), ' ') + "\r");
    if (choice == Navigation::stop) break;
    i = choice == Navigation::back ? i - 1 : i + 1;
  }
}

}  // namespace

void add_explain_options(CLI::App& command, ExplainText& text, const char* settings) {
  const auto add = [&command](const char* group, const char* name, std::string& value, const char* type,
                              const char* help) {
    return command.add_option(name, value, help)->type_name(type)->group(group);
  };
  add(settings, "--causal", text.causal, "[=top_left|bottom_right|off|N]",
      "mask later keys; top_left, or no value: query 0 is\naligned with key 0; N: query 0 with key N;\n"
      "bottom_right: last query with last key; off: no mask")
      ->expected(0, 1);
  add(settings, "--scale", text.scale, "sqrt|none|floor_half|NUMBER",
      "scaling of the scores; sqrt: multiply by 1/√D; none:\nno scaling; NUMBER: multiply by this number;\n"
      "floor_half: replace each score by floor(score / 2)");
  add(settings, "--layout", text.layout, "rows|columns", "layout of the matrices: each token is a row or a\ncolumn");
  add(settings, "--softmax", text.softmax, "shifted|unshifted|ratio",
      "shifted: subtract the largest score first, as the\nlibrary does; unshifted: do not subtract it; ratio:\n"
      "score / sum of scores");
  add(settings, "--softmax-base", text.softmax_base, "e|NUMBER", "base of the exponentials, such as 3 (default: e)");
  add(settings, "--heads", text.heads, "N", "split the projections, or Q, K and V, into N heads");
  add(settings, "--dtype", text.dtype, "f64|f32", "data type of all computations");
  add(settings, "--tokens", text.tokens, "WORDS", "the token names, separated by commas: I,love,coding");
  add(settings, "--query", text.query, "WORD|@INDEX", "the query to show; WORD#1 is the second occurrence\nof WORD");
  const char* view = "OUTPUT (all indices start at 0)";
  add(view, "--step", text.step, "N|NAME", "show only this step");
  add(view, "--cell", text.cell, "ROW,COLUMN",
      "show how this cell is computed in each step:\n1,0 or love,I (with heads: HEAD,ROW,COLUMN)");
  add(view, "--digits", text.digits, "N", "number of decimal places, 0 to 17");
  command.add_flag("--full", text.full, "show every number; large matrices are otherwise\nabbreviated")->group(view);
  command.add_flag("--pause", text.pause, "pause after each step (space: next, b: back,\nq: quit)")->group(view);
  command.add_flag("--json", text.json, "print the data as JSON")->group(view);
  excludes(command, "--pause", "--json");
  add(view, "--html", text.html, "FILE",
      "write a self-contained HTML page (for matrices, this\n"
      "replaces the text output)");
  for (const char* name : {"--step", "--cell", "--pause"})
    excludes(command.get_option("--html"), command.get_option(name),
             "--html writes every step with all its cells; --step, --cell and --pause apply only to the text");
  add_color_option(command, text.color);
  command.get_option("--color")->group(view);
}

void override_settings(const ExplainText& text, ExplainInput& input) {
  ExplainSettings& settings = input.settings;
  if (!text.causal.empty())
    settings.causal = usage("--causal", [&] { return parse_causal(text.causal == "true" ? "top_left" : text.causal); });
  if (!text.scale.empty()) settings.scale = usage("--scale", [&] { return parse_scale(text.scale); });
  if (!text.layout.empty()) settings.layout = usage("--layout", [&] { return parse_layout(text.layout); });
  if (!text.softmax.empty()) {
    if (text.softmax != "shifted" && text.softmax != "unshifted" && text.softmax != "ratio")
      reject_value("--softmax", text.softmax, "shifted, unshifted or ratio");
    settings.softmax = text.softmax == "shifted"     ? SoftmaxRule::shifted
                       : text.softmax == "unshifted" ? SoftmaxRule::unshifted
                                                     : SoftmaxRule::ratio;
  }
  if (text.softmax_base == "e") settings.softmax_base.reset();
  if (!text.softmax_base.empty() && text.softmax_base != "e") {
    settings.softmax_base = parse_number("--softmax-base", text.softmax_base);
    if (!(*settings.softmax_base > 0))
      throw UsageError("--softmax-base is " + text.softmax_base + "; expected e or a number above 0");
  }
  if (!text.heads.empty()) settings.heads = parse_count("--heads", text.heads, 1, 65536);
  if (!text.dtype.empty()) {
    if (text.dtype != "f64" && text.dtype != "f32") reject_value("--dtype", text.dtype, "f64 or f32");
    settings.dtype = text.dtype == "f32" ? ElementType::float32 : ElementType::float64;
  }
  if (!text.digits.empty()) settings.digits = static_cast<int>(parse_count("--digits", text.digits, 0, 17));
  if (!text.tokens.empty()) {
    input.tokens.clear();
    for (std::string_view word : split(text.tokens, ',')) input.tokens.emplace_back(word);
  }
  if (!text.query.empty()) {
    settings.query = text.query;
    usage("--query", [&] { return token_index(query_tokens(input), text.query); });
  }
}

void show_explanation(const ExplainInput& input, const ExplainText& text) {
  if (text.html == "-" && text.json) throw UsageError("--html - and --json both write to standard output");
  if (!text.html.empty() && has_long_page(input)) return write_long_page(input, text);
  if (text.pause && !writes_to_terminal()) throw UsageError("--pause needs a terminal, but standard output is not one");
  TextOptions options{.width = output_width(),
                      .color = use_color(text.color),
                      .unicode = terminal_is_unicode(),
                      .full = text.full,
                      .step = text.step};
  Keep keep{.all = text.full};
  if (!text.digits.empty()) options.digits = static_cast<int>(parse_count("--digits", text.digits, 0, 17));
  if (!text.cell.empty()) {
    options.cell = parse_cell(text.cell, input);
    keep.also = {options.cell->row, options.cell->column};
  }
  const Explanation explanation = explain(input, keep);
  if (!text.html.empty()) {
    const std::string html = render_html(explanation, {.command = command_line(), .digits = options.digits});
    OutputFiles files;
    const std::size_t file = files.add(text.html);
    files.write(file, html.data(), html.size());
    if (text.json) write_stdout(render_json(explanation, {.command = command_line()}));
    files.commit();
    return;
  }
  const std::string chosen = text.step.empty() ? "--cell" : text.cell.empty() ? "--step" : "--step, --cell";
  if (text.json) {
    const JsonOptions json{.command = command_line(), .step = text.step, .cell = options.cell};
    write_stdout(usage(chosen, [&] { return render_json(explanation, json); }));
  } else if (text.pause) {
    write_pages(usage(chosen, [&] { return render_text_pages(explanation, options); }));
  } else {
    write_stdout(usage(chosen, [&] { return render_text(explanation, options); }));
  }
}

}  // namespace regard::program
