# How the tests of both houses are made: GoogleTest programs, and limits against what hangs.
include(${PROJECT_SOURCE_DIR}/cmake/list_suites.cmake)

# Compiling the tests takes most of the time of a test run, so they are optimised less than what they test, and the
# undefined-behaviour sanitizer looks at the library and the program only: see CMakePresets.json.
set(SPARSEWIRE_TEST_OPTIONS "" CACHE STRING "More compiler options for the tests")

# The address sanitizer looks at what is tested, not at the tests. So ./test.sh compiles them once, for release, and the build
# with that sanitizer links the same objects.
set(SPARSEWIRE_TEST_OBJECTS "" CACHE PATH "A build folder of the same source whose objects of the tests are used")

# What waits for deadlines in real time has the label `waits`, and as many processors as the presets have jobs: it runs beside
# nothing. It hardly computes, so ./test.sh runs these entries of all builds side by side when all others are through.
set(alone 4)

# For Open MPI; other libraries do not read these. There may be fewer processors than ranks, and two jobs at a time, so no
# rank is bound to a processor. Root is allowed because a container often has no other user.
set(mpi_environment OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
                    OMPI_MCA_hwloc_base_binding_policy=none
                    LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/transport/open_mpi.supp:print_suppressions=0
                    ASAN_OPTIONS=fast_unwind_on_malloc=0)

# sparsewire_test_program(<name> [COMPILE] INCLUDES <folder>... LIBRARIES <target>... SOURCES <file>...)
#
# COMPILE: never use other objects than one's own.
function(sparsewire_test_program name)
  cmake_parse_arguments(PARSE_ARGV 1 program "COMPILE" "" "INCLUDES;LIBRARIES;SOURCES")
  if(SPARSEWIRE_TEST_OBJECTS AND NOT program_COMPILE)
    file(RELATIVE_PATH here ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR})
    file(GLOB_RECURSE program_SOURCES CONFIGURE_DEPENDS ${SPARSEWIRE_TEST_OBJECTS}/${here}/CMakeFiles/${name}.dir/*.o)
    if(NOT program_SOURCES)
      message(FATAL_ERROR "there are no objects of ${name} in ${SPARSEWIRE_TEST_OBJECTS}: build it first")
    endif()
  endif()
  add_executable(${name} ${program_SOURCES})
  target_compile_options(${name} PRIVATE ${SPARSEWIRE_TEST_OPTIONS})
  target_include_directories(${name} PRIVATE ${program_INCLUDES})
  target_link_libraries(${name} PRIVATE ${program_LIBRARIES} sparsewire_effort)
  set_target_properties(${name} PROPERTIES LINKER_LANGUAGE CXX)
  sparsewire_compile_options(${name})
endfunction()

# sparsewire_unit_tests(<folder> ...)    as sparsewire_test_program(), for unit/<folder>/*.cc: the program <folder>_tests, with an
# entry of ctest for each suite. <folder>_tests_filter, _options and _labels of the caller hold for them.
#
# The programs are compiled as a few large units: most of the time of a test file goes into headers that all of them include. A
# file has a namespace of its own for that, sparsewire::<file>. (-DCMAKE_UNITY_BUILD does not matter here.)
function(sparsewire_unit_tests folder)
  file(GLOB sources CONFIGURE_DEPENDS unit/${folder}/*.cc)
  set(labels "")
  if(SPARSEWIRE_TEST_THREADS_ONLY)
    # The thread sanitizer builds and runs the files that speak of threads or a Pool: all sparsifiers are in them, the rest would
    # only cost time.
    foreach(source IN LISTS sources)
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
      file(STRINGS ${source} threaded REGEX "[Pp]ool|[Tt]hread")
      if(NOT threaded)
        list(REMOVE_ITEM sources ${source})
      endif()
    endforeach()
    if(NOT sources)
      return()
    endif()
    set(labels threads)
  endif()
  sparsewire_test_program(${folder}_tests ${ARGN} SOURCES ${sources})
  set_target_properties(${folder}_tests PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
  target_link_libraries(${folder}_tests PRIVATE sparsewire_reference sparsewire_watchdog GTest::gtest_main GTest::gmock)
  sparsewire_add_suites(${folder}_tests FILTER "${${folder}_tests_filter}" ${${folder}_tests_options}
                        LABELS ${labels} ${${folder}_tests_labels})
endfunction()

# Of the tests of this folder so far. Limits only end what hangs, so a slow machine may have them longer.
function(sparsewire_limit_tests)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test IN LISTS tests)
    get_test_property(${test} TIMEOUT limit)
    if(NOT limit)
      set(limit 600)
    endif()
    sparsewire_patient(limit)
    set_tests_properties(${test} PROPERTIES TIMEOUT ${limit})
  endforeach()
endfunction()
