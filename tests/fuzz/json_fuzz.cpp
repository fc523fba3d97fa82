// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as JSON input are rejected with a byte offset, or, if small, explained, rendered by both
// renderers, and written back to text that is read as the same input.
// Read next: docs/guide/own-matrices.md.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "regard/explain/steps.h"

namespace {

// Excludes large inputs, and operations that generate any requested number of values or train for any requested number
// of steps; small inputs find the same bugs.
bool is_small(const regard::ExplainInput& input) {
  std::size_t numbers = 0;
  for (const regard::NamedMatrix& named : input.matrices) numbers += named.matrix.numbers.size();
  for (const regard::StepRequest& step : input.steps)
    if (regard::operation_name(step.operation).starts_with("torch") ||
        regard::operation_name(step.operation).starts_with("train") ||
        step.operation == regard::Operation::scale_statistics)
      return false;
  return numbers <= 256 && input.steps.size() <= 16 && input.variants.size() <= 2;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  regard::ExplainInput input;
  try {
    input = regard::read_explain_input({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const std::runtime_error& error) {
    if (!std::string_view(error.what()).starts_with("fuzz: byte ")) std::abort();
    return 0;
  }
  const std::string once = regard::write_explain_input(input);
  if (regard::write_explain_input(regard::read_explain_input(once, "again")) != once) std::abort();
  if (!is_small(input)) return 0;
  try {
    const regard::Explanation explanation = regard::explain(input);
    const regard::Cell cell{0, 0};
    (void)regard::render_text(explanation, {.width = 60, .cell = cell});
    (void)regard::render_json(explanation, {.cell = cell});
  } catch (const std::invalid_argument&) {
    return 0;
  }
  return 0;
}
