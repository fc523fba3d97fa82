// SPDX-License-Identifier: Apache-2.0
//
// convert: rows are read into a buffer of float, unless they are contiguous floats, and written from it.
#include "regard/convert.h"

#include <algorithm>
#include <array>
#include <string>

#include "runtime/parallel.h"
#include "runtime/plan.h"
#include "runtime/workspace.h"
#include "tensor/checks.h"
#include "tensor/element_types.h"

namespace regard::inline v0 {
namespace internal {
namespace {

constexpr const char* kConvert = "convert";
constexpr Index kBlock = 4096;  // elements of a task

}  // namespace
}  // namespace internal

void convert(const InputView<2>& input, const OutputView<2>& output, const Runtime& runtime) {
  using namespace internal;
  const FloatingPointScope scope;
  expect_type<float>(kConvert, "input", input.type);
  expect_type<float>(kConvert, "output", output.type);
  const std::array<Footprint, 1> inputs{footprint(kConvert, "input", input)};
  const std::array<Footprint, 1> written{footprint(kConvert, "output", output)};
  if (output.shape != input.shape)
    reject(kConvert, "output has shape " + shape_text(output.shape) + "; expected " + shape_text(input.shape));
  check_overlap(kConvert, inputs, written);
  const auto [rows, width] = input.shape;
  if (rows == 0 || width == 0) return;

  const Index pieces = (width + kBlock - 1) / kBlock;
  const Index rows_of_task = std::max<Index>(1, kBlock / width);
  const Index groups = (rows + rows_of_task - 1) / rows_of_task;
  constexpr double kElementProducts = 16;  // an element takes as long as this many products
  const int workers = num_workers(runtime, groups * pieces, kElementProducts * static_cast<double>(rows * width));
  const Workspace<float> buffers(runtime, workers * kBlock);
  if (is_planning()) {
    const double elements = static_cast<double>(rows * width);
    plan_operator({.name = kConvert,
                   .strategy = std::to_string(groups * pieces) + " blocks",
                   .operations = elements,
                   .bytes = elements * static_cast<double>(type_bytes(input.type) + type_bytes(output.type))});
  }
  const bool in_place = input.type == ElementType::float32 && input.strides[1] == 1;  // otherwise read into the buffer
  for_each_item(runtime, workers, groups * pieces, [&](Index task, int worker) {
    float* const buffer = buffers.data() + worker * kBlock;
    const Index first = task % pieces * kBlock;
    const Index count = std::min(kBlock, width - first);
    const Index begin = task / pieces * rows_of_task;
    for (Index r = begin; r < std::min(rows, begin + rows_of_task); ++r) {
      const float* numbers = buffer;
      if (in_place) {
        numbers = static_cast<const float*>(input.pointer(r, first));
      } else {
        read_numbers(input.type, count, input.pointer(r, first), input.strides[1], buffer);
      }
      write_numbers(output.type, count, numbers, output.pointer(r, first), output.strides[1]);
    }
  });
}

}  // namespace regard::inline v0
