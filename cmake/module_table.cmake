# The commands in which the root CMakeLists.txt writes the module table.

# sparsewire_module(<name> [UNIT] [TARGET <target>] [HEADERS <header>...] [DEPENDS <module>...])
#
# Adds src/<name>/*.cc to the target, which is the library unless said otherwise. HEADERS are those of
# include/sparsewire/ that belong to the module, DEPENDS the modules it may include, directly: nothing follows from what
# those depend on. With UNIT the module is compiled as one unit, because most of the time goes into headers; names in its
# anonymous namespaces must then differ.
function(sparsewire_module name)
  cmake_parse_arguments(PARSE_ARGV 1 module "UNIT" "TARGET" "HEADERS;DEPENDS")
  sparsewire_add_row(src/${name} "${module_HEADERS}" "${module_DEPENDS}")
  if(NOT module_TARGET)
    set(module_TARGET sparsewire)
  endif()

  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  target_sources(${module_TARGET} PRIVATE ${sources})
  if(module_UNIT)
    # A registry stays on its own: a program can replace it (tests/unit/parts).
    list(FILTER sources EXCLUDE REGEX "/registry\\.cc$")
    set_source_files_properties(${sources} PROPERTIES UNITY_GROUP ${name})
    set_target_properties(${module_TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
  list(TRANSFORM module_HEADERS PREPEND ${PROJECT_SOURCE_DIR}/include/sparsewire/)
  if(module_HEADERS)
    target_sources(sparsewire PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include FILES ${module_HEADERS})
  endif()
  set_property(GLOBAL APPEND PROPERTY SPARSEWIRE_MODULES ${name})
endfunction()

# sparsewire_program(<name> [DEPENDS <module>...])
#
# apps/<name>/ may include every public header, its own files, and the internal headers of the modules it DEPENDS on.
function(sparsewire_program name)
  cmake_parse_arguments(PARSE_ARGV 1 program "" "" "DEPENDS")
  sparsewire_add_row(apps/${name} "" "${program_DEPENDS}")
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
    if(NOT module IN_LIST above)
      message(FATAL_ERROR "${folder} depends on ${module}, which is no module above it: the table has a strict order")
    endif()
  endforeach()
  foreach(list headers depends)
    list(TRANSFORM ${list} REPLACE "(.+)" "\"\\1\"")
    list(JOIN ${list} ", " ${list})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY SPARSEWIRE_MODULE_ROWS
               "  \"${folder}\": {\"headers\": [${headers}], \"depends\": [${depends}]}")
endfunction()
