// SPDX-License-Identifier: Apache-2.0
//
// The structures of DLPack, version 1, that arrays.cpp reads: how array libraries share memory.
//
//     capsule "dltensor"            ──▶ Managed            data, shape, strides; deleter
//     capsule "dltensor_versioned"  ──▶ ManagedVersioned   the same, preceded by a version and flags
//     capsule "dlpack_exchange_api" ──▶ Exchange           functions that export without calling Python
//
// The layout is that of https://dmlc.github.io/dlpack/latest/c_api.html. Read next: arrays.cpp.
#pragma once

#include <cstdint>

namespace regard::python::dlpack {

inline constexpr std::uint32_t kMajor = 1;
inline constexpr std::int32_t kCpu = 1;
inline constexpr std::int32_t kCudaHost = 3;  // pinned memory, which the CPU can read
inline constexpr std::uint64_t kReadOnly = 1;

struct Tensor {
  void* data;
  std::int32_t device_type;
  std::int32_t device_id;
  std::int32_t rank;
  std::uint8_t type_code;
  std::uint8_t type_bits;
  std::uint16_t type_lanes;
  std::int64_t* shape;
  std::int64_t* strides;  // in elements; nullptr means dense
  std::uint64_t byte_offset;
};

struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

struct ManagedVersioned {
  std::uint32_t major;
  std::uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  Tensor tensor;
};

// The value of __dlpack_c_exchange_api__ of an array class, which stays valid until the process ends.
struct Exchange {
  std::uint32_t major;
  std::uint32_t minor;
  const Exchange* older;
  int (*allocate)(Tensor* like, ManagedVersioned** result, void* context,
                  void (*fail)(void*, const char*, const char*));
  int (*from_object)(void* object, ManagedVersioned** result);  // −1 with an exception set
  int (*to_object)(ManagedVersioned* managed, void** result);
  int (*view)(void* object, Tensor* result);
  int (*stream)(std::int32_t device_type, std::int32_t device_id, void** result);
};

}  // namespace regard::python::dlpack
