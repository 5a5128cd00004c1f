# MPI is optional: SPARSEWIRE_MPI=AUTO uses it if it is found, ON requires it, OFF builds without it.
#
# Only the C interface is used, but it is found with the C++ compiler, so that neither this project nor those that link
# the static library have to enable C.
set(SPARSEWIRE_MPI AUTO CACHE STRING "Ranks as MPI processes: AUTO, ON or OFF")
set_property(CACHE SPARSEWIRE_MPI PROPERTY STRINGS AUTO ON OFF)

set(sparsewire_has_mpi OFF)
if(SPARSEWIRE_MPI)
  set(MPI_CXX_SKIP_MPICXX ON)
  if(SPARSEWIRE_MPI STREQUAL "AUTO")
    find_package(MPI 3.0 QUIET COMPONENTS CXX)  # Debian: libopenmpi-dev
  else()
    find_package(MPI 3.0 REQUIRED COMPONENTS CXX)
  endif()
  set(sparsewire_has_mpi ${MPI_CXX_FOUND})
endif()

if(sparsewire_has_mpi)
  set(mpi channel messages mpi polling session)
  list(TRANSFORM mpi REPLACE "(.+)" "src/transport/mpi/\\1.cc")
  set_source_files_properties(${mpi} PROPERTIES UNITY_GROUP mpi)
  target_sources(sparsewire PRIVATE ${mpi})
  target_link_libraries(sparsewire PRIVATE MPI::MPI_CXX)
else()
  target_sources(sparsewire PRIVATE src/transport/mpi/no_mpi.cc)
endif()
