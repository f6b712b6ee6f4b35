#include "common/testing/allocations.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};

void Count() { allocations.fetch_add(1, std::memory_order_relaxed); }

void* OrAbort(void* memory) {
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) {
  Count();
  return OrAbort(std::malloc(std::max<size_t>(bytes, 1)));
}
// std::stable_sort allocates its buffer with this one and frees it with the plain delete.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  Count();
  return std::malloc(std::max<size_t>(bytes, 1));
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  Count();
  return OrAbort(memalign(static_cast<size_t>(alignment), std::max<size_t>(bytes, 1)));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

extern "C" void* aligned_alloc(size_t alignment, size_t bytes) {
  Count();
  return memalign(alignment, bytes);
}

namespace muster {

int64_t Allocations() { return allocations.load(std::memory_order_relaxed); }

}  // namespace muster
