# Writes the page of reports as C++: arrays of bytes, so that any text is good. Run by the build:
#
#   cmake -DFOLDER=src/report/page -DOUTPUT=page_files.cc -P embed.cmake
include(${FOLDER}/files.cmake)

function(embed name)
  set(all "")
  foreach(file IN LISTS ARGN)
    file(READ ${FOLDER}/${file} bytes HEX)
    string(APPEND all ${bytes} 0a)  # a script may lack the end of its last line
  endforeach()
  string(REGEX REPLACE "(................................)" "\\1\n" all "${all}")  # lines of 16 bytes
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," all "${all}")
  string(APPEND code "const unsigned char k${name}Bytes[] = {\n${all} 0};\n"
    "const std::string_view k${name}(reinterpret_cast<const char*>(k${name}Bytes), sizeof(k${name}Bytes) - 1);\n\n")
  set(code "${code}" PARENT_SCOPE)
endfunction()

set(code "")
embed(PageHtml page.html)
embed(PageStyle page.css)
embed(PageScript ${report_scripts})
file(WRITE ${OUTPUT}.new "// Written by cmake/embed.cmake from the files in src/report/page/.
#include <string_view>

#include \"report/page.h\"

namespace sparsewire::report {

${code}}  // namespace sparsewire::report
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
