// The binary version of CIFAR-10: records of a label and 1024 red, 1024 green and 1024 blue bytes (Krizhevsky, 2009).
#pragma once

#include <string_view>

#include "data/images.h"

namespace sparsewire::train {

// A set for parse_cifar10() to append to.
ImageSet no_cifar10_images();

// Appends the records of a file. `name` is for messages. Throws UsageError if it does not consist of whole records or
// if a label is 10 or more.
void parse_cifar10(std::string_view bytes, std::string_view name, ImageSet& images);

}  // namespace sparsewire::train
