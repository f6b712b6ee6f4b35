// The places of jobs in one line of the queue: a balanced tree that also counts the jobs, and adds
// up the slots, before a place.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_ORDER_TREE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_ORDER_TREE_H_

#include <cstdint>
#include <ext/pb_ds/assoc_container.hpp>
#include <ext/pb_ds/tree_policy.hpp>
#include <functional>
#include <tuple>

#include "absl/functional/function_ref.h"
#include "common/time/time.h"

namespace muster::core {

// The place of a job among those of its owner and class.
struct QueuePlace {
  int32_t minus_priority = 0;
  bool has_not_run = true;
  SteadyTime waiting_since;
  uint64_t sequence = 0;
  uint32_t job = 0;    // index in the queue
  uint32_t slots = 1;  // not part of the order

  friend bool operator<(const QueuePlace& a, const QueuePlace& b) {
    return std::tie(a.minus_priority, a.has_not_run, a.waiting_since, a.sequence, a.job) <
           std::tie(b.minus_priority, b.has_not_run, b.waiting_since, b.sequence, b.job);
  }
  friend bool operator==(const QueuePlace& a, const QueuePlace& b) { return !(a < b) && !(b < a); }
};

struct PlaceTotals {
  uint32_t jobs = 0;
  uint64_t slots = 0;
};

// Keeps the totals of each subtree, and queries them. Part of the tree's type: see the policies of
// __gnu_pbds.
template <typename ConstNode, typename Node, typename Compare, typename Allocator>
class PlaceTotalsPolicy {
 public:
  using metadata_type = PlaceTotals;

  // The totals of the places before `place`.
  PlaceTotals Before(const QueuePlace& place) const {
    PlaceTotals before;
    ConstNode node = node_begin();
    while (node != node_end()) {
      if (**node < place) {
        Include(node, before);
        node = node.get_r_child();
      } else {
        node = node.get_l_child();
      }
    }
    return before;
  }
  // The number of places for which `is_before(place, slots of the places before it)` holds. It must
  // hold for the first ones and for no others.
  uint32_t CountWhile(absl::FunctionRef<bool(const QueuePlace&, uint64_t)> is_before) const {
    PlaceTotals before;
    ConstNode node = node_begin();
    while (node != node_end()) {
      const ConstNode left = node.get_l_child();
      const uint64_t left_slots = left == node_end() ? 0 : left.get_metadata().slots;
      if (is_before(**node, before.slots + left_slots)) {
        Include(node, before);
        node = node.get_r_child();
      } else {
        node = left;
      }
    }
    return before.jobs;
  }

 protected:
  void operator()(Node node, ConstNode end) const {
    PlaceTotals totals{1, (*node)->slots};
    for (const ConstNode child : {ConstNode(node.get_l_child()), ConstNode(node.get_r_child())}) {
      if (child == end) continue;
      totals.jobs += child.get_metadata().jobs;
      totals.slots += child.get_metadata().slots;
    }
    const_cast<PlaceTotals&>(node.get_metadata()) = totals;
  }

 private:
  // Adds the node and its left subtree.
  void Include(const ConstNode& node, PlaceTotals& totals) const {
    totals.jobs += 1;
    totals.slots += (**node).slots;
    const ConstNode left = node.get_l_child();
    if (left == node_end()) return;
    totals.jobs += left.get_metadata().jobs;
    totals.slots += left.get_metadata().slots;
  }

  virtual ConstNode node_begin() const = 0;
  virtual ConstNode node_end() const = 0;
};

using OrderTree = __gnu_pbds::tree<QueuePlace, __gnu_pbds::null_type, std::less<QueuePlace>,
                                   __gnu_pbds::rb_tree_tag, PlaceTotalsPolicy>;

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_ORDER_TREE_H_
