// What a node offers to placement.
#ifndef MUSTER_COORDINATOR_CORE_NODES_FREE_NODE_H_
#define MUSTER_COORDINATOR_CORE_NODES_FREE_NODE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "google/protobuf/repeated_field.h"
#include "proto/muster/v1/node.pb.h"

namespace muster::core {

// A node that takes ranks, as placement sees it.
struct FreeNode {
  std::string name;
  std::string rack;  // its topology label
  std::string address;
  uint64_t incarnation = 0;
  uint32_t slot_count = 0;           // of the kind asked for
  std::vector<uint32_t> free_slots;  // of these, ascending
  // As the node offers them; the node outlives this. Null: all are alike.
  const google::protobuf::RepeatedPtrField<v1::Slot>* slots = nullptr;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_NODES_FREE_NODE_H_
