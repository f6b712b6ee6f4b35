// The messages that the rendezvous sends to workers.
#ifndef MUSTER_COORDINATOR_CORE_RENDEZVOUS_MESSAGES_H_
#define MUSTER_COORDINATOR_CORE_RENDEZVOUS_MESSAGES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/core/rendezvous/agreement.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core {

// The world as one node needs it: its own ranks, and the size and addresses of the whole.
v1::CoordinatorMessage MakeWorld(const Job& job, uint32_t node_rank, const Agreement& agreement);
// The answer to a put or a get: the key's value, or an error.
v1::CoordinatorMessage MakeKeyValue(const std::string& job, uint64_t generation,
                                    const std::string& key, absl::string_view value,
                                    const absl::Status& status);
// Releases the ranks that wait at the barrier; an error `status` means that it was aborted.
v1::CoordinatorMessage MakeRelease(const std::string& job, uint64_t generation,
                                   const v1::BarrierId& barrier, const absl::Status& status);

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_RENDEZVOUS_MESSAGES_H_
