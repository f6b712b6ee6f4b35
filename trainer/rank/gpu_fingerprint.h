// Additional fingerprint entries that must agree between ranks that compute on GPUs.
#ifndef MUSTER_TRAINER_RANK_GPU_FINGERPRINT_H_
#define MUSTER_TRAINER_RANK_GPU_FINGERPRINT_H_

#include <string>
#include <vector>

#include "proto/muster/v1/worker.pb.h"

namespace muster::rank {

// Returns entries of JoinInfo.fingerprint: "NCCL" and "driver" with their versions, and "NCCL
// variables" with the NCCL_* variables of `environment` (null-terminated array of NAME=value) that
// determine how ranks communicate. Per-node settings are excluded: NCCL_SOCKET_IFNAME, NCCL_HOSTID
// and NCCL_DEBUG*. Empty values have no entry.
std::vector<v1::FingerprintEntry> GpuFingerprint(const std::string& nccl_version,
                                                 const std::string& driver_version,
                                                 const char* const* environment);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_GPU_FINGERPRINT_H_
