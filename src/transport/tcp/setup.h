// How the ranks of a TCP transport find each other: every rank connects to all lower ones and accepts the higher ones.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/tcp/peer.h"

namespace sparsewire::tcp {

// Collective. The connections with each rank, those with `rank` itself unused. Throws TransportError, and then the
// ranks that are connected already are told.
std::vector<Connections> connect_all(const Socket& listener, int rank, std::span<const std::string> addresses,
                                     std::string_view token, std::chrono::milliseconds deadline);

}  // namespace sparsewire::tcp
