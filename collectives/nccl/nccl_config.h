// What communicators are told of themselves.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_CONFIG_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_CONFIG_H_

#include "collectives/nccl/nccl_abi.h"

namespace muster::collectives {

// The most blocks of a collective's kernel, each of which takes one of the GPU's multiprocessors
// from what is computed meanwhile.
inline constexpr int kNcclMaxCtas = 16;

// Non-blocking, with at most kNcclMaxCtas blocks unless the environment has NCCL_MAX_CTAS or
// NCCL_MIN_CTAS; all else is NCCL's choice. Any thread.
NcclConfig MakeNcclConfig();

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_CONFIG_H_
