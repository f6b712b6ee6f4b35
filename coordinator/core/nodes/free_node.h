// A node's offer of slots to placement.
#ifndef MUSTER_COORDINATOR_CORE_NODES_FREE_NODE_H_
#define MUSTER_COORDINATOR_CORE_NODES_FREE_NODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "google/protobuf/repeated_field.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::core {

// The slots of a node that count: those free now, those that would be free if no job ran, or all,
// including those that are out of use because they are unhealthy or their node is cordoned.
enum class Offers { kNow, kVacant, kAll };

// A node that can take ranks, as placement sees it.
struct FreeNode {
  std::string name;
  std::string rack;  // its topology label
  std::string address;
  uint64_t incarnation = 0;
  bool last_resort = false;          // used only after all others: its last launch failed
  bool preferred = false;            // used before all others: the job prefers it
  uint32_t slot_count = 0;           // number of slots of the requested kind
  std::vector<uint32_t> free_slots;  // the free ones among them, ascending
  // The node's slots; owned by the node. Null: all slots are equivalent.
  const google::protobuf::RepeatedPtrField<v1::Slot>* slots = nullptr;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_FREE_NODE_H_
