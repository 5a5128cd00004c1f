# Writes the page of reports as C++: an array of bytes, so that any text is good. Run by the build:
#
#   cmake -DFOLDER=lab/report/page -DOUTPUT=page_files.cc -P embed.cmake
include(${FOLDER}/files.cmake)

# The text of the files, one after the other.
function(join result)
  set(all "")
  foreach(file IN LISTS ARGN)
    file(READ ${FOLDER}/${file} text)
    string(APPEND all "${text}\n")  # a script may lack the end of its last line
  endforeach()
  set(${result} "${all}" PARENT_SCOPE)
endfunction()

# 32 bytes, given in hexadecimal, in base64.
function(base64 result hex)
  set(letters ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(REGEX MATCHALL "......" groups ${hex}00)
  set(all "")
  foreach(group IN LISTS groups)
    foreach(shift 18 12 6 0)
      math(EXPR at "(0x${group} >> ${shift}) & 63")
      string(SUBSTRING ${letters} ${at} 1 letter)
      string(APPEND all ${letter})
    endforeach()
  endforeach()
  string(REGEX REPLACE ".$" "=" all ${all})  # the byte that was added
  set(${result} ${all} PARENT_SCOPE)
endfunction()

join(page page.html)
join(style page.css)
join(script ${report_scripts})
set(script "(function () {\n\"use strict\";\n${script}})();\n")
# The page allows this script and no other.
string(SHA256 hash "${script}")
base64(hash ${hash})
foreach(place STYLE SCRIPT HASH)
  string(TOLOWER ${place} piece)
  string(REPLACE "{{${place}}}" "${${piece}}" page "${page}")
endforeach()

string(HEX "${page}" bytes)
string(REGEX REPLACE "(................................)" "\\1\n" bytes ${bytes})  # lines of 16 bytes
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes ${bytes})
file(WRITE ${OUTPUT}.new "// Written by lab/report/embed.cmake from the files in lab/report/page/.
#include <string_view>

#include \"report/page.h\"

namespace sparsewire::report {

const unsigned char kPageHtmlBytes[] = {\n${bytes} 0};
const std::string_view kPageHtml(reinterpret_cast<const char*>(kPageHtmlBytes), sizeof(kPageHtmlBytes) - 1);

}  // namespace sparsewire::report
")
file(RENAME ${OUTPUT}.new ${OUTPUT})
