// A thread pool that the caller creates and passes in: the library has no global threads.
#pragma once

#include <memory>
#include <type_traits>

namespace sparsewire {

// A fixed number of threads that run one function in parallel.
//
// A process that fork() makes has none of them: there the caller does the work of all, and the Pool can be destroyed.
//
// THREADS: one caller at a time.
class Pool {
 public:
  // The calling thread counts as one of the `threads`. Throws UsageError unless 1 <= threads <= 1024.
  explicit Pool(int threads = 1);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int size() const noexcept;

  // Calls work(0) .. work(size() - 1), each on its own thread, and returns when all calls have returned.
  // REQUIRES: work does not throw. COST: no allocation.
  template <class Work>
  void run(Work&& work) {
    using Plain = std::remove_reference_t<Work>;
    run_each([](void* context, int thread) noexcept { (*static_cast<Plain*>(context))(thread); },
             const_cast<std::remove_const_t<Plain>*>(&work));
  }

 private:
  using Each = void (*)(void* context, int thread) noexcept;
  void run_each(Each each, void* context);

  struct Threads;
  std::unique_ptr<Threads> threads_;
};

}  // namespace sparsewire
