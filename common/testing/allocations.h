// For tests of what allocates nothing: counts the process's allocations.
//
// A test that depends on this library gets operator new and aligned_alloc from it.
#ifndef MUSTER_COMMON_TESTING_ALLOCATIONS_H_
#define MUSTER_COMMON_TESTING_ALLOCATIONS_H_

#include <cstdint>

namespace muster {

// So far, of all threads.
int64_t Allocations();

}  // namespace muster

#endif  // MUSTER_COMMON_TESTING_ALLOCATIONS_H_
