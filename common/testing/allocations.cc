#include "common/testing/allocations.h"

#include <dlfcn.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};

// `caller`: an address within who asks.
void Count(const void* caller) {
  Dl_info info{};
  const bool by_onednn = dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
                         std::strstr(info.dli_fname, "libdnnl") != nullptr;
  if (!by_onednn) allocations.fetch_add(1, std::memory_order_relaxed);
}

void* OrAbort(void* memory) {
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) {
  Count(__builtin_return_address(0));
  return OrAbort(std::malloc(std::max<size_t>(bytes, 1)));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  Count(__builtin_return_address(0));
  return OrAbort(memalign(static_cast<size_t>(alignment), std::max<size_t>(bytes, 1)));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" void* aligned_alloc(size_t alignment, size_t bytes) {
  Count(__builtin_return_address(0));
  return memalign(alignment, bytes);
}

namespace muster {

int64_t Allocations() { return allocations.load(std::memory_order_relaxed); }

}  // namespace muster
