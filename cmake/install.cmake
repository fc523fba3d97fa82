# SPDX-License-Identifier: Apache-2.0
# `cmake --install build --prefix DIR` installs the parts that were built: the library (component library), regard::io,
# regard::model, regard::train, regard::explain and regard::distributed (components io, model, train, explain and
# distributed), the program's MPI plugin (component mpi), and the program with its manual page and completions (component
# program). docs/guide/installing.md lists the installed files.
include(CMakePackageConfigHelpers)

set(REGARD_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/regard)
file(RELATIVE_PATH REGARD_PREFIX_FROM_PC
  ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" REGARD_PREFIX_FROM_PC "${REGARD_PREFIX_FROM_PC}")
configure_package_config_file(cmake/regardConfig.cmake.in ${PROJECT_BINARY_DIR}/regardConfig.cmake
  INSTALL_DESTINATION ${REGARD_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
# 0.x: a new minor version may be incompatible; the SOVERSION includes it for the same reason.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/regardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(cmake/regard.pc.in ${PROJECT_BINARY_DIR}/regard.pc @ONLY)

install(TARGETS regard EXPORT regardTargets COMPONENT library)
install(EXPORT regardTargets NAMESPACE regard:: DESTINATION ${REGARD_CMAKE_DIR} COMPONENT library)
install(FILES ${PROJECT_BINARY_DIR}/regardConfig.cmake ${PROJECT_BINARY_DIR}/regardConfigVersion.cmake
  DESTINATION ${REGARD_CMAKE_DIR} COMPONENT library)
install(FILES ${PROJECT_BINARY_DIR}/regard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT library)
file(GLOB regard_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/regard/*.h)
install(FILES ${regard_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/regard COMPONENT library)
install(FILES LICENSE THIRD_PARTY.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT library)

foreach(component IN ITEMS io model train explain distributed)
  if(TARGET regard_${component})
    install(TARGETS regard_${component} EXPORT regard_${component}_targets COMPONENT ${component})
    install(EXPORT regard_${component}_targets NAMESPACE regard:: DESTINATION ${REGARD_CMAKE_DIR} COMPONENT ${component})
    install(DIRECTORY include/regard/${component} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/regard COMPONENT ${component})
  endif()
endforeach()
if(TARGET regard_mpi_plugin)
  # By name only, so that packages of the rest do not depend on an MPI.
  install(TARGETS regard_mpi_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/regard COMPONENT mpi EXCLUDE_FROM_ALL)
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
