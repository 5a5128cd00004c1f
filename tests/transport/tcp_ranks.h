// Ranks with TCP between them, as threads of this process.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "patience.h"
#include "sparsewire/tcp_transport.h"

namespace sparsewire {

inline const std::string kTcpToken("a secret\0of all", 15);

inline std::vector<TcpListener> listeners(int ranks, const std::string& address = "127.0.0.1") {
  std::vector<TcpListener> result;
  for (int r = 0; r < ranks; ++r) result.emplace_back(address);
  return result;
}

inline std::vector<std::string> addresses_of(const std::vector<TcpListener>& listeners) {
  std::vector<std::string> addresses;
  for (const TcpListener& listener : listeners) addresses.push_back(listener.address());
  return addresses;
}

// As run_on_threads().
inline void run_over_tcp(int ranks, const std::function<void(Transport&)>& body,
                         std::chrono::milliseconds deadline = patient(std::chrono::seconds(60)),
                         const std::string& address = "127.0.0.1") {
  std::vector<TcpListener> all = listeners(ranks, address);
  const std::vector<std::string> addresses = addresses_of(all);
  std::mutex mutex;
  std::exception_ptr first;
  const auto run = [&](int rank) {
    std::unique_ptr<Transport> transport;
    try {
      transport =
          make_tcp_transport(std::move(all[static_cast<std::size_t>(rank)]), rank, addresses, kTcpToken, deadline);
      body(*transport);
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      if (transport) transport->fail(error.what());
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r) threads.emplace_back(run, r);
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace sparsewire
