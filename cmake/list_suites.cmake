# sparsewire_add_suites(<target> [TIMEOUT <seconds>] [LABELS <label>...] [FILTER <gtest filter>])
#
# One ctest entry for each suite of a GoogleTest program, and one for each test of a parameterised suite, with all its
# parameters: `ctest -R TopK` finds them, and hardly more processes are started than there are suites. (An entry for each
# case, as gtest_discover_tests makes them, spent a quarter of the time of a sanitizer run on starting processes.)
#
# The suites are listed when ctest runs, so that the list is never older than the program.
function(sparsewire_add_suites target)
  cmake_parse_arguments(PARSE_ARGV 1 suites "" "TIMEOUT;FILTER" "LABELS")
  if(NOT suites_TIMEOUT)
    set(suites_TIMEOUT 300)
  endif()
  set(script ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  file(GENERATE OUTPUT ${script} CONTENT "
set(program \"$<TARGET_FILE:${target}>\")
set(timeout \"${suites_TIMEOUT}\")
set(labels \"${suites_LABELS}\")
set(filter \"${suites_FILTER}\")
set(target \"${target}\")
include(\"${PROJECT_SOURCE_DIR}/cmake/list_suites_at_test_time.cmake\")
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${script})
endfunction()
