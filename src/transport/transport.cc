// The collectives, made of messages between two ranks.
#include "sparsewire/transport.h"

#include "transport/arguments.h"

namespace sparsewire {

void Transport::all_gather(std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all) {
  all.resize(static_cast<std::size_t>(size()));
  out_.clear();
  in_.clear();
  for (int r = 0; r < size(); ++r) {
    out_.push_back({r, mine});
    in_.push_back({r, &all[static_cast<std::size_t>(r)]});
  }
  send_receive(out_, in_);
}

void Transport::all_to_all(std::span<const std::vector<std::byte>> to, std::vector<std::vector<std::byte>>& from) {
  check_message_count(to.size(), size());
  from.resize(static_cast<std::size_t>(size()));
  out_.clear();
  in_.clear();
  for (int r = 0; r < size(); ++r) {
    out_.push_back({r, to[static_cast<std::size_t>(r)]});
    in_.push_back({r, &from[static_cast<std::size_t>(r)]});
  }
  send_receive(out_, in_);
}

void Transport::gather(int root, std::span<const std::byte> mine, std::vector<std::vector<std::byte>>& all) {
  check_root("gather", root, size());
  all.resize(rank() == root ? static_cast<std::size_t>(size()) : 0);
  out_.assign(1, {root, mine});
  in_.clear();
  for (std::size_t r = 0; r < all.size(); ++r) in_.push_back({static_cast<int>(r), &all[r]});
  send_receive(out_, in_);
}

void Transport::broadcast(int root, std::vector<std::byte>& bytes) {
  check_root("broadcast", root, size());
  out_.clear();
  in_.clear();
  if (rank() == root) {
    for (int r = 0; r < size(); ++r) {
      if (r != root) out_.push_back({r, bytes});
    }
  } else {
    in_.push_back({root, &bytes});
  }
  send_receive(out_, in_);
}

void Transport::barrier() { all_gather({}, empty_); }

}  // namespace sparsewire
