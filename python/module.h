// SPDX-License-Identifier: Apache-2.0
//
// The functions that define the contents of the module, one for each source file in this folder.
//
//     bindings.cpp ──▶ bind_attention, bind_backward, bind_linear, bind_layers, bind_embedding, bind_multi_head,
//                      bind_optimizers, bind_cache, bind_ranks, bind_model, bind_training
//
// Read next: bindings.cpp.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace regard::python {

// The options of attention as shown in a signature, beginning with a comma.
std::string options_signature();
// Keeps a signature alive until the process ends.
const char* signature(std::string text);

void bind_attention(nanobind::module_& module);
void bind_backward(nanobind::module_& module);
void bind_linear(nanobind::module_& module);
void bind_layers(nanobind::module_& module);
void bind_embedding(nanobind::module_& module);
void bind_multi_head(nanobind::module_& module);
void bind_optimizers(nanobind::module_& module);
void bind_cache(nanobind::module_& module);
void bind_ranks(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_training(nanobind::module_& module);

}  // namespace regard::python
