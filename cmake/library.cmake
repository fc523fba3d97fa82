# SPDX-License-Identifier: Apache-2.0
# regard_library(COMPONENT [SOURCES FILE…] [PUBLIC LIBRARY…] [PRIVATE LIBRARY…]): adds the library regard::COMPONENT,
# which consists of all .cpp files below this folder. Private headers are included by their path below src/.
function(regard_library component)
  cmake_parse_arguments(PARSE_ARGV 1 library "" "" "SOURCES;PUBLIC;PRIVATE")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  set(target regard_${component})
  add_library(${target} ${sources} ${library_SOURCES})
  add_library(regard::${component} ALIAS ${target})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE -ffp-contract=off -fno-fast-math)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PUBLIC regard::regard ${library_PUBLIC}
    PRIVATE $<BUILD_INTERFACE:regard_flags> ${library_PRIVATE})
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${component}
    DEFINE_SYMBOL ""
    # Installed in the same folder, the libraries find each other.
    INSTALL_RPATH "$ORIGIN"
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endfunction()
