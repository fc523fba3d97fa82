# SPDX-License-Identifier: Apache-2.0
# `cmake --install build --prefix DIR`: the library (component library), regard::model (component model), regard::explain
# (component explain) and the program with its manual page and completions (component program), each only where it was
# built. docs/install.md lists what lands where.
include(CMakePackageConfigHelpers)

set(REGARD_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
file(RELATIVE_PATH REGARD_PREFIX_FROM_PC
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" REGARD_PREFIX_FROM_PC "${REGARD_PREFIX_FROM_PC}")
configure_package_config_file(cmake/regardConfig.cmake.in ${PROJECT_BINARY_DIR}/regardConfig.cmake
  INSTALL_DESTINATION ${REGARD_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
# 0.x: a new minor version may break its users, as the SOVERSION says.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/regardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(cmake/regard.pc.in ${PROJECT_BINARY_DIR}/regard.pc @ONLY)

# Each header is installed with the library that defines what it declares.
file(GLOB library_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/regard/*.h)
set(model_headers embed.h encoder.h json.h model_files.h sha256.h text.h tokenizer.h)
set(explain_headers attend_page.h compare.h csv.h explain.h heads.h inspection.h lesson.h npy.h random.h sentence.h
  sentence_page.h sentence_row.h sentence_story.h)
list(TRANSFORM model_headers PREPEND ${PROJECT_SOURCE_DIR}/include/regard/)
list(TRANSFORM explain_headers PREPEND ${PROJECT_SOURCE_DIR}/include/regard/)
list(REMOVE_ITEM library_headers ${model_headers} ${explain_headers})

install(TARGETS regard EXPORT regardTargets COMPONENT library)
install(EXPORT regardTargets NAMESPACE regard:: DESTINATION ${REGARD_CMAKE_DIR} COMPONENT library)
install(FILES ${PROJECT_BINARY_DIR}/regardConfig.cmake ${PROJECT_BINARY_DIR}/regardConfigVersion.cmake
  DESTINATION ${REGARD_CMAKE_DIR} COMPONENT library)
install(FILES ${PROJECT_BINARY_DIR}/regard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
install(FILES ${library_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/regard COMPONENT library)
install(FILES LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)

if(TARGET regard_model)
  install(TARGETS regard_model EXPORT regardModelTargets COMPONENT model)
  install(FILES ${model_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/regard COMPONENT model)
  install(EXPORT regardModelTargets NAMESPACE regard:: DESTINATION ${REGARD_CMAKE_DIR} COMPONENT model)
endif()
if(TARGET regard_explain)
  install(TARGETS regard_explain EXPORT regardExplainTargets COMPONENT explain)
  install(FILES ${explain_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/regard COMPONENT explain)
  install(EXPORT regardExplainTargets NAMESPACE regard:: DESTINATION ${REGARD_CMAKE_DIR} COMPONENT explain)
endif()
if(TARGET regard_program)
  if(BUILD_SHARED_LIBS)
    set_target_properties(regard_program PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  endif()
  install(TARGETS regard_program COMPONENT program)
  if(TARGET regard_written)
    set(written ${PROJECT_BINARY_DIR}/cli)
    install(FILES ${written}/regard.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT program)
    install(FILES ${written}/regard.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME regard
      COMPONENT program)
    install(FILES ${written}/_regard DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
    install(FILES ${written}/regard.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
  endif()
endif()
