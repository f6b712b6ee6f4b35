// Chooses which of a node's free GPUs a job gets: those with the fastest links between them.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_DEVICE_CHOICE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_DEVICE_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "google/protobuf/repeated_field.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::core {

// An estimate of the one-way bandwidth between two GPUs, in GB/s: NVLinks by their number, direct
// or through switches, otherwise the PCI path. 0 when nothing is known. Only useful to compare
// sums.
uint32_t Closeness(const v1::Device& one, const v1::Device& other);

// Chooses GPUs, and caches the choices, because the nodes of a cluster are alike.
class DeviceChooser {
 public:
  // Returns `count` of `free`, which holds indices of a node's `slots`; both are in ascending
  // order. The first criterion is the closeness of the worst pair, since a ring is as fast as its
  // slowest link. Ties are broken, in this order, by the total closeness of the pairs in the set,
  // by the closeness left to later jobs, and by the lowest indices. When there are too many sets to
  // try them all, sets that are grown greedily from each GPU are compared. All slots without a
  // device, or all slots when `slots` is null, are equivalent.
  std::vector<uint32_t> Choose(const google::protobuf::RepeatedPtrField<v1::Slot>* slots,
                               const std::vector<uint32_t>& free, size_t count);

 private:
  // Cached positions in `free`, keyed by count and closeness matrix.
  std::unordered_map<std::string, std::vector<size_t>> choices_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLACEMENT_DEVICE_CHOICE_H_
