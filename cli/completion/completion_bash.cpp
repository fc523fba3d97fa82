// SPDX-License-Identifier: Apache-2.0
//
// The completion script for bash: a table generated from the option tree, and a function that determines what is being
// completed. It does not need the package bash-completion, and no text of the table is subject to expansion.
//
//     _regard_entry COMMAND OPTION|POSITION   sets options, value and choices
//     _regard                                 loops over the words before the cursor, gets the entry, fills COMPREPLY
//
// Read next: command_tree.h.
#include <fmt/format.h>

#include "command_tree.h"
#include "program.h"

namespace regard::program {
namespace {

// readline splits words at =, so that --scale=2 arrives as three words; they are joined first.
constexpr const char* kFunction = R"(_regard() {
    local words=() word glued='' command='' option='' only_arguments='' current prefix i
    local options choices value position=0
    for ((i = 1; i <= COMP_CWORD; ++i)); do
        word=${COMP_WORDS[i]}
        if [[ ${#words[@]} -gt 0 && ( -n $glued || $word == = ) ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        glued=''
        if [[ $word == = ]]; then glued=yes; fi
    done
    COMPREPLY=()
    if [[ ${#words[@]} -eq 0 ]]; then return; fi
    current=${words[${#words[@]}-1]}
    for word in "${words[@]:0:${#words[@]}-1}"; do
        if [[ -n $option ]]; then
            option=''
        elif [[ -z $only_arguments && $word == -- ]]; then
            only_arguments=yes
        elif [[ -z $only_arguments && $word == -?* ]]; then
            _regard_entry "$command" "$word"
            if [[ $value != none && $value != after_equals ]]; then option=$word; fi
        elif [[ -z $command ]]; then
            command=$word
        else
            position=$((position + 1))
        fi
    done
    prefix=''
    if [[ -z $option && -z $only_arguments && $current == --*=* ]]; then
        option=${current%%=*}
        prefix=$option=
        current=${current#*=}
    fi
    _regard_entry "$command" "${option:-$position}"
    if [[ -z $option && -z $only_arguments && ( $current == -* || $value == none ) ]]; then
        choices=("${options[@]}")
        value=word
    fi
    if [[ $value == named_file ]]; then
        if [[ $current != *=* ]]; then return; fi
        prefix+=${current%%=*}=
        current=${current#*=}
        value=file
    fi
    for word in "${choices[@]}"; do
        if [[ $word == "$current"* ]]; then COMPREPLY+=("$word"); fi
    done
    case $value in
        file | folder)
            # Words that start with a quote are left to readline, which handles quoting.
            compopt -o filenames -o default 2>/dev/null
            option=-f
            if [[ $value == folder ]]; then option=-d; fi
            while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen "$option" -- "$current")
            ;;
    esac
    if [[ $COMP_WORDBREAKS != *=* ]]; then COMPREPLY=("${COMPREPLY[@]/#/"$prefix"}"); fi
}
complete -F _regard regard
)";

std::string kind_name(const ValueType& value) {
  switch (value.path) {
    case ValueType::Path::file:
      return "file";
    case ValueType::Path::folder:
      return "folder";
    case ValueType::Path::named_file:
      return "named_file";
    case ValueType::Path::none:
      break;
  }
  return value.kind == ValueType::Kind::none           ? "none"
         : value.kind == ValueType::Kind::after_equals ? "after_equals"
                                                       : "word";
}

std::string quoted_list(const std::vector<std::string>& words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(quote_for_shell(word));
  return fmt::format("({})", joined(quoted, " "));
}

// "            --by) value=word choices=(query sentence) ;;"
std::string entry(const std::string& pattern, const ValueType& value) {
  return fmt::format("                {}) value={}{} ;;\n", pattern, kind_name(value),
                     value.choices.empty() ? "" : " choices=" + quoted_list(value.choices));
}

std::string command_case(const CommandTree& command, const std::vector<std::string>& subcommands) {
  std::vector<std::string> names;
  std::string entries;
  for (const CommandOption& option : command.options()) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    std::vector<std::string> patterns;
    for (const std::string& name : option.names) patterns.push_back(quote_for_shell(name));
    if (option.value.kind != ValueType::Kind::none) entries += entry(joined(patterns, " | "), option.value);
  }
  for (std::size_t i = 0; i < command.arguments.size(); ++i) {
    const std::string from = std::to_string(i);
    entries +=
        entry(command.arguments[i].repeats ? "[" + from + "-9] | [1-9][0-9]*" : from, command.arguments[i].value);
  }
  if (!subcommands.empty())
    entries += fmt::format("                0) value=word choices={} ;;\n", quoted_list(subcommands));
  return fmt::format("        {})\n            options={}\n{}            ;;\n", quote_for_shell(command.name),
                     quoted_list(names),
                     entries.empty() ? "" : "            case $2 in\n" + entries + "            esac\n");
}

}  // namespace

std::string bash_completion(const ProgramTree& tree) {
  std::vector<std::string> subcommands;
  for (const CommandTree& command : tree.commands) subcommands.push_back(command.name);
  std::string cases = command_case(tree.program, subcommands);
  for (const CommandTree& command : tree.commands) cases += command_case(command, {});
  return "# bash completion for regard, written by: regard completion bash\n\n"
         "_regard_entry() {\n"
         "    options=() choices=() value=none\n"
         "    case $1 in\n" +
         cases + "    esac\n}\n\n" + kFunction;
}

}  // namespace regard::program
