// all_reduce_sum, made of messages: what a transport has that has no better one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sparsewire/errors.h"
#include "sparsewire/transport.h"

namespace sparsewire {

// A message cannot be read, and only this rank knows it.
class DamagedMessage : public TransportError {
 public:
  DamagedMessage(int reader, int sender);
};

// THREADS: as its transport. It keeps its buffers, so that nothing is allocated in each call.
class AllReduce {
 public:
  explicit AllReduce(Transport& transport) : transport_(transport) {}

  // Throws the same TransportError on all ranks if they did not pass the same numbers, or if one of them could not read
  // what another one sent; DamagedMessage on one that could not read a sum.
  void sum(WritableNumbers numbers);
  // Collective: throws unless all ranks pass the same type and number of entries.
  void check_same(const WritableNumbers& numbers) { introduce(numbers, {}); }

 private:
  void introduce(const WritableNumbers& numbers, std::span<const std::uint32_t> checksums);
  template <class Number>
  void sum_blocks(const WritableNumbers& numbers);
  template <class Number>
  void sum_block(std::span<Number> numbers, std::size_t block);
  template <class Number>
  void sum_own_slice(std::span<Number> own, std::size_t block);
  template <class Number>
  void take_sums(std::span<Number> numbers);
  std::uint32_t announced(std::size_t sender, std::size_t block) const;

  template <class Sent, class Size>
  void exchange(Sent sent, Size size_of);
  std::size_t size() const { return static_cast<std::size_t>(transport_.size()); }
  std::size_t me() const { return static_cast<std::size_t>(transport_.rank()); }

  Transport& transport_;
  std::vector<Transport::Outgoing> out_;
  std::vector<Transport::Incoming> in_;
  std::vector<std::uint32_t> checksums_;
  std::vector<std::byte> introduction_;                // what this rank says before it sends numbers
  std::vector<std::vector<std::byte>> introductions_;  // of all ranks
  std::vector<std::vector<std::byte>> received_;       // from each rank
  std::vector<std::byte> answer_;                      // the sum of this rank's slice, and its tail
};

}  // namespace sparsewire
