# The commands in which the two houses write the module table: src/ in the root CMakeLists.txt, lab/ in its own.

# sparsewire_module(<name> TARGET <target> [UNIT] [HEADERS <header>...] [DEPENDS <module>...])
#
# Adds <name>/*.cc, from the folder `house` of the source tree, to the target. HEADERS are those of include/sparsewire/ that
# belong to the module, DEPENDS the modules of its house that it may include, directly: nothing follows from what those depend
# on. With UNIT the module is compiled as one unit, because most of the time goes into headers; names in its anonymous namespaces
# must then differ.
function(sparsewire_module name)
  cmake_parse_arguments(PARSE_ARGV 1 module "UNIT" "TARGET" "HEADERS;DEPENDS")
  sparsewire_add_row(${house}/${name} "${module_HEADERS}" "${module_DEPENDS}")
  file(GLOB sources CONFIGURE_DEPENDS ${house_folder}/${name}/*.cc)
  target_sources(${module_TARGET} PRIVATE ${sources})
  if(module_UNIT)
    # A registry stays on its own: a program can replace it (tests/unit/parts).
    list(FILTER sources EXCLUDE REGEX "/registry\\.cc$")
    set_source_files_properties(${sources} PROPERTIES UNITY_GROUP ${name})
    set_target_properties(${module_TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
  list(TRANSFORM module_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/sparsewire/)
  if(module_HEADERS)
    target_sources(${module_TARGET} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${module_HEADERS})
  endif()
endfunction()

# Writes the table for tests/includes_test.py.
function(sparsewire_write_module_table file)
  get_property(rows GLOBAL PROPERTY SPARSEWIRE_MODULE_ROWS)
  list(JOIN rows ",\n" rows)
  file(CONFIGURE OUTPUT ${file} CONTENT "{\n@rows@\n}\n" @ONLY)
endfunction()

function(sparsewire_add_row folder headers depends)
  get_property(above GLOBAL PROPERTY SPARSEWIRE_MODULES)
  foreach(module IN LISTS depends)
    if(NOT ${house}/${module} IN_LIST above)
      message(FATAL_ERROR "${folder} depends on ${module}, which is no module above it: the table has a strict order")
    endif()
  endforeach()
  foreach(list headers depends)
    list(TRANSFORM ${list} REPLACE "(.+)" "\"\\1\"")
    list(JOIN ${list} ", " ${list})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY SPARSEWIRE_MODULE_ROWS
               "  \"${folder}\": {\"headers\": [${headers}], \"depends\": [${depends}]}")
  set_property(GLOBAL APPEND PROPERTY SPARSEWIRE_MODULES ${folder})
endfunction()
