// The cluster as the planner sees it: how many slots each node has for each distinct request, and
// when the jobs that run on it free theirs. Kept up to date from the nodes that have changed.
//
// Not thread-safe. Copyable, for forecasts; the nodes must outlive the copies.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_CLUSTER_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_CLUSTER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/ids.h"
#include "common/time/time.h"
#include "coordinator/core/nodes/node_table.h"
#include "coordinator/core/scheduler/placement/demand.h"
#include "coordinator/core/scheduler/plan/queue_order.h"
#include "coordinator/core/scheduler/plan/shape_table.h"

namespace muster::core {

// A job with a living generation.
struct RunningJob {
  JobId id;
  Generation generation;
  std::string owner;
  JobClass job_class = JobClass::kNormal;
  SteadyTime started;
  // When its slots are free at the latest; infinite: unknown.
  SteadyTime end = SteadyTime::Infinite();
  absl::Duration grace;
  bool stopping = false;
  bool overdue = false;   // it started ahead of others; only critical jobs take its place
  uint32_t slots = 0;     // that no other job can use
  uint64_t sequence = 0;  // order of submission
  std::vector<NodeName> nodes;
};

class Cluster {
 public:
  static constexpr uint32_t kNoJob = ~uint32_t{0};
  // Slots of one node that a job has.
  struct Use {
    uint32_t job = kNoJob;  // kNoJob: unknown, for example ranks that are left over
    uint32_t kind = 0;
    uint32_t slots = 0;
  };
  struct NodeState {
    const Node* node = nullptr;
    std::vector<Use> uses;
    uint32_t slots = 0;                // 0 if it is lost
    std::vector<std::string> devices;  // UUIDs
  };
  // The supply of all nodes for one request and kind of slot.
  struct Row {
    uint32_t kind = 0;
    std::vector<Supply> supplies;
    uint64_t free_units = 0;    // that the nodes contribute now
    uint64_t usable_units = 0;  // if no job ran
    // For jobs that take slots by node: the number of nodes by slots and units that each would
    // contribute if no job ran.
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> sizes;
  };
  struct Cells {
    uint64_t serial = 0;  // of the shape
    Demand demand;
    v1::Resources resources;
    std::vector<Row> rows;  // by kind, in order of preference
  };

  // ---- Running jobs
  void SetRunning(RunningJob job);
  void RemoveRunning(const JobId& id);
  const RunningJob* FindRunning(const JobId& id) const;
  const RunningJob& running(uint32_t job) const { return running_[job]; }
  // Whether a job of the owner and class runs that was submitted before this place.
  bool RunsEarlier(const std::string& owner, JobClass job_class, uint64_t sequence) const;
  // The jobs with known ends, earliest first.
  const std::set<std::pair<SteadyTime, uint32_t>>& ends() const { return ends_; }
  // The jobs that run now, by index; those that are unused have no id.
  const std::vector<RunningJob>& all_running() const { return running_; }

  // ---- Nodes
  // Reads all nodes, after some were added or removed.
  void Rebuild(const NodeMap& nodes);
  // Reads these nodes again, and updates the supply for each of these shapes.
  void Refresh(const std::set<NodeName>& names, const ShapeTable& shapes);
  size_t node_count() const { return nodes_.size(); }
  const NodeState& node(uint32_t index) const { return nodes_[index]; }
  // The index of a node; node_count() if it is unknown.
  uint32_t IndexOf(const NodeName& name) const;

  // The slots of all nodes that are not lost.
  uint64_t slot_count() const { return slot_count_; }
  // Whether several workers of one machine offer the same GPU.
  bool shares_devices() const { return shared_devices_ > 0; }

  // The supply for a shape, which is computed on the first call.
  const Cells& CellsOf(uint32_t shape_index, const ShapeTable::Shape& shape);
  // The row with which the shape fits now; null if it does not fit.
  static const Row* FindFitting(const Cells& cells);
  // The slots that the job takes if it runs on the smallest nodes that suffice.
  static uint32_t LeastSlotsOf(const Cells& cells);
  // Whether the shape would fit if no job ran.
  static bool FitsVacant(const Cells& cells);

 private:
  uint32_t KindOf(const std::string& kind);
  // Reads the node's state and slots again.
  void Read(NodeState& state);
  // Adds the node's devices, or removes them.
  void AddDevices(const NodeState& state);
  void RemoveDevices(const NodeState& state);
  void ReadUses(NodeState& state);
  static void SetSupply(const Cells& cells, Row& row, uint32_t node, Supply supply);

  std::map<std::string, uint32_t> kinds_;
  std::vector<NodeState> nodes_;
  uint64_t slot_count_ = 0;
  absl::flat_hash_map<std::string, uint32_t> devices_;  // slots by UUID
  uint32_t shared_devices_ = 0;                         // UUIDs that several slots share
  absl::flat_hash_map<std::string, uint32_t> node_index_;
  std::deque<Cells> cells_;  // by shape; those that a decision refers to stay where they are
  std::vector<RunningJob> running_;
  std::vector<uint32_t> free_running_;
  absl::flat_hash_map<std::string, uint32_t> running_index_;
  std::set<std::pair<SteadyTime, uint32_t>> ends_;
  // The places in the order of submission, by owner and class.
  std::map<std::pair<std::string, JobClass>, std::set<uint64_t>> running_sequences_;
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_CLUSTER_H_
