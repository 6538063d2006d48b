# The package: headers in one include root, one export set (and one for OpenMP, which few ask for), config, version and .pc file.
set(corbel_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/Corbel")

foreach(dir IN LISTS corbel_include_dirs)
  if(EXISTS "${dir}")
    install(
      DIRECTORY "${dir}/corbel"
      DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
      COMPONENT development
      FILES_MATCHING
      PATTERN "*.hpp"
      PATTERN "*.ipp")
  endif()
endforeach()

install(
  TARGETS corbel corbel_header_only
  EXPORT CorbelTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development
  RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT runtime)
install(EXPORT CorbelTargets NAMESPACE corbel:: DESTINATION "${corbel_package_dir}" COMPONENT development)
export(EXPORT CorbelTargets NAMESPACE corbel:: FILE "${PROJECT_BINARY_DIR}/CorbelTargets.cmake")
if(TARGET corbel_openmp)
  install(TARGETS corbel_openmp EXPORT CorbelOpenMPTargets)
  install(EXPORT CorbelOpenMPTargets NAMESPACE corbel:: DESTINATION "${corbel_package_dir}" COMPONENT development)
  export(EXPORT CorbelOpenMPTargets NAMESPACE corbel:: FILE "${PROJECT_BINARY_DIR}/CorbelOpenMPTargets.cmake")
endif()
if(TARGET corbel_tool)
  install(TARGETS corbel_tool RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
endif()

configure_package_config_file(src/cmake/CorbelConfig.cmake.in "${PROJECT_BINARY_DIR}/CorbelConfig.cmake"
                              INSTALL_DESTINATION "${corbel_package_dir}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change what programs see.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/CorbelConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/CorbelConfig.cmake" "${PROJECT_BINARY_DIR}/CorbelConfigVersion.cmake"
  DESTINATION "${corbel_package_dir}"
  COMPONENT development)

set(corbel_pc_cflags "-DCORBEL_HEADER_ONLY=0")
if(CORBEL_BUILD_SHARED)
  string(APPEND corbel_pc_cflags " -DCORBEL_SHARED=1")
endif()
if(NOT CORBEL_ENABLE_CPU)
  string(APPEND corbel_pc_cflags " -DCORBEL_HAS_CPU=0")
endif()
# A static library's user links what the library uses.
if(CORBEL_BUILD_SHARED)
  set(corbel_pc_needs "Requires.private: fmt\nLibs: -L\${libdir} -lcorbel\nLibs.private: -pthread")
else()
  set(corbel_pc_needs "Requires: fmt\nLibs: -L\${libdir} -lcorbel -pthread")
endif()
# Relative to the file, so that the installed tree can be moved.
file(RELATIVE_PATH corbel_pc_prefix "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" corbel_pc_prefix "${corbel_pc_prefix}")
configure_file(src/cmake/corbel.pc.in "${PROJECT_BINARY_DIR}/corbel.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/corbel.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT development)
install(FILES LICENSE THIRD_PARTY.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT development)
