// The variable of a command job's `env` that requests a hosted c10d store.
#ifndef MUSTER_SPEC_HOSTED_STORE_H_
#define MUSTER_SPEC_HOSTED_STORE_H_

#include "proto/muster/v1/job.pb.h"

namespace muster::spec {

inline constexpr char kHostedStoreVariable[] = "MUSTER_HOSTED_STORE";

// Whether the worker of node rank 0 serves PyTorch's TCPStore for the ranks.
inline bool RequestsHostedStore(const v1::JobSpec& spec) {
  const auto variable = spec.env().find(kHostedStoreVariable);
  return !spec.has_train() && variable != spec.env().end() && variable->second == "1";
}

}  // namespace muster::spec

#endif  // MUSTER_SPEC_HOSTED_STORE_H_
