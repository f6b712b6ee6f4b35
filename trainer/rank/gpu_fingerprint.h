// What ranks that compute on GPUs have to have in common beside what all ranks have.
#ifndef MUSTER_TRAINER_RANK_GPU_FINGERPRINT_H_
#define MUSTER_TRAINER_RANK_GPU_FINGERPRINT_H_

#include <string>
#include <vector>

#include "proto/muster/v1/worker.pb.h"

namespace muster::rank {

// Entries of JoinInfo.fingerprint: "NCCL" and "driver", by version; "NCCL variables", those NCCL_*
// of `environment` (NAME=value, up to a null) that decide how ranks talk to each other. Which
// interface a node has, what it calls itself and what NCCL logs are its own affair:
// NCCL_SOCKET_IFNAME, NCCL_HOSTID and NCCL_DEBUG* are left out. What is empty has no entry.
std::vector<v1::FingerprintEntry> GpuFingerprint(const std::string& nccl_version,
                                                 const std::string& driver_version,
                                                 const char* const* environment);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_GPU_FINGERPRINT_H_
