// SPDX-License-Identifier: Apache-2.0
//
// Settings as text: scale, causal, layout, and the token in focus. The program's options and the JSON input share these
// parsers, so that both accept the same values and report the same errors.
// Read next: input_json.cpp.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "explain/report/terminal.h"
#include "regard/error.h"

namespace regard::inline v0 {
namespace {

template <class T>
std::optional<T> whole_number(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

[[noreturn]] void reject(std::string_view setting, std::string_view text, std::string_view allowed) {
  throw InvalidArgument(fmt::format("{} is \"{}\"; expected {}", setting, text_in_message(text), allowed));
}

}  // namespace

Scale parse_scale(std::string_view text) {
  if (text == "none") return {.rule = ScaleRule::none, .number = 1.0};
  if (text == "sqrt") return {.rule = ScaleRule::sqrt, .number = 1.0};
  if (text == "floor_half") return {.rule = ScaleRule::floor_half, .number = 1.0};
  const std::optional<double> number = whole_number<double>(text);
  if (!number || !std::isfinite(*number)) reject("scale", text, "none, sqrt, floor_half or a finite number");
  return {.rule = ScaleRule::number, .number = *number};
}

Causal parse_causal(std::string_view text) {
  if (text == "off") return {};
  if (text == "top_left") return {.rule = CausalRule::top_left, .offset = 0};
  if (text == "bottom_right") return {.rule = CausalRule::bottom_right, .offset = 0};
  const std::optional<Index> offset = whole_number<Index>(text);
  constexpr Index kLargestOffset = Index{1} << 48;  // sums with any index stay within 64 bits
  if (!offset || *offset > kLargestOffset || *offset < -kLargestOffset)
    reject("causal", text, "top_left, bottom_right, off or an integer");
  return {.rule = CausalRule::number, .offset = *offset};
}

Layout parse_layout(std::string_view text) {
  if (text == "rows") return Layout::rows;
  if (text == "columns") return Layout::columns;
  reject("layout", text, "rows or columns");
}

Index token_index(const std::vector<std::string>& tokens, std::string_view token) {
  const auto choices = [&](const std::vector<std::size_t>& indices) {
    constexpr std::size_t kMaxChoices = 12;
    std::string text;
    for (std::size_t n = 0; n < indices.size() && n < kMaxChoices; ++n) {
      const std::size_t i = indices[n];
      text +=
          fmt::format("{}{} (@{})", n == 0 ? "" : ", ", truncate_to_width(escape_for_terminal(tokens[i]), 24, true), i);
    }
    if (indices.size() > kMaxChoices) text += fmt::format(" and {} more", indices.size() - kMaxChoices);
    return text;
  };
  const std::string shown = text_in_message(token);
  std::vector<std::size_t> same;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] == token) same.push_back(i);
  if (same.size() == 1) return static_cast<Index>(same[0]);
  if (same.size() > 1)
    throw InvalidArgument(fmt::format("token \"{0}\" occurs {1} times; choose \"{0}#0\" to \"{0}#{2}\": {3}", shown,
                                      same.size(), same.size() - 1, choices(same)));
  if (token.starts_with('@')) {
    const std::optional<Index> index = whole_number<Index>(token.substr(1));
    if (index && *index >= 0 && *index < static_cast<Index>(tokens.size())) return *index;
    if (index)
      throw InvalidArgument(
          fmt::format("token @{} does not exist: there are {}, numbered from 0", *index, tokens.size()));
  }
  if (const std::size_t hash = token.rfind('#'); hash != std::string_view::npos && hash > 0) {
    const std::optional<Index> occurrence = whole_number<Index>(token.substr(hash + 1));
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] == token.substr(0, hash)) same.push_back(i);
    if (occurrence && *occurrence >= 0 && *occurrence < static_cast<Index>(same.size()))
      return static_cast<Index>(same[static_cast<std::size_t>(*occurrence)]);
    if (occurrence && !same.empty())
      throw InvalidArgument(fmt::format("token \"{}\" does not exist: the word occurs {} time{}: {}", shown,
                                        same.size(), same.size() == 1 ? "" : "s", choices(same)));
  }
  std::vector<std::size_t> all(tokens.size());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  throw InvalidArgument(fmt::format("token \"{}\" does not exist; choose one of {}", shown, choices(all)));
}

}  // namespace regard::inline v0
