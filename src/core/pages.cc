#include "sparsewire/support/pages.h"

#include <sys/mman.h>

namespace sparsewire {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;
constexpr std::size_t kCacheLine = 64;

std::align_val_t alignment_for(std::size_t bytes) {
  return static_cast<std::align_val_t>(bytes >= 2 * kLargePage ? kLargePage : kCacheLine);
}

}  // namespace

void* allocate_pages(std::size_t bytes) {
  void* const pages = ::operator new(bytes, alignment_for(bytes));
#ifdef MADV_HUGEPAGE  // Linux; only a hint, so its result does not matter
  if (bytes >= 2 * kLargePage) madvise(pages, bytes / kLargePage * kLargePage, MADV_HUGEPAGE);
#endif
  return pages;
}

void free_pages(void* pages, std::size_t bytes) noexcept { ::operator delete(pages, alignment_for(bytes)); }

}  // namespace sparsewire
