// SPDX-License-Identifier: Apache-2.0
//
// The program `regard`: parses the command line, runs a subcommand, and turns errors into one line and an exit code.
//
//     arguments ─ normalize ─ CLI11 ─ callback of cli/<name>.cpp ─ 0
//                    └─ UsageError ─ 2          └─ any other exception ─ 1
//
// Read next: program.h.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "commit.h"
#include "program.h"
#include "ranks/program_ranks.h"
#include "regard/explain/steps.h"
#include "regard/runtime.h"
#include "suggestion.h"

namespace regard::program {
namespace {

std::string compiler_text() {
#if defined(__clang__)
  return "clang " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#else
  return "g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#endif
}

}  // namespace

Build build() { return {std::string(version()), REGARD_COMMIT, REGARD_DATE, compiler_text()}; }

namespace {

std::string version_text() {
  const Build b = build();
  std::string sets;
  for (const InstructionSet& set : instruction_sets()) {
    sets += " " + set.name + (set.active ? " (active)" : set.available ? "" : " (not supported by this processor)");
  }
  return "regard " + b.version + "\ncommit " + b.commit + "\ncompiler " + b.compiler + "\ninstruction sets" + sets +
         "\n";
}

// An option as an argument gives it: "--scale", "--scale=2", "-o", "-oFILE".
struct GivenOption {
  const CLI::Option* option = nullptr;  // none if the argument is not an option of the command
  std::string name{};
  std::optional<std::string> value{};  // from the same argument

  bool takes_value() const { return option->get_items_expected_max() > 0; }
  bool repeatable() const { return option->get_items_expected_max() > 1; }
  bool value_is_optional() const { return option->get_items_expected_min() == 0; }
  bool takes_next() const { return takes_value() && !value && !value_is_optional(); }
};

GivenOption given_option(const CLI::App& command, const std::string& argument) {
  if (argument.size() < 2 || argument[0] != '-' || argument == "--") return {};
  const std::size_t length = argument.starts_with("--") ? std::min(argument.find('='), argument.size()) : 2;
  GivenOption given{.name = argument.substr(0, length)};
  given.option = command.get_option_no_throw(given.name);
  if (length < argument.size()) given.value = argument.substr(length + (argument[length] == '=' ? 1 : 0));
  return given;
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Throws if an argument that is not an option of the command looks like one; -1 is a number.
void check_word(const CLI::App& app, const CLI::App& command, const std::string& argument) {
  if (argument.size() > 1 && argument[0] == '-' && !(argument[1] >= '0' && argument[1] <= '9')) {
    const std::string name = argument.substr(0, argument.find('='));
    throw UsageError("unknown option " + name + suggestion(name, option_names(command)) + "; see regard " +
                     (&command == &app ? "" : command.get_name() + " ") + "--help");
  }
}

CLI::App* subcommand(CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return command;
    names.push_back(command->get_name());
  }
  throw UsageError("unknown subcommand \"" + name + "\"" + suggestion(name, names) + "; see regard --help");
}

// The value of an option that takes one. next: the argument after it, or nullptr.
std::string value_of(const CLI::App& command, const GivenOption& given, const std::string* next) {
  const std::string& name = given.name;
  if (given.takes_next()) {
    if (next == nullptr || *next == "--") throw UsageError(name + " needs a value");
    if (given_option(command, *next).option != nullptr) {
      throw UsageError(name + " needs a value, but " + *next + " is an option; to pass it as the value, write " + name +
                       "=" + *next);
    }
  }
  const std::string value = given.takes_next() ? *next : given.value.value_or("true");
  // Options are bound to strings, and an empty string means that the option is not given.
  if (value.empty()) {
    throw UsageError(name + (given.value_is_optional() ? "= has no value; give one, or leave out the ="
                                                       : " has an empty value; give a value, or leave out the option"));
  }
  return value;
}

// CLI11 2.1.2 takes the next argument as the value of `--name=` and of options whose value is optional, and takes an
// option for a value that was forgotten, without a useful message. Here every value becomes a separate argument.
std::vector<std::string> normalize(CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  const CLI::App* command = &app;
  std::set<const CLI::Option*> seen;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      result.insert(result.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i), arguments.end());
      break;
    }
    const GivenOption given = given_option(*command, arguments[i]);
    if (given.option == nullptr) {
      check_word(app, *command, arguments[i]);
      if (command == &app) command = subcommand(app, arguments[i]);
      result.push_back(arguments[i]);
      continue;
    }
    if (!seen.insert(given.option).second && !given.repeatable())
      throw UsageError(given.name + " is given twice; give it only once");
    result.push_back(given.name);
    if (!given.takes_value()) {
      if (given.value) throw UsageError(given.name + " takes no value; write " + given.name + " alone");
      continue;
    }
    result.push_back(value_of(*command, given, i + 1 < arguments.size() ? &arguments[i + 1] : nullptr));
    if (given.takes_next()) ++i;
  }
  return result;
}

// How to pass a word that follows an option with an optional value to this option; otherwise "".
std::string optional_value_hint(const CLI::App& command, const std::vector<std::string>& arguments,
                                const std::string& word) {
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
    const GivenOption given = given_option(command, arguments[i]);
    if (arguments[i + 1] == word && given.option != nullptr && given.takes_value() && given.value_is_optional())
      return "; to pass it to " + given.name + ", write " + given.name + "=" + word;
  }
  return "";
}

// CLI11's help without the double blank lines between groups.
std::string help_text(const CLI::App& app) {
  std::string text = app.help();
  for (std::size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  return text;
}

int run(int count, char** arguments) {
  CLI::App app("Exact attention, softmax(scale · Q · Kᵀ + mask) · V, with every step shown.", "regard");
  app.formatter(std::make_shared<HelpFormatter>());
  app.get_formatter()->column_width(28);
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.require_subcommand(0, 1);
  bool show_version = false;
  app.add_flag("--version", show_version, "Print version, commit, compiler and instruction sets");
  add_attend(app);
  add_explain(app);
  add_compare(app);
  add_heads(app);
  add_train(app);
  add_generate(app);
  add_embed(app);
  add_join(app);
  add_similar(app);
  add_lesson(app);
  add_live(app);
  add_pull(app);
  add_plan(app);
  add_bench(app);
  add_info(app);
  add_completion(app);
  add_man(app);
  // The subcommands keep the formatter above, with a column for options; the names of subcommands are shorter.
  app.formatter(std::make_shared<CLI::Formatter>());
  app.get_formatter()->column_width(16);
  app.footer(
      "EXAMPLES\n"
      "  regard lesson three-words        a worked example of attention, step by step\n"
      "  regard explain --input FILE      the same for your own matrices\n"
      "  regard pull minilm               download a small model (once); then:\n"
      "  regard explain \"he sat on the bank of the river\" --query bank\n"
      "  regard attend --query q.npy --key k.npy --value v.npy -o context.npy\n"
      "  regard attend --help             all options of a subcommand, with examples");
  const std::vector<std::string> given(arguments + 1, arguments + count);
  try {
    std::vector<std::string> normal = normalize(app, given);
    if (normal.empty()) {
      write_stdout(help_text(app));
      return 0;
    }
    std::reverse(normal.begin(), normal.end());
    app.parse(normal);
    if (show_version) {
      write_stdout(version_text());
    } else if (app.get_subcommands().empty()) {
      throw UsageError("missing subcommand; see regard --help");
    }
  } catch (const CLI::CallForHelp&) {
    write_stdout(help_text(app));
  } catch (const CLI::ParseError& error) {
    if (const std::string message = dependency_message(error); !message.empty()) throw UsageError(message);
    const auto commands = app.get_subcommands();
    std::string what = error.what();
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
      const std::vector<std::string> words = app.remaining(true);
      what = words.size() > 1 ? "unexpected arguments:" : "unexpected argument:";
      for (const std::string& word : words) (what += ' ') += word;
      if (!commands.empty()) what += optional_value_hint(*commands.front(), given, words.front());
      if (!commands.empty() && commands.front()->get_option_no_throw("text") != nullptr) {
        what += "; put a text of several words in quotes";
      }
    }
    throw UsageError(what + "; see regard " + (commands.empty() ? "" : commands.front()->get_name() + " ") + "--help");
  }
  return 0;
}

constexpr const char* kNoMemory = "out of memory; try fewer rows, heads or keys";

int report(const std::string& what, int exit_code) {
  std::fputs(("regard: " + escape_for_terminal(what) + "\n").c_str(), stderr);
  return exit_code;
}

}  // namespace
}  // namespace regard::program

int main(int count, char** arguments) {
  using namespace regard::program;
  try {
    prepare_process();
    set_command_line(count, arguments);
    return run(count, arguments);
  } catch (const UsageError& error) {
    return report(error.what(), 2);
  } catch (const ReportedError& error) {
    return error.exit_code();
  } catch (const StoppedBySignal& error) {
    return report(error.what(), 128 + error.signal);
  } catch (const ClosedPipe&) {
    return 1;
  } catch (const std::bad_alloc&) {
    return report(kNoMemory, 1);
  } catch (const std::length_error&) {  // a vector larger than max_size()
    return report(kNoMemory, 1);
  } catch (const std::exception& error) {
    return report(error.what(), 1);
  }
}
