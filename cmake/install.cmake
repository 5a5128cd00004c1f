# What `cmake --install` puts where: the library with its headers, the program, and how other projects find them.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sparsewire)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS sparsewire EXPORT sparsewireTargets FILE_SET HEADERS)
install(EXPORT sparsewireTargets NAMESPACE sparsewire:: DESTINATION ${package_dir})

if(TARGET sparsewire_cli)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(sparsewire_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS sparsewire_cli)
endif()

# Before 1.0 a minor version may break its users.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/sparsewireConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/sparsewireConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/sparsewireConfig.cmake INSTALL_DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/sparsewireConfig.cmake ${PROJECT_BINARY_DIR}/sparsewireConfigVersion.cmake
        DESTINATION ${package_dir})

# The prefix is relative to the .pc file, because `cmake --install --prefix` decides it only later. Who links the static
# library has to link what it uses as well; a shared one brings that along.
file(RELATIVE_PATH pkgconfig_to_prefix ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pkgconfig_to_prefix ${pkgconfig_to_prefix})
set(private_libraries "")
if(BUILD_SHARED_LIBS)
  set(private .private)
elseif(sparsewire_has_mpi)
  # MPI's .pc file has another name from each vendor.
  list(JOIN MPI_CXX_LIBRARIES " " private_libraries)
  string(PREPEND private_libraries " ")
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/sparsewire.pc.in ${PROJECT_BINARY_DIR}/sparsewire.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sparsewire.pc DESTINATION ${pkgconfig_dir})
