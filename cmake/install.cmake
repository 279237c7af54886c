# SPDX-License-Identifier: MIT
#
# Install rules: headers, libraries, the CMake package (component host) and pkg-config files, all under
# the prefix's name.
include(CMakePackageConfigHelpers)

set(name ${QUERN_PREFIX})
set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/${name}")
set(generated "${PROJECT_BINARY_DIR}/generated")

install(FILES "${quern_root}/include/${name}/${name}.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${name}")
install(TARGETS ${name} EXPORT ${name}-targets)
install(EXPORT ${name}-targets NAMESPACE ${name}:: DESTINATION "${package_folder}")

if(QUERN_BUILD_HOST)
  install(FILES "${quern_root}/include/${name}/host.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/${name}")
  set_target_properties(${name}_host PROPERTIES EXPORT_NAME host)
  install(TARGETS ${name}_host EXPORT ${name}-host-targets)
  install(EXPORT ${name}-host-targets NAMESPACE ${name}:: DESTINATION "${package_folder}")
endif()

configure_package_config_file(cmake/config.cmake.in "${generated}/${name}-config.cmake"
  INSTALL_DESTINATION "${package_folder}")
write_basic_package_version_file("${generated}/${name}-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${generated}/${name}-config.cmake" "${generated}/${name}-config-version.cmake"
  DESTINATION "${package_folder}")

# The package can be moved as a whole, unless its folders are absolute (as in Nix).
cmake_path(APPEND CMAKE_INSTALL_PREFIX "${CMAKE_INSTALL_LIBDIR}" pkgconfig OUTPUT_VARIABLE pc_folder)
file(RELATIVE_PATH pc_prefix "${pc_folder}" "${CMAKE_INSTALL_PREFIX}")
set(pc_prefix "\${pcfiledir}/${pc_prefix}")
foreach(folder IN ITEMS LIBDIR INCLUDEDIR)
  set(pc_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  cmake_path(IS_ABSOLUTE CMAKE_INSTALL_${folder} absolute)
  if(absolute)
    set(pc_${folder} "${CMAKE_INSTALL_${folder}}")
    set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
  endif()
endforeach()

# `libraries` is what a program must name beside the library itself: with static libraries always, with
# shared ones only for pkg-config --static, as others expect to find it there.
function(quern_install_pc file description libraries)
  if(BUILD_SHARED_LIBS)
    set(private "${libraries}")
    set(public "")
  else()
    set(private "")
    set(public " ${libraries}")
  endif()
  configure_file(cmake/pkgconfig.pc.in "${generated}/${file}.pc" @ONLY)
  install(FILES "${generated}/${file}.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endfunction()
list(TRANSFORM CMAKE_DL_LIBS PREPEND "-l" OUTPUT_VARIABLE dl)
quern_install_pc(${name} "${PROJECT_DESCRIPTION}" "-lm ${dl}")
if(QUERN_BUILD_HOST)
  quern_install_pc(${name}_host "Threads and tuning files for ${name}" "-l${name} -lpthreadpool -lm ${dl}")
endif()
