# SPDX-License-Identifier: Apache-2.0
# The core of live pages: a WebAssembly module, built by a project of its own (web/core) with clang, and embedded in the
# program. REGARD_LIVE is ON, OFF or AUTO, as for the parts in parts.cmake; without it, `regard live` says what is missing.
set(REGARD_LIVE AUTO CACHE STRING "Build the core of live pages: ON, OFF or AUTO")
set_property(CACHE REGARD_LIVE PROPERTY STRINGS AUTO ON OFF)
set(regard_live FALSE)
if(NOT REGARD_PROGRAM OR CMAKE_CROSSCOMPILING OR NOT (REGARD_LIVE STREQUAL "AUTO" OR REGARD_LIVE))
  return()
endif()

set(missing "")
foreach(package_and_file "clang-19 /usr/bin/clang++-19" "lld-19 /usr/bin/wasm-ld-19"
    "wasi-libc /usr/lib/wasm32-wasi/libc.a"
    "libc++-19-dev-wasm32 /usr/lib/llvm-19/lib/wasm32-wasi/libc++.a"
    "libc++abi-19-dev-wasm32 /usr/lib/llvm-19/lib/wasm32-wasi/libc++abi.a"
    "libclang-rt-19-dev-wasm32 /usr/lib/llvm-19/lib/clang/19/lib/wasi/libclang_rt.builtins-wasm32.a")
  separate_arguments(package_and_file)
  list(GET package_and_file 0 package)
  list(GET package_and_file 1 file)
  if(NOT EXISTS "${file}")
    list(APPEND missing ${package})
  endif()
endforeach()
if(missing)
  list(JOIN missing " " missing)
  if(NOT REGARD_LIVE STREQUAL "AUTO")
    message(FATAL_ERROR "REGARD_LIVE=ON needs these Debian packages: ${missing}; install them or set REGARD_LIVE=OFF.")
  endif()
  message(STATUS "Left out: live pages (REGARD_LIVE), which need these Debian packages: ${missing}")
  return()
endif()
set(regard_live TRUE)

add_executable(regard_unicode_tables ${PROJECT_SOURCE_DIR}/web/core/unicode_tables.cpp)
target_include_directories(regard_unicode_tables SYSTEM PRIVATE ${UTF8PROC_INCLUDE_DIR})
target_link_libraries(regard_unicode_tables PRIVATE ${UTF8PROC_LIBRARY} regard_flags)
set(regard_wasm_folder ${PROJECT_BINARY_DIR}/wasm)
file(MAKE_DIRECTORY ${regard_wasm_folder}/unicode)
add_custom_command(OUTPUT ${regard_wasm_folder}/unicode/unicode_tables.h
  COMMAND regard_unicode_tables > ${regard_wasm_folder}/unicode/unicode_tables.h DEPENDS regard_unicode_tables VERBATIM)

set(REGARD_CORE_MODULE ${regard_wasm_folder}/core.wasm)
file(GLOB_RECURSE regard_core_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpp ${PROJECT_SOURCE_DIR}/src/*.h
  ${PROJECT_SOURCE_DIR}/include/*.h ${PROJECT_SOURCE_DIR}/web/core/*)
if(REGARD_TESTS)
  file(GLOB regard_check_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/wasm/checks.cpp
    ${PROJECT_SOURCE_DIR}/tests/support/arrays.cpp ${PROJECT_SOURCE_DIR}/tests/support/*.h)
  list(APPEND regard_core_sources ${regard_check_sources})
endif()
add_custom_command(OUTPUT ${REGARD_CORE_MODULE}
  COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR}/web/core -B ${regard_wasm_folder} -G Ninja
    --toolchain ${PROJECT_SOURCE_DIR}/cmake/wasm.cmake -DCMAKE_BUILD_TYPE=Release
    -DREGARD_UNICODE_TABLES=${regard_wasm_folder}/unicode -DREGARD_VERSION=${PROJECT_VERSION}
    -DREGARD_TESTS=${REGARD_TESTS} > ${regard_wasm_folder}/configure.log
  COMMAND ${CMAKE_COMMAND} --build ${regard_wasm_folder}
  DEPENDS ${regard_core_sources} ${PROJECT_SOURCE_DIR}/cmake/wasm.cmake ${PROJECT_SOURCE_DIR}/cmake/kernels.cmake
    ${regard_wasm_folder}/unicode/unicode_tables.h
  COMMENT "Building the core of live pages (WebAssembly)" VERBATIM)
add_custom_target(regard_core DEPENDS ${REGARD_CORE_MODULE})
