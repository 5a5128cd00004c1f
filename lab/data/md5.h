// MD5 (RFC 1321), because the checksums of the data sets were published so. It shows damage, not forgery.
#pragma once

#include <string>
#include <string_view>

namespace sparsewire::train {

// In hexadecimal: md5("abc") == "900150983cd24fb0d6963f7d28e17f72".
std::string md5(std::string_view bytes);

}  // namespace sparsewire::train
