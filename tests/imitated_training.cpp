// SPDX-License-Identifier: Apache-2.0
//
// Writes a made-up record of a watched run (support/training_record.h) to standard output, for the tests of its page
// and of its events:
//
//     imitated_training html|json|text|svg [seed=N] [layers=N] [heads=N] [half=N] [steps=N] [learns=0] [pattern=0]
//                       [untrusted=1] [width=N]
//
// Read next: page/training_page_test.py, train/events.py.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "regard/explain/training_report.h"
#include "support/training_record.h"

namespace {

using namespace regard;

const std::vector<std::string> kUntrusted = {"</script><img src=x onerror=alert(1)>",
                                             "\x1b]0;title\x07",
                                             "\xE2\x80\xAE"
                                             "evil",
                                             "\\input{x}",
                                             "=1+1",
                                             std::string("a\0b", 3),
                                             "<!--",
                                             "\xE2\x80\xA8\xE2\x80\xA9",
                                             "&lt;b&gt;",
                                             "'\"`${x}",
                                             std::string(300, 'x'),
                                             "",
                                             "שלום",
                                             "日本語",
                                             "__proto__"};

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) return 2;
  ImitatedRun run;
  bool untrusted = false;
  int width = 80;
  for (int i = 2; i < count; ++i) {
    const std::string_view argument = arguments[i];
    const std::size_t equals = argument.find('=');
    if (equals == std::string_view::npos) return 2;
    const std::string_view name = argument.substr(0, equals);
    const long value = std::strtol(arguments[i] + equals + 1, nullptr, 10);
    if (name == "seed") run.seed = static_cast<std::uint64_t>(value);
    if (name == "layers") run.layers = value;
    if (name == "heads") run.heads = value;
    if (name == "half") run.half = value;
    if (name == "steps") run.steps = value;
    if (name == "learns") run.learns = value != 0;
    if (name == "pattern") run.has_pattern = value != 0;
    if (name == "untrusted") untrusted = value != 0;
    if (name == "width") width = static_cast<int>(value);
  }
  if (untrusted) run.tokens = kUntrusted;
  TrainingRecord record = imitated_record(run);
  if (untrusted) record.command = record.name = record.shows = record.pattern = kUntrusted[0] + kUntrusted[2];
  const std::string_view form = arguments[1];
  const std::string text = form == "html"   ? training_html(record)
                           : form == "json" ? training_record_json(record)
                           : form == "svg"  ? training_svg(record)
                                            : training_text(record, {.width = width});
  std::fwrite(text.data(), 1, text.size(), stdout);
  return 0;
}
