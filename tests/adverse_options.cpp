// SPDX-License-Identifier: Apache-2.0
//
// A command line whose help texts contain characters that a shell or roff would interpret, as `regard completion` and
// `regard manpage` would write it; run by cli/completion_test.py.
//
//     adverse_options bash|zsh|fish|manpage TEXT     a program with subcommand "run", options --file, --word and --flag
//
// Read next: cli/completion/command_tree.h.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>

#include "completion/command_tree.h"
#include "program.h"

regard::program::Build regard::program::build() { return {"0.0.0", "unknown", "2026-01-31", "none"}; }

int main(int count, char** arguments) {
  using namespace regard::program;
  if (count != 3) return 2;
  const std::string format = arguments[1], text = arguments[2];
  std::string value, title = text;  // CLI11 does not accept newlines in it
  std::replace(title.begin(), title.end(), '\n', ' ');
  bool flag = false;
  CLI::App app(text, "regard");
  app.set_help_flag("-h,--help", text);
  CLI::App* command = app.add_subcommand("run", text);
  command->add_option("argument", value, text)->type_name("this|that");
  command->add_option("-f,--file", value, text)->type_name("FILE")->group(title);
  command->add_option("--word", value, text)->type_name("yes|no|" + text);
  command->add_flag("--flag", flag, text);
  command->footer("NOTES\n  " + text + "\n\nEXAMPLES\n  " + text + "\n\n" + text);
  const ProgramTree tree = read_tree(app);
  const std::string script = format == "bash"   ? bash_completion(tree)
                             : format == "zsh"  ? zsh_completion(tree)
                             : format == "fish" ? fish_completion(tree)
                                                : manual_page(tree);
  std::fwrite(script.data(), 1, script.size(), stdout);
  return 0;
}
