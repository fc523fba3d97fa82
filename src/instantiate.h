// SPDX-License-Identifier: Apache-2.0
//
// Explicit instantiation of a template that is defined in a .cpp file, for the element types that it is used with. The
// lists of types are here and nowhere else.
//
//     REGARD_INSTANTIATE_COMPUTE(attend_unpacked);            // a function of T = float, double
//     REGARD_INSTANTIATE_LAYER(embedding_forward);            // … and bfloat16
//     REGARD_INSTANTIATE_STORED(attention_decode);            // … and float16, int8: everything that a cache stores
//     REGARD_INSTANTIATE_COMPUTE_CLASS(struct, RowTask);      // the same for a class or struct with all members
//
// A function that shares its name with another template is instantiated by hand. Every folder of src may include this
// header.
#pragma once

#define REGARD_INSTANTIATE(function, T) template decltype(function<T>) function<T>

#define REGARD_INSTANTIATE_COMPUTE(function) \
  REGARD_INSTANTIATE(function, float);       \
  REGARD_INSTANTIATE(function, double)
#define REGARD_INSTANTIATE_LAYER(function) \
  REGARD_INSTANTIATE_COMPUTE(function);    \
  REGARD_INSTANTIATE(function, bfloat16)
#define REGARD_INSTANTIATE_STORED(function) \
  REGARD_INSTANTIATE_LAYER(function);       \
  REGARD_INSTANTIATE(function, float16);    \
  REGARD_INSTANTIATE(function, std::int8_t)

#define REGARD_INSTANTIATE_COMPUTE_CLASS(kind, name) \
  template kind name<float>;                         \
  template kind name<double>
#define REGARD_INSTANTIATE_LAYER_CLASS(kind, name) \
  REGARD_INSTANTIATE_COMPUTE_CLASS(kind, name);    \
  template kind name<bfloat16>
#define REGARD_INSTANTIATE_STORED_CLASS(kind, name) \
  REGARD_INSTANTIATE_LAYER_CLASS(kind, name);       \
  template kind name<float16>;                      \
  template kind name<std::int8_t>
