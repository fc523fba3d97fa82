// SPDX-License-Identifier: Apache-2.0
//
// Implements progress.h. The line is overwritten from its start and padded with blanks, so that any terminal with a
// carriage return can show it. Its number of columns is also kept in an atomic, with which a signal handler can erase
// the line. Read next: progress.h.
#include "progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace regard::program {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBeforeFirst{1000};
constexpr milliseconds kBetween{100};
constexpr int kMaxColumns = 100;
// The columns of the ^C that a terminal echoes after the line.
constexpr int kEcho = 2;

// The width of the current line; −1 after a terminating signal.
constinit std::atomic<int> drawn_columns{0};

// A failure to write the progress line is ignored.
void write_line(const char* bytes, int count) noexcept {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, bytes, static_cast<std::size_t>(count));
}

void erase(int columns) noexcept {
  if (columns <= 0) return;
  std::array<char, kMaxColumns + kEcho + 2> blanks;
  blanks.fill(' ');
  const int count = columns + kEcho + 2;
  blanks[0] = blanks[static_cast<std::size_t>(count - 1)] = '\r';
  write_line(blanks.data(), count);
}

bool is_terminal() {
  const char* type = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && type != nullptr && *type != '\0' && std::string_view(type) != "dumb";
}

int available_columns() {
  winsize size{};
  const int columns = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  return std::clamp(columns - kEcho - 1, 0, kMaxColumns);
}

std::string time_text(double seconds) {
  if (seconds < 99.5) return fmt::format("{:.0f} s to go", seconds);
  if (seconds < 99.5 * 60) return fmt::format("{:.0f} min to go", seconds / 60);
  return fmt::format("{:.0f} h to go", seconds / 3600);
}

}  // namespace

Progress::Progress(std::string label) : label_(std::move(label)), shown_(is_terminal()), next_draw_(kBeforeFirst) {}

Progress::~Progress() { erase(drawn_columns.exchange(0)); }

std::function<void(Index, Index)> Progress::report() {
  if (!shown_) return {};
  return [this](Index done, Index total) { update(done, total); };
}

void Progress::update(Index done, Index total) noexcept {
  if (!shown_) return;
  total_ = total;
  // Reports of several threads may arrive out of order.
  Index before = done_;
  while (before < done && !done_.compare_exchange_weak(before, done)) continue;
  const auto elapsed = std::chrono::duration_cast<milliseconds>(Clock::now() - begin_);
  if (elapsed < next_draw_.load()) return;
  const std::unique_lock lock(drawing_, std::try_to_lock);
  if (!lock || elapsed < next_draw_.load()) return;
  next_draw_ = elapsed + kBetween;
  draw(elapsed);
}

void Progress::draw(milliseconds elapsed) noexcept try {
  const Index done = done_;
  const Index total = std::max<Index>(total_, 1);
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  std::string tail = fmt::format(" {:3.0f} %", std::floor(100 * share));
  if (share > 0) tail += "  " + time_text(static_cast<double>(elapsed.count()) / 1000 * (1 - share) / share);
  if (!note_.empty()) tail += "  " + note_;

  const int columns = available_columns();
  const int bar = std::min(columns - static_cast<int>(label_.size() + tail.size()) - 3, 40);
  constexpr int kShortestBar = 8;
  std::string line = label_;
  if (bar >= kShortestBar) {
    const auto full = static_cast<std::size_t>(share * bar);
    line += " [" + std::string(full, '#') + std::string(static_cast<std::size_t>(bar) - full, '-') + "]";
  }
  line = (line + tail).substr(0, static_cast<std::size_t>(columns));

  int before = drawn_columns;
  const auto now = static_cast<int>(line.size());
  if (before < 0 || !drawn_columns.compare_exchange_strong(before, now)) return;
  if (before > now) line.append(static_cast<std::size_t>(before - now), ' ');
  line.insert(0, 1, '\r');
  write_line(line.data(), static_cast<int>(line.size()));
} catch (...) {
  // Out of memory for the line: the work continues without it.
}

void end_progress() noexcept { erase(drawn_columns.exchange(-1)); }

}  // namespace regard::program
