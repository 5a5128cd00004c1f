// A transport over a star: rank 0 has a link to every other rank, and there are no other links.
#pragma once

#include "exchange/tampering.h"

namespace sparsewire {

// Throws CheckFailed if a message goes between two ranks neither of which is 0. A rank needs no link to itself.
class StarTransport final : public WrappedTransport {
 public:
  using WrappedTransport::WrappedTransport;

  void send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    for (const Outgoing& message : out) check(message.rank);
    for (const Incoming& message : in) check(message.rank);
    WrappedTransport::send_receive(out, in);
  }
  void all_reduce_sum(std::span<float> /*numbers*/) override { refuse("an all-reduce"); }
  void all_reduce_sum_bf16(std::span<std::uint16_t> /*numbers*/) override { refuse("an all-reduce"); }

 private:
  void check(int other) const {
    if (rank() != 0 && other != 0 && other != rank()) refuse("a message with rank " + std::to_string(other));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw bodies::CheckFailed("rank " + std::to_string(rank()) + " has no link for " + what);
  }
};

}  // namespace sparsewire
