# SPDX-License-Identifier: Apache-2.0
# The libraries of another build of this source, REGARD_BUILT, instead of compiling them again: static, as the release
# preset makes them. For ./check, which builds the Python package beside everything else.
foreach(stem "" io model explain)
  set(library regard)
  set(folder ${REGARD_BUILT})
  if(stem)
    set(library regard_${stem})
    set(folder ${REGARD_BUILT}/src/${stem})
  endif()
  add_library(${library} STATIC IMPORTED)
  set_target_properties(${library} PROPERTIES IMPORTED_LOCATION ${folder}/lib${library}.a
    INTERFACE_INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR}/include)
endforeach()
find_package(fmt REQUIRED)
find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
target_link_libraries(regard INTERFACE Threads::Threads)
target_link_libraries(regard_io INTERFACE regard fmt::fmt ${UTF8PROC_LIBRARY})
target_link_libraries(regard_model INTERFACE regard_io regard fmt::fmt ${UTF8PROC_LIBRARY})
target_link_libraries(regard_explain INTERFACE regard_model regard_io regard fmt::fmt)
add_library(regard::regard ALIAS regard)
add_library(regard::io ALIAS regard_io)
add_library(regard::model ALIAS regard_model)
add_library(regard::explain ALIAS regard_explain)
