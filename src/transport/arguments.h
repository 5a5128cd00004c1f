// Checks the arguments of a call before anything is sent, for all engines: a wrong call must not read outside of the
// caller's memory, nor leave a message behind that a later call would take for its own.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "sparsewire/transport.h"

namespace sparsewire {

// These throw UsageError with the value and the allowed range.
void check_root(const char* call, int root, int size);
void check_message_count(std::size_t count, int size);  // of all_to_all
void check_messages(int rank, int size, std::span<const Transport::Outgoing> out,
                    std::span<const Transport::Incoming> in);

void check_numbers(const WritableNumbers& numbers);  // of all_reduce_sum

// What a TransportError says after rank `rank` called fail(why): the cause is cut after 1,000 bytes.
std::string failure_text(int rank, std::string_view why);

}  // namespace sparsewire
