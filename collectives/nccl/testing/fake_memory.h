// Memory allocated by the fake NCCL, and its registrations.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_MEMORY_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_MEMORY_H_

#include <cstddef>

#include "collectives/nccl/testing/fake_comm.h"

namespace fake_nccl {

// Returns null if there is no memory. All functions are thread-safe.
void* AllocateMemory(size_t bytes);
// Freeing memory that AllocateMemory did not return, or that is still registered, is misuse.
void FreeMemory(void* data);

// Returns a handle. A range that is not within one allocation of AllocateMemory is misuse.
void* RegisterMemory(NcclComm comm, const void* data, size_t bytes);
// A handle that does not belong to the communicator is misuse.
void DeregisterMemory(NcclComm comm, void* handle);
bool KnowsMemory(NcclComm comm);
void ForgetMemory(NcclComm comm);

}  // namespace fake_nccl

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_MEMORY_H_
