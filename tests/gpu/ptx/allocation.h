// One allocation of device memory.
#ifndef MUSTER_TESTS_GPU_PTX_ALLOCATION_H_
#define MUSTER_TESTS_GPU_PTX_ALLOCATION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/gpu/ptx/shadow.h"

namespace muster::ptx {

struct Allocation {
  Allocation(uint64_t number, bool host, uintptr_t begin, size_t bytes)
      : number(number), host(host), begin(begin), bytes(bytes), shadow(bytes) {}

  const uint64_t number;  // counts allocations from 1
  const bool host;        // registered host memory
  const uintptr_t begin;
  const size_t bytes;
  std::atomic<bool> freed = false;
  Shadow shadow;
};

}  // namespace muster::ptx

#endif  // MUSTER_TESTS_GPU_PTX_ALLOCATION_H_
