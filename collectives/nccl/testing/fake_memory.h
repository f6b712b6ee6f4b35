// The memory that the fake NCCL gives out, and which communicator knows which of it.
#ifndef MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_MEMORY_H_
#define MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_MEMORY_H_

#include <cstddef>

#include "collectives/nccl/testing/fake_comm.h"

namespace fake_nccl {

// Null where there is none. Thread-safe, as all here is.
void* AllocateMemory(size_t bytes);
// Memory that is not AllocateMemory's, or that a communicator still knows, is misuse.
void FreeMemory(void* data);

// A handle. A range that is not of one piece of AllocateMemory's is misuse.
void* RegisterMemory(NcclComm comm, const void* data, size_t bytes);
// A handle that is not the communicator's is misuse.
void DeregisterMemory(NcclComm comm, void* handle);
bool KnowsMemory(NcclComm comm);
void ForgetMemory(NcclComm comm);

}  // namespace fake_nccl

#endif  // MUSTER_COLLECTIVES_NCCL_TESTING_FAKE_MEMORY_H_
