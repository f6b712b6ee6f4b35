// Which of a node's free GPUs a job gets: those that are close to each other.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_DEVICE_CHOICE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_DEVICE_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "google/protobuf/repeated_field.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::core {

// Of what lies between two GPUs, in GB/s of about what it carries one way: NVLinks by their number,
// directly or by switches, else the PCI path. 0 where nothing is known. Only comparisons of sums of
// it mean anything.
uint32_t Closeness(const v1::Device& one, const v1::Device& other);

// Remembers its choices, as the nodes of a cluster are alike.
class DeviceChooser {
 public:
  // `count` of `free`, indices of a node's `slots` in ascending order, and so the result. The worst
  // pair is as close as can be, since a ring is as fast as its worst link; of such sets, in this
  // order, the one whose pairs are the closest together, the one that leaves the closest pairs to
  // those who come later, the one with the lowest indices. Where there are too many sets to look at
  // all, sets grown from each GPU by the closest next are compared. Slots without a device are all
  // alike, and so are those of null.
  std::vector<uint32_t> Choose(const google::protobuf::RepeatedPtrField<v1::Slot>* slots,
                               const std::vector<uint32_t>& free, size_t count);

 private:
  // By count and closenesses: positions in `free`.
  std::unordered_map<std::string, std::vector<size_t>> choices_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_DEVICE_CHOICE_H_
