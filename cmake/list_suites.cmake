# A limit in seconds, times SPARSEWIRE_TEST_PATIENCE: see tests/patience.h. It is read when CMake runs.
function(sparsewire_patient variable)
  if("$ENV{SPARSEWIRE_TEST_PATIENCE}" MATCHES "^([0-9]+)(\\.([0-9]))?")
    set(tenths "${CMAKE_MATCH_1}0")
    if(CMAKE_MATCH_3)
      math(EXPR tenths "${tenths} + ${CMAKE_MATCH_3}")
    endif()
    math(EXPR limit "(${${variable}} * ${tenths} + 9) / 10")
    set(${variable} ${limit} PARENT_SCOPE)
  endif()
endfunction()

# sparsewire_add_suites(<target> [PROCESSORS <n>] [TIMEOUT <seconds>] [LABELS <label>...] [FILTER <gtest filter>])
#
# One ctest entry for each suite of a GoogleTest program, and one for each test of a parameterised suite, with all its
# parameters: `ctest -R TopK` finds them, and hardly more processes are started than there are suites. (An entry for each
# case, as gtest_discover_tests makes them, spent a quarter of the time of a sanitizer run on starting processes.)
#
# The suites are listed when ctest runs, so that the list is never older than the program.
function(sparsewire_add_suites target)
  cmake_parse_arguments(PARSE_ARGV 1 suites "" "TIMEOUT;FILTER;PROCESSORS" "LABELS")
  if(NOT suites_TIMEOUT)
    set(suites_TIMEOUT 900)
  endif()
  if(NOT suites_PROCESSORS)
    set(suites_PROCESSORS 1)
  endif()
  sparsewire_patient(suites_TIMEOUT)
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  file(GENERATE OUTPUT ${script} CONTENT "
set(program \"$<TARGET_FILE:${target}>\")
set(timeout \"${suites_TIMEOUT}\")
set(labels \"${suites_LABELS}\")
set(processors \"${suites_PROCESSORS}\")
set(filter \"${suites_FILTER}\")
set(target \"${target}\")
include(\"${PROJECT_SOURCE_DIR}/cmake/list_suites_at_test_time.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()
