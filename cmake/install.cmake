# What `cmake --install` puts where: the library with its headers, the program, and how other projects find them.
include(CMakePackageConfigHelpers)

# Sets `result` to the pkg-config module of the MPI that was found; its name depends on the vendor. Several may be installed,
# so it has to be the one with the same mpi.h. Empty if there is none.
function(sparsewire_find_mpi_module result)
  set(${result} "" PARENT_SCOPE)
  find_package(PkgConfig QUIET)
  if(NOT PKG_CONFIG_FOUND)
    return()
  endif()
  foreach(module ompi-c ompi mpich)
    pkg_check_modules(sparsewire_${module} QUIET ${module})
    if(MPI_CXX_HEADER_DIR IN_LIST sparsewire_${module}_INCLUDE_DIRS)
      set(${result} ${module} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sparsewire)
set(pkgconfig_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS sparsewire sparsewire_equal_bits EXPORT sparsewireTargets FILE_SET HEADERS)
install(EXPORT sparsewireTargets NAMESPACE sparsewire:: DESTINATION ${package_dir})

# find_package(sparsewire 0.7) finds every later version in which what was written for 0.7 still compiles. Raise this number when
# the public headers break their users (CONTRIBUTING.md, "What stays stable").
set(sparsewire_oldest_api 0.7)
set(version_file ${PROJECT_BINARY_DIR}/sparsewireConfigVersion.cmake)
write_basic_package_version_file(${version_file} COMPATIBILITY SameMajorVersion)
file(READ ${version_file} version_check)
file(WRITE ${version_file} "if(PACKAGE_FIND_VERSION VERSION_LESS ${sparsewire_oldest_api} AND NOT \"\${PACKAGE_FIND_VERSION}\" STREQUAL \"\")
  set(PACKAGE_VERSION ${PROJECT_VERSION})
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
  return()
endif()
${version_check}")
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/sparsewireConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/sparsewireConfig.cmake INSTALL_DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/sparsewireConfig.cmake ${PROJECT_BINARY_DIR}/sparsewireConfigVersion.cmake
        DESTINATION ${package_dir})

# The .pc file holds no path of this machine. The prefix is relative to the file, because `cmake --install --prefix` decides
# it only later. Who links the static library has to link what it uses as well; a shared one brings that along.
file(RELATIVE_PATH pkgconfig_to_prefix ${CMAKE_INSTALL_PREFIX}/${pkgconfig_dir} ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pkgconfig_to_prefix ${pkgconfig_to_prefix})
set(requires "libhwy fmt")
set(private_libraries "")
if(BUILD_SHARED_LIBS)
  set(private .private)
elseif(sparsewire_has_mpi)
  sparsewire_find_mpi_module(mpi_module)
  if(mpi_module)
    string(APPEND requires " ${mpi_module}")
  else()
    # Where the library is only the vendor's compiler wrapper knows: CXX=mpicxx, or -L in LDFLAGS.
    list(TRANSFORM MPI_CXX_LIB_NAMES PREPEND " -l" OUTPUT_VARIABLE private_libraries)
    list(JOIN private_libraries "" private_libraries)
  endif()
endif()
if(sparsewire_has_cuda AND NOT BUILD_SHARED_LIBS)
  string(APPEND private_libraries " -lcudart_static -ldl -lrt")  # where it is, -L in LDFLAGS says
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/sparsewire.pc.in ${PROJECT_BINARY_DIR}/sparsewire.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/sparsewire.pc DESTINATION ${pkgconfig_dir})
