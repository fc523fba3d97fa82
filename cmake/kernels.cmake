# SPDX-License-Identifier: Apache-2.0
# src/kernels/ is compiled once per instruction set, each time into the namespace regard::kernels::<name>; table.cpp
# collects the functions of a set in one constant table. To add an instruction set, add its name and a line here, and a
# line in src/runtime/isa.cpp. REGARD_INSTRUCTION_SETS selects which sets are built; the first is always required. The
# kernels' -march comes after all inherited flags, and kernels are never part of LTO.
set(REGARD_KERNEL_OBJECTS)
set(REGARD_KERNEL_SOURCES
  activation_rows.cpp adamw.cpp attention_pack.cpp attention_pack_pairs.cpp attention_tile.cpp attention_finish.cpp
  attention_weights.cpp attention_backward.cpp cross_entropy_row.cpp dropout.cpp elementwise.cpp
  layer_table.cpp linear_amx.cpp linear_tile.cpp norm_backward.cpp norm_forward.cpp peak.cpp rotary_rows.cpp table.cpp)
list(TRANSFORM REGARD_KERNEL_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/src/kernels/)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  set(regard_known_sets neon)
else()
  set(regard_known_sets generic avx2 avx512 avx512_bf16 amx_bf16)
endif()
set(REGARD_INSTRUCTION_SETS "${regard_known_sets}" CACHE STRING "Instruction sets that kernels are compiled for")
set(REGARD_KERNEL_OPTIONS "" CACHE STRING "Additional compiler options for the kernels")
foreach(isa IN LISTS REGARD_INSTRUCTION_SETS)
  if(NOT isa IN_LIST regard_known_sets)
    message(FATAL_ERROR "REGARD_INSTRUCTION_SETS names '${isa}'; expected some of: ${regard_known_sets}")
  endif()
endforeach()
list(GET regard_known_sets 0 regard_baseline)
if(NOT regard_baseline IN_LIST REGARD_INSTRUCTION_SETS)
  message(FATAL_ERROR "REGARD_INSTRUCTION_SETS lacks '${regard_baseline}', which is the fallback for processors without any other of these sets")
endif()

function(regard_kernels isa)
  if(NOT isa IN_LIST REGARD_INSTRUCTION_SETS)
    return()
  endif()
  add_library(regard_kernels_${isa} OBJECT ${REGARD_KERNEL_SOURCES})
  target_compile_definitions(regard_kernels_${isa} PRIVATE REGARD_ISA=${isa} REGARD_ISA_${isa})
  target_include_directories(regard_kernels_${isa} PRIVATE ${PROJECT_SOURCE_DIR}/src/kernels)
  target_link_libraries(regard_kernels_${isa} PRIVATE regard_flags)
  target_compile_options(regard_kernels_${isa} PRIVATE
    -ffp-contract=off -fno-fast-math -fno-lto -fno-exceptions -fno-rtti -Wno-psabi
    $<$<NOT:$<CONFIG:Debug>>:-O3> ${ARGN} ${REGARD_KERNEL_OPTIONS})
  set_target_properties(regard_kernels_${isa} PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
  list(APPEND REGARD_KERNEL_OBJECTS $<TARGET_OBJECTS:regard_kernels_${isa}>)
  set(REGARD_KERNEL_OBJECTS ${REGARD_KERNEL_OBJECTS} PARENT_SCOPE)
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/src/runtime/isa.cpp APPEND PROPERTY COMPILE_DEFINITIONS REGARD_HAS_${isa})
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  regard_kernels(neon -march=armv8-a)
  return()
endif()

regard_kernels(generic -march=x86-64 -mtune=generic)
regard_kernels(avx2 -march=x86-64-v3)
regard_kernels(avx512 -march=x86-64-v4 -mprefer-vector-width=512)

# avx512 with the bf16 dot-product instruction, or with the tile registers of AMX; all other kernels are those of avx512.
foreach(isa IN ITEMS avx512_bf16 amx_bf16)
  if(isa IN_LIST REGARD_INSTRUCTION_SETS AND NOT avx512 IN_LIST REGARD_INSTRUCTION_SETS)
    message(FATAL_ERROR "REGARD_INSTRUCTION_SETS lacks 'avx512', whose kernels ${isa} uses")
  endif()
endforeach()
set(REGARD_KERNEL_SOURCES
  attention_pack_pairs.cpp attention_tile.cpp attention_backward.cpp linear_tile.cpp peak_bf16.cpp table.cpp)
list(TRANSFORM REGARD_KERNEL_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/src/kernels/)
regard_kernels(avx512_bf16 -march=x86-64-v4 -mprefer-vector-width=512 -mavx512bf16 -DREGARD_ISA_avx512)
set(REGARD_KERNEL_SOURCES linear_amx.cpp table.cpp)
list(TRANSFORM REGARD_KERNEL_SOURCES PREPEND ${PROJECT_SOURCE_DIR}/src/kernels/)
regard_kernels(amx_bf16 -march=x86-64-v4 -mprefer-vector-width=512 -mamx-tile -mamx-bf16 -DREGARD_ISA_avx512)
