// Configuration of NCCL communicators.
#ifndef MUSTER_COLLECTIVES_NCCL_NCCL_CONFIG_H_
#define MUSTER_COLLECTIVES_NCCL_NCCL_CONFIG_H_

#include "collectives/nccl/nccl_abi.h"

namespace muster::collectives {

// Maximum number of blocks (CTAs) per collective kernel; each occupies a multiprocessor that
// concurrent computation cannot use.
inline constexpr int kNcclMaxCtas = 16;

// Returns a non-blocking configuration with at most `max_ctas` blocks unless the environment sets
// NCCL_MAX_CTAS or NCCL_MIN_CTAS; everything else is NCCL's default. Any thread.
NcclConfig MakeNcclConfig(int max_ctas = kNcclMaxCtas);

}  // namespace muster::collectives

#endif  // MUSTER_COLLECTIVES_NCCL_NCCL_CONFIG_H_
