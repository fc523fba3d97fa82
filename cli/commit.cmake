# SPDX-License-Identifier: Apache-2.0
# Writes OUTPUT with the commit of SOURCE, followed by "+" if files differ from it, and the date of the commit. If SOURCE
# is not the root of a git checkout, the commit is "unknown" and the date is that of the build (SOURCE_DATE_EPOCH).
cmake_minimum_required(VERSION 3.25)
set(commit unknown)
string(TIMESTAMP date "%Y-%m-%d" UTC)
if(GIT)
  execute_process(COMMAND ${GIT} rev-parse --show-toplevel --short=12 HEAD WORKING_DIRECTORY ${SOURCE}
    OUTPUT_VARIABLE lines ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  string(REPLACE "\n" ";" lines "${lines}")
  list(LENGTH lines count)
  if(NOT failed AND count EQUAL 2)
    list(GET lines 0 top)
    file(REAL_PATH ${SOURCE} source)
    if(top STREQUAL source)
      list(GET lines 1 commit)
      execute_process(COMMAND ${GIT} show --no-patch --format=%cs HEAD WORKING_DIRECTORY ${SOURCE}
        OUTPUT_VARIABLE date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      execute_process(COMMAND ${GIT} diff --quiet HEAD -- WORKING_DIRECTORY ${SOURCE}
        RESULT_VARIABLE differs OUTPUT_QUIET ERROR_QUIET)
      if(differs)
        string(APPEND commit "+")
      endif()
    endif()
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "#define REGARD_COMMIT \"@commit@\"\n#define REGARD_DATE \"@date@\"\n" @ONLY)
