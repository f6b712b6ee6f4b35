// Counts the process's allocations, for tests that assert that code does not allocate.
//
// This library replaces operator new and aligned_alloc in every test that depends on it.
#ifndef MUSTER_COMMON_TESTING_ALLOCATIONS_H_
#define MUSTER_COMMON_TESTING_ALLOCATIONS_H_

#include <cstdint>

namespace muster {

// The number of allocations so far, by all threads.
int64_t Allocations();

}  // namespace muster

#endif  // MUSTER_COMMON_TESTING_ALLOCATIONS_H_
