// SPDX-License-Identifier: Apache-2.0
//
// `regard completion SHELL` and `regard manpage`: completion scripts and the manual page, from the option tree.
//
//     CLI::App  →  read_tree  →  completion_bash.cpp | completion_zsh.cpp | completion_fish.cpp | manual.cpp
//
// Read next: command_tree.h.
#include <memory>

#include "command_tree.h"
#include "program.h"

namespace regard::program {

std::string joined(const std::vector<std::string>& words, std::string_view separator) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : std::string(separator)) + word;
  return text;
}

std::string backslashed(std::string_view text, std::string_view characters) {
  std::string result;
  for (char c : text) {
    if (characters.find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

void add_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  command->add_option("shell", *shell, "the shell for which to print the script")->type_name("bash|zsh|fish");
  command->footer(
      "INSTALLATION (then start a new shell)\n"
      "  bash   ~/.local/share/bash-completion/completions/regard, which the\n"
      "         bash-completion package reads; or add this line to ~/.bashrc:\n"
      "           source <(regard completion bash)\n"
      "  zsh    the file _regard in a folder listed in $fpath, such as ~/.zfunc with\n"
      "         these lines in ~/.zshrc:\n"
      "           fpath=(~/.zfunc $fpath)\n"
      "           autoload -U compinit && compinit\n"
      "  fish   ~/.config/fish/completions/regard.fish\n"
      "\n"
      "EXAMPLES\n"
      "  regard completion bash > ~/.local/share/bash-completion/completions/regard\n"
      "  regard completion zsh > ~/.zfunc/_regard\n"
      "  regard completion fish > ~/.config/fish/completions/regard.fish");
  command->callback([shell, &app] {
    if (shell->empty())
      throw UsageError("missing shell name; expected bash, zsh or fish, as in: regard completion bash");
    const ProgramTree tree = read_tree(app);
    if (*shell == "bash") {
      write_stdout(bash_completion(tree));
    } else if (*shell == "zsh") {
      write_stdout(zsh_completion(tree));
    } else if (*shell == "fish") {
      write_stdout(fish_completion(tree));
    } else {
      throw UsageError("unknown shell \"" + *shell + "\"; expected bash, zsh or fish");
    }
  });
}

void add_man(CLI::App& app) {
  CLI::App* command = app.add_subcommand("manpage", "Print the manual page");
  command->footer(
      "EXAMPLES\n"
      "  regard manpage | man -l -\n"
      "  regard manpage > ~/.local/share/man/man1/regard.1    then: man regard");
  command->callback([&app] { write_stdout(manual_page(read_tree(app))); });
}

}  // namespace regard::program
