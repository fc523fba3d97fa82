// SPDX-License-Identifier: Apache-2.0
//
// The input of `regard explain` as JSON, read and written; docs/guide/own-matrices.md describes it.
//
//     object → settings under their names, steps, variants; every other key is a matrix
//
// Nothing is ignored: a key that is neither a setting nor a matrix is rejected with its offset.
// Read next: steps.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "explain/report/json_style.h"
#include "explain/report/terminal.h"
#include "operations.h"
#include "regard/error.h"
#include "regard/io/json.h"

namespace regard::inline v0 {
namespace {

using Kind = JsonValue::Kind;

constexpr Index kMaxDepth = 64;

class InputReader {
 public:
  explicit InputReader(const std::string& source) : source_(source) {}

  ExplainInput read(const JsonValue& root) {
    expect(root, Kind::object, "the input");
    ExplainInput input;
    for (const auto& [name, value] : root.members()) {
      if (name == "schema") {
        if (text_of(value, name) != "regard/1") fail(value, "schema must be \"regard/1\"");
      } else if (name == "title") {
        input.title = text_of(value, name);
      } else if (name == "citation") {
        input.citation = text_of(value, name);
      } else if (name == "tokens") {
        input.tokens = texts_of(value, name);
      } else if (name == "key_tokens") {
        input.key_tokens = texts_of(value, name);
      } else if (name == "errata") {
        input.errata = texts_of(value, name);
      } else if (name == "names") {
        expect(value, Kind::object, name);
        for (const auto& [step, text] : value.members()) input.names.push_back({step, text_of(text, name)});
      } else if (name == "notes") {
        expect(value, Kind::object, name);
        for (const auto& [step, texts] : value.members()) input.notes[step] = texts_of(texts, name);
      } else if (name == "expected") {
        expect(value, Kind::object, name);
        for (const auto& [step, numbers] : value.members()) input.expected[step] = expected_of(numbers);
      } else if (name == "steps") {
        expect(value, Kind::array, name);
        if (!value.numbers().empty()) fail(value, "steps must be a list of objects");
        for (const JsonValue& step : value.items()) input.steps.push_back(step_of(step));
      } else if (name != "compare" && !read_setting(name, value, input.settings)) {
        input.matrices.push_back(matrix_member(name, value));
      }
    }
    // A variant starts from the settings of the whole input, wherever they are in the file.
    if (const JsonValue* compare = root.find("compare")) {
      expect(*compare, Kind::array, "compare");
      if (!compare->numbers().empty()) fail(*compare, "compare must be a list of objects");
      for (const JsonValue& variant : compare->items()) input.variants.push_back(variant_of(variant, input.settings));
    }
    return input;
  }

 private:
  [[noreturn]] void fail(const JsonValue& value, const std::string& what) const {
    throw DataError(fmt::format("{}: byte {}: {}", escape_for_terminal(source_), value.offset, what));
  }
  void expect(const JsonValue& value, Kind kind, std::string_view what) const {
    if (value.kind() == kind) return;
    constexpr std::string_view kKindNames[] = {"null", "true or false", "a number", "text", "a list", "an object"};
    fail(value, fmt::format("{} must be {}, not {}", text_in_message(what), kKindNames[static_cast<int>(kind)],
                            kKindNames[static_cast<int>(value.kind())]));
  }
  const std::string& text_of(const JsonValue& value, std::string_view what) const {
    expect(value, Kind::string, what);
    return value.text();
  }
  bool boolean_of(const JsonValue& value, std::string_view what) const {
    expect(value, Kind::boolean, what);
    return value.boolean();
  }
  Index whole_of(const JsonValue& value, std::string_view what, double lowest, double highest) const {
    expect(value, Kind::number, what);
    if (value.number() != std::floor(value.number()) || value.number() < lowest || value.number() > highest)
      fail(value, fmt::format("{} must be an integer from {} to {}", text_in_message(what), lowest, highest));
    return static_cast<Index>(value.number());
  }
  std::vector<std::string> texts_of(const JsonValue& value, std::string_view what) const {
    expect(value, Kind::array, what);
    if (!value.numbers().empty()) fail(value, fmt::format("{} must be a list of strings", text_in_message(what)));
    std::vector<std::string> texts;
    for (const JsonValue& item : value.items()) texts.push_back(text_of(item, what));
    return texts;
  }
  // A number, or one of the words for numbers that JSON does not have.
  double number_of(const JsonValue& value, std::string_view what) const {
    if (value.kind() == Kind::number) return value.number();
    if (value.kind() == Kind::string) {
      if (value.text() == "inf") return std::numeric_limits<double>::infinity();
      if (value.text() == "-inf") return -std::numeric_limits<double>::infinity();
      if (value.text() == "nan") return std::numeric_limits<double>::quiet_NaN();
    }
    fail(value, fmt::format("{} must contain numbers, or \"-inf\", \"inf\", \"nan\"", text_in_message(what)));
  }
  std::vector<double> numbers_of(const JsonValue& value, std::string_view what) const {
    expect(value, Kind::array, what);
    if (value.items().empty()) return value.numbers();
    std::vector<double> numbers;
    for (const JsonValue& item : value.items()) numbers.push_back(number_of(item, what));
    return numbers;
  }

  std::vector<Index> indices_of(const JsonValue& value, std::string_view what) const {
    std::vector<Index> indices;
    for (double number : numbers_of(value, what)) {
      if (number != std::floor(number) || number < 0 || number > 0x1p48)
        fail(value, fmt::format("{} must be integers", what));
      indices.push_back(static_cast<Index>(number));
    }
    return indices;
  }

  static bool holds_lists(const JsonValue& value) {
    return !value.items().empty() && value.items()[0].kind() == Kind::array;
  }
  void append_rows(const JsonValue& rows, std::string_view what, Index expected_rows, Matrix& m) const {
    for (const JsonValue& row : rows.items()) {
      const std::vector<double> numbers = numbers_of(row, what);
      if (m.num_columns < 0) m.num_columns = static_cast<Index>(numbers.size());
      if (static_cast<Index>(numbers.size()) != m.num_columns)
        fail(row, fmt::format("{} is ragged: this row has length {} and the first row has length {}",
                              text_in_message(what), numbers.size(), m.num_columns));
      m.numbers.insert(m.numbers.end(), numbers.begin(), numbers.end());
    }
    if (static_cast<Index>(rows.items().size()) != expected_rows)
      fail(rows, fmt::format("{} is ragged: the number of rows is {} in this head and {} in the first",
                             text_in_message(what), rows.items().size(), expected_rows));
  }
  Matrix matrix_of_value(const JsonValue& value, std::string_view what) const {
    expect(value, Kind::array, what);
    Matrix m;
    m.num_columns = -1;
    if (!holds_lists(value)) {
      m.numbers = numbers_of(value, what);
      m.num_rows = 1;
      m.num_columns = static_cast<Index>(m.numbers.size());
    } else if (!holds_lists(value.items()[0])) {
      m.num_rows = static_cast<Index>(value.items().size());
      append_rows(value, what, m.num_rows, m);
    } else {
      m.has_heads = true;
      m.num_heads = static_cast<Index>(value.items().size());
      m.num_rows = static_cast<Index>(value.items()[0].items().size());
      for (const JsonValue& head : value.items()) {
        expect(head, Kind::array, what);
        append_rows(head, what, m.num_rows, m);
      }
    }
    if (m.numbers.empty()) fail(value, fmt::format("{} is empty", text_in_message(what)));
    return m;
  }
  NamedMatrix matrix_member(const std::string& name, const JsonValue& value) const {
    constexpr std::size_t kLongestName = 64;
    if (value.kind() != Kind::array)
      fail(value, fmt::format("\"{}\" is neither a setting nor a matrix (a list of rows)", text_in_message(name)));
    if (name.empty() || name.size() > kLongestName)
      fail(value, fmt::format("the name of a matrix must be 1 to {} bytes long, not {}", kLongestName, name.size()));
    return {name, matrix_of_value(value, name)};
  }

  // Adds the offset to the errors of texts that the options share.
  template <class Parse>
  auto parsed(const JsonValue& value, Parse parse) const {
    try {
      return parse();
    } catch (const std::invalid_argument& error) {
      fail(value, error.what());
    }
  }
  Scale scale_of(const JsonValue& value) const {
    if (value.kind() == Kind::number) return {.rule = ScaleRule::number, .number = value.number()};
    return parsed(value, [&] { return parse_scale(text_of(value, "scale")); });
  }
  Causal causal_of(const JsonValue& value) const {
    if (value.kind() == Kind::boolean)
      return {.rule = value.boolean() ? CausalRule::top_left : CausalRule::off, .offset = 0};
    if (value.kind() == Kind::number)
      return {.rule = CausalRule::number, .offset = whole_of(value, "causal", -0x1p48, 0x1p48)};
    return parsed(value, [&] { return parse_causal(text_of(value, "causal")); });
  }

  bool read_setting(const std::string& name, const JsonValue& value, ExplainSettings& settings) const {
    if (name == "layout") {
      settings.layout = parsed(value, [&] { return parse_layout(text_of(value, name)); });
    } else if (name == "scale") {
      settings.scale = scale_of(value);
    } else if (name == "causal") {
      settings.causal = causal_of(value);
    } else if (name == "softmax") {
      const std::string& rule = text_of(value, name);
      if (rule == "shifted") {
        settings.softmax = SoftmaxRule::shifted;
      } else if (rule == "unshifted") {
        settings.softmax = SoftmaxRule::unshifted;
      } else if (rule == "ratio") {
        settings.softmax = SoftmaxRule::ratio;
      } else {
        fail(value, fmt::format("softmax is \"{}\"; expected shifted, unshifted or ratio", text_in_message(rule)));
      }
    } else if (name == "softmax_base") {
      if (value.kind() == Kind::string && value.text() == "e") {
        settings.softmax_base.reset();
      } else if (value.kind() == Kind::number && value.number() > 0) {
        settings.softmax_base = value.number();
      } else {
        fail(value, "softmax_base must be \"e\" or a positive number");
      }
    } else if (name == "heads") {
      settings.heads = whole_of(value, name, 1, 65536);
    } else if (name == "dtype") {
      const std::string& type = text_of(value, name);
      if (type != "f64" && type != "f32")
        fail(value, fmt::format("dtype is \"{}\"; expected f64 or f32", text_in_message(type)));
      settings.dtype = type == "f32" ? ElementType::float32 : ElementType::float64;
    } else if (name == "query") {
      settings.query = text_of(value, name);
    } else if (name == "digits") {
      settings.digits = static_cast<int>(whole_of(value, name, 0, 17));
    } else {
      return false;
    }
    return true;
  }

  Expected expected_of(const JsonValue& value) const {
    Expected expected;
    if (value.kind() == Kind::array) {
      expected.numbers = matrix_of_value(value, "expected");
      return expected;
    }
    expect(value, Kind::object, "expected");
    for (const auto& [name, member] : value.members()) {
      if (name == "numbers") {
        expected.numbers = matrix_of_value(member, "expected numbers");
      } else if (name == "digits") {
        expected.digits = static_cast<int>(whole_of(member, "expected digits", 0, 17));
      } else if (name == "significant") {
        expected.significant = boolean_of(member, "significant");
      } else if (name == "rows") {
        expected.rows = indices_of(member, "expected rows");
      } else if (name == "columns") {
        expected.columns = indices_of(member, "expected columns");
      } else {
        fail(member, fmt::format("expected has no \"{}\"; it has numbers, digits, significant, rows, columns",
                                 text_in_message(name)));
      }
    }
    if (expected.numbers.numbers.empty()) fail(value, "expected needs numbers");
    return expected;
  }

  StepRequest step_of(const JsonValue& value) const {
    expect(value, Kind::object, "a step");
    StepRequest step;
    const JsonValue* operation = nullptr;
    for (const auto& [name, member] : value.members()) {
      if (name == "operation") {
        operation = &member;
      } else if (name == "operands") {
        step.operands = texts_of(member, name);
      } else if (name == "result") {
        step.result = text_of(member, name);
      } else if (name == "name") {
        step.name = text_of(member, name);
      } else if (name == "document_name") {
        step.document_name = text_of(member, name);
      } else if (name == "equation") {
        step.equation = text_of(member, name);
      } else if (name == "scale") {
        step.scale = scale_of(member);
      } else if (name == "causal") {
        step.causal = causal_of(member);
      } else if (name == "heads") {
        step.heads = whole_of(member, name, 1, 65536);
      } else if (name == "base") {
        expect(member, Kind::number, name);
        step.base = member.number();
      } else if (name == "transpose") {
        step.transpose = text_of(member, name);
      } else if (name == "numbers") {
        step.numbers = numbers_of(member, name);
      } else if (name == "labels") {
        step.labels = texts_of(member, name);
      } else if (name == "column_labels") {
        step.column_labels = texts_of(member, name);
      } else if (name == "digits") {
        step.digits = static_cast<int>(whole_of(member, name, 0, 17));
      } else if (name == "fractions") {
        step.fractions = boolean_of(member, name);
      } else if (name == "expected") {
        step.expected = expected_of(member);
      } else if (name == "finding") {
        step.finding = text_of(member, name);
      } else if (name == "notes") {
        step.notes = texts_of(member, name);
      } else if (name == "errata") {
        step.errata = texts_of(member, name);
      } else {
        fail(member, fmt::format("a step has no \"{}\"", text_in_message(name)));
      }
    }
    const std::string operation_text = operation == nullptr ? std::string() : text_of(*operation, "operation");
    if (operation_text.empty()) fail(value, "a step needs an operation");
    const std::optional<Operation> known = operation_named(operation_text);
    if (!known)
      fail(*operation, fmt::format("step {}: operation \"{}\" does not exist; choose one of {}",
                                   text_in_message(step.name.empty() ? operation_text : step.name),
                                   text_in_message(operation_text), operation_names()));
    step.operation = *known;
    return step;
  }

  Variant variant_of(const JsonValue& value, const ExplainSettings& settings) const {
    expect(value, Kind::object, "a member of compare");
    Variant variant{.label = "", .settings = settings};
    for (const auto& [name, member] : value.members()) {
      if (name == "label") {
        variant.label = text_of(member, name);
      } else if (!read_setting(name, member, variant.settings)) {
        variant.matrices.push_back(matrix_member(name, member));
      }
    }
    if (variant.label.empty()) fail(value, "a member of compare needs a label");
    return variant;
  }

  const std::string& source_;
};

// An upper bound on the memory of the input that is read from this value; vectors may need three times their contents
// while they grow.
std::uint64_t copied_bytes(const JsonValue& value) {
  constexpr std::uint64_t kPerNumber = 4 * sizeof(double);  // including its row
  constexpr std::uint64_t kPerItem = 128;                   // a text, at most
  constexpr std::uint64_t kPerText = 48;                    // in addition to its bytes
  constexpr std::uint64_t kPerMember = 1024;                // a matrix with its name, notes of a step …
  constexpr std::uint64_t kPerListedObject = 3 * std::max(sizeof(StepRequest), sizeof(Variant));
  std::uint64_t bytes = kPerText + value.text().size() + kPerNumber * value.numbers().size();
  for (const JsonValue& item : value.items()) {
    bytes += kPerItem + copied_bytes(item) + (item.kind() == Kind::object ? kPerListedObject : 0);
  }
  for (const auto& [name, member] : value.members()) bytes += kPerMember + name.size() + copied_bytes(member);
  return bytes;
}

// ---- writing

void write_text(JsonWriter& json, std::string_view name, const std::string& text) {
  if (!text.empty()) json.string(name, text);
}
void write_scale(JsonWriter& json, const Scale& scale) {
  json.name("scale");
  if (scale.rule == ScaleRule::number) return json.number(scale.number);
  json.string(scale.rule == ScaleRule::none ? "none" : scale.rule == ScaleRule::sqrt ? "sqrt" : "floor_half");
}
void write_causal(JsonWriter& json, const Causal& causal) {
  json.name("causal");
  if (causal.rule == CausalRule::number) return json.whole(causal.offset);
  if (causal.rule == CausalRule::off) return json.boolean(false);
  json.string(causal.rule == CausalRule::top_left ? "top_left" : "bottom_right");
}

// What differs from `base`.
void write_settings(JsonWriter& json, const ExplainSettings& s, const ExplainSettings& base) {
  if (s.layout != base.layout) write_text(json, "layout", s.layout == Layout::rows ? "rows" : "columns");
  if (!(s.scale == base.scale)) write_scale(json, s.scale);
  if (!(s.causal == base.causal)) write_causal(json, s.causal);
  if (s.softmax != base.softmax)
    write_text(json, "softmax",
               s.softmax == SoftmaxRule::shifted     ? "shifted"
               : s.softmax == SoftmaxRule::unshifted ? "unshifted"
                                                     : "ratio");
  if (s.softmax_base != base.softmax_base) {
    json.name("softmax_base");
    if (s.softmax_base) {
      json.number(*s.softmax_base);
    } else {
      json.string("e");
    }
  }
  if (s.heads != base.heads) json.whole("heads", s.heads);
  if (s.dtype != base.dtype) write_text(json, "dtype", s.dtype == ElementType::float32 ? "f32" : "f64");
  if (s.query != base.query) write_text(json, "query", s.query);
  if (s.digits != base.digits && s.digits) json.whole("digits", *s.digits);
}

void write_expected(JsonWriter& json, const Expected& expected) {
  json.begin_object();
  json.matrix("numbers", expected.numbers);
  json.whole("digits", expected.digits);
  if (expected.significant) json.boolean("significant", true);
  json.indices("rows", expected.rows);
  json.indices("columns", expected.columns);
  json.end_object();
}

void write_step(JsonWriter& json, const StepRequest& step) {
  json.string("operation", operation_name(step.operation));
  json.strings("operands", step.operands, JsonLayout::one_line);
  write_text(json, "result", step.result);
  write_text(json, "name", step.name);
  write_text(json, "document_name", step.document_name);
  write_text(json, "equation", step.equation);
  if (step.scale) write_scale(json, *step.scale);
  if (step.causal) write_causal(json, *step.causal);
  if (step.heads) json.whole("heads", *step.heads);
  if (step.base) json.number("base", *step.base);
  write_text(json, "transpose", step.transpose);
  json.numbers("numbers", step.numbers);
  json.strings("labels", step.labels, JsonLayout::one_line);
  json.strings("column_labels", step.column_labels, JsonLayout::one_line);
  if (step.digits) json.whole("digits", *step.digits);
  if (step.fractions) json.boolean("fractions", true);
  if (step.expected) {
    json.name("expected");
    write_expected(json, *step.expected);
  }
  write_text(json, "finding", step.finding);
  json.strings("notes", step.notes);
  json.strings("errata", step.errata);
}

void write_matrices(JsonWriter& json, const std::vector<NamedMatrix>& matrices) {
  for (const NamedMatrix& named : matrices) {
    json.matrix(named.name, named.matrix);
  }
}

}  // namespace

ExplainInput read_explain_input(std::string_view json, const std::string& source, const std::stop_token& stop,
                                std::optional<std::uint64_t> max_memory_bytes) {
  const JsonValue root = read_json(json, source, kMaxDepth, stop, max_memory_bytes);
  const std::uint64_t tree = max_memory_bytes ? json_memory_bytes(json, kMaxDepth, stop) : 0;
  check_json_memory(source, tree + copied_bytes(root), max_memory_bytes);
  return InputReader(source).read(root);
}

std::string write_explain_input(const ExplainInput& input) {
  // Input numbers are doubles, whatever type is computed with.
  JsonWriter json(json_style(ElementType::float64));
  json.begin_object();
  json.string("schema", "regard/1");
  write_text(json, "title", input.title);
  write_text(json, "citation", input.citation);
  json.strings("tokens", input.tokens, JsonLayout::one_line);
  json.strings("key_tokens", input.key_tokens, JsonLayout::one_line);
  write_settings(json, input.settings, {});
  write_matrices(json, input.matrices);
  if (!input.names.empty()) {
    json.name("names");
    json.begin_object();
    for (const NamedText& named : input.names) {
      json.string(named.name, named.text);
    }
    json.end_object();
  }
  if (!input.expected.empty()) {
    json.name("expected");
    json.begin_object();
    for (const auto& [step, expected] : input.expected) {
      json.name(step);
      write_expected(json, expected);
    }
    json.end_object();
  }
  if (!input.notes.empty()) {
    json.name("notes");
    json.begin_object();
    for (const auto& [step, notes] : input.notes) json.strings(step, notes);
    json.end_object();
  }
  json.strings("errata", input.errata);
  if (!input.steps.empty()) {
    json.objects("steps", input.steps, [&](const StepRequest& step) { write_step(json, step); });
  }
  if (!input.variants.empty()) {
    json.objects("compare", input.variants, [&](const Variant& variant) {
      write_text(json, "label", variant.label);
      write_settings(json, variant.settings, input.settings);
      write_matrices(json, variant.matrices);
    });
  }
  json.end_object();
  return json.take();
}

}  // namespace regard::inline v0
