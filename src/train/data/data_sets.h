// The data sets that sparsewire knows: where they are found, what they must contain, where they officially come from.
//
// They lie in folders of one folder, which --data-dir or SPARSEWIRE_DATA names. Nothing is ever downloaded.
#pragma once

#include <string>
#include <string_view>

#include "train/data/images.h"
#include "train/data/pixels.h"
#include "train/data/text.h"

namespace sparsewire::train {

// The folder of all data sets: `given` (--data-dir) unless it is empty, else SPARSEWIRE_DATA. Throws UsageError if
// there is neither.
std::string data_folder(const std::string& given);

// "mnist", "fashion-mnist" or "cifar10", from the folder of that name. Throws UsageError.
ImageData read_images(std::string_view name, const std::string& data_folder);
// REQUIRES: a name that read_images() takes.
const Normalisation& normalisation_of(std::string_view name);

// tinyshakespeare/input.txt. Throws UsageError.
TextData read_tinyshakespeare(const std::string& data_folder);

}  // namespace sparsewire::train
