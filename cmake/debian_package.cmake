# SPDX-License-Identifier: Apache-2.0
# `cpack --config build/CPackConfig.cmake`: a .deb with everything that `cmake --install` installs. cpack reads this file
# again, as CPACK_PROJECT_CONFIG_FILE, before it packs.
if(CPACK_GENERATOR)
  # With these two programs cpack finds the dependencies.
  find_program(REGARD_DPKG_SHLIBDEPS dpkg-shlibdeps)
  find_program(REGARD_FILE file)
  if(NOT REGARD_DPKG_SHLIBDEPS OR NOT REGARD_FILE)
    message(FATAL_ERROR "A .deb needs the programs dpkg-shlibdeps and file; install the Debian packages dpkg-dev and file.")
  endif()
  return()
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME regard)
set(CPACK_PACKAGE_CONTACT "The Regard authors")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_FILE})
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
include(CPack)
