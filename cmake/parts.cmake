# SPDX-License-Identifier: Apache-2.0
# Which parts are built in addition to the library. The option of a part is ON, OFF or AUTO. AUTO, the default, builds
# the part if everything that it needs is present; otherwise a message states which Debian packages are missing. Within
# another project, AUTO builds only what a part that is ON needs.
# After this file, the options of all parts are ON or OFF.

# The Python module contains fmt and utf8proc, so that its wheel needs neither: fmt from its headers, utf8proc from its
# static library, if there is one.
set(REGARD_FMT fmt::fmt)
set(regard_utf8proc_names utf8proc)
if(REGARD_PYTHON_PACKAGE)
  set(REGARD_FMT fmt::fmt-header-only)
  set(regard_utf8proc_names libutf8proc.a utf8proc)
endif()

# The external packages that the parts need: the Debian package for each CMake name.
set(regard_package_fmt libfmt-dev)
set(regard_package_nlohmann_json nlohmann-json3-dev)
set(regard_package_utf8proc libutf8proc-dev)
set(regard_package_CLI11 libcli11-dev)
set(regard_package_PNG libpng-dev)
set(regard_package_ZLIB zlib1g-dev)
set(regard_package_GTest libgtest-dev)
set(regard_package_benchmark libbenchmark-dev)

# Sets RESULT to the Debian packages of the given names that are not found.
function(regard_missing result)
  set(missing "")
  foreach(name IN LISTS ARGN)
    if(name STREQUAL "utf8proc")
      find_path(UTF8PROC_INCLUDE_DIR utf8proc.h)
      find_library(UTF8PROC_LIBRARY NAMES ${regard_utf8proc_names})
      set(found FALSE)
      if(UTF8PROC_INCLUDE_DIR AND UTF8PROC_LIBRARY)
        set(found TRUE)
      endif()
    else()
      find_package(${name} QUIET)
      set(found ${${name}_FOUND})
    endif()
    if(NOT found)
      list(APPEND missing ${regard_package_${name}})
    endif()
  endforeach()
  list(JOIN missing " " missing)
  set(${result} "${missing}" PARENT_SCOPE)
endfunction()

# regard_part(OPTION WHAT DEFAULT PARENT NAME…): WHAT is built if OPTION and PARENT (an option, or "") are on and every
# NAME is found. NAME… includes the names that PARENT needs.
function(regard_part option what default parent)
  set(${option} ${default} CACHE STRING "Build ${what}: ON, OFF or AUTO")
  set_property(CACHE ${option} PROPERTY STRINGS AUTO ON OFF)
  set(automatic FALSE)
  if(${option} STREQUAL "AUTO" AND NOT option IN_LIST regard_needed)
    set(automatic TRUE)
    if(NOT PROJECT_IS_TOP_LEVEL)
      set(${option} OFF PARENT_SCOPE)
      return()
    endif()
  elseif(NOT ${option} AND NOT ${option} STREQUAL "AUTO")
    set(${option} OFF PARENT_SCOPE)
    return()
  endif()

  set(problem "")
  regard_missing(missing ${ARGN})
  if(missing)
    set(problem "needs these Debian packages: ${missing}")
    set(remedy "install them or set ${option}=OFF")
  elseif(parent AND NOT ${parent})
    set(problem "needs ${parent}=ON")
    set(remedy "set ${parent}=ON or ${option}=OFF")
  endif()
  if(NOT problem)
    set(${option} ON PARENT_SCOPE)
  elseif(automatic)
    message(STATUS "Left out: ${what} (${option}), which ${problem}")
    set(${option} OFF PARENT_SCOPE)
  elseif(${option} STREQUAL "AUTO")
    message(FATAL_ERROR "${what}, which another part that is ON needs, ${problem}; install them.")
  else()
    message(FATAL_ERROR "${option}=ON ${problem}; ${remedy}.")
  endif()
endfunction()

# Parts that are required because another part is ON.
set(regard_needed "")
foreach(part_and_parent "REGARD_PROGRAM REGARD_EXPLAIN" "REGARD_FUZZ REGARD_EXPLAIN" "REGARD_EXPLAIN REGARD_MODEL"
    "REGARD_MODEL REGARD_IO")
  separate_arguments(part_and_parent)
  list(GET part_and_parent 0 part)
  list(GET part_and_parent 1 parent)
  if((${part} AND NOT ${part} STREQUAL "AUTO") OR part IN_LIST regard_needed)
    list(APPEND regard_needed ${parent})
  endif()
endforeach()

set(regard_io_needs fmt nlohmann_json utf8proc)
regard_part(REGARD_IO "regard::io" AUTO "" ${regard_io_needs})
regard_part(REGARD_MODEL "regard::model" AUTO REGARD_IO ${regard_io_needs})
regard_part(REGARD_EXPLAIN "regard::explain" AUTO REGARD_MODEL ${regard_io_needs})
regard_part(REGARD_PROGRAM "the program" AUTO REGARD_EXPLAIN ${regard_io_needs} CLI11 PNG ZLIB)
set(regard_test_framework GTest)
if(CMAKE_CROSSCOMPILING)
  set(regard_test_framework "")  # tests/CMakeLists.txt builds it from source
endif()
regard_part(REGARD_TESTS "the test suite" OFF "" ${regard_test_framework})
regard_part(REGARD_BENCH "the benchmark suite" OFF "" benchmark)
regard_part(REGARD_FUZZ "the fuzzing suite" OFF REGARD_EXPLAIN ${regard_io_needs} ZLIB)
if(REGARD_FUZZ AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "REGARD_FUZZ=ON needs clang, which brings libFuzzer; this compiler is ${CMAKE_CXX_COMPILER_ID}; "
    "set CMAKE_CXX_COMPILER=clang++-19 or REGARD_FUZZ=OFF.")
endif()
