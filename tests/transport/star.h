// A transport that is a star: rank 0 talks to all others, and these only to rank 0.
#pragma once

#include <fmt/core.h>

#include <stdexcept>

#include "sparsewire/transport.h"

namespace sparsewire {

// A message between two ranks other than 0.
class NotAStar : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Passes everything on to another transport. Throws NotAStar, and fails on all ranks, when a message is to go between
// two different ranks neither of which is 0. Its all_reduce_sum sends such messages, so it throws if there are more
// than two ranks.
class StarTransport : public Transport {
 public:
  explicit StarTransport(Transport& inner) : inner_(inner) {}

  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  void fail(std::string_view why) noexcept override { inner_.fail(why); }

 protected:
  void do_send_receive(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    for (const Outgoing& message : out) check(message.rank);
    for (const Incoming& message : in) check(message.rank);
    inner_.send_receive(out, in);
  }

 private:
  void check(int other) const {
    if (rank() == 0 || other == 0 || other == rank()) return;
    throw NotAStar(fmt::format("a message between rank {} and rank {} does not go over rank 0", rank(), other));
  }

  Transport& inner_;
};

}  // namespace sparsewire
