// The distinct requests of the queued jobs, of which a long queue has few, and the verdict on each:
// whether jobs with this request fit on the cluster.
#ifndef MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_SHAPE_TABLE_H_
#define MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_SHAPE_TABLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Not thread-safe. Copyable, for forecasts.
class ShapeTable {
 public:
  // Jobs with equal requests.
  struct Shape {
    uint64_t serial = 0;  // never used again, unlike the index of the shape
    v1::Resources resources;
    uint32_t slots = 1;
    uint32_t references = 0;             // calls of Acquire without a call of Remove
    absl::flat_hash_set<uint32_t> jobs;  // indices in the queue
    std::string unplaceable;             // why the jobs do not fit; empty: they fit, or no verdict
  };

  // Returns the index of the shape of these resources, to which Insert then adds one job. The
  // shape and its verdict are kept until Remove has been called as often as Acquire.
  uint32_t Acquire(const v1::Resources& resources, uint32_t slots);
  void Insert(uint32_t shape, uint32_t job) { shapes_[shape].jobs.insert(job); }
  void Remove(uint32_t shape, uint32_t job);

  const Shape& operator[](uint32_t shape) const { return shapes_[shape]; }
  // Whether it is not known yet if jobs of this shape fit.
  bool IsUnchecked(uint32_t shape) const { return unchecked_.count(shape) != 0; }

  // Calls `check` with one job of each shape that has no verdict yet. `check` returns the reason
  // why such jobs do not fit, empty if they fit, or nullopt if that is not known yet. Returns the
  // jobs whose reason has changed.
  std::vector<uint32_t> Check(absl::FunctionRef<std::optional<std::string>(uint32_t job)> check);
  // Makes Check check all shapes again; until then, their verdicts stay.
  void Uncheck();

 private:
  std::vector<Shape> shapes_;
  std::vector<uint32_t> free_;
  std::map<std::string, uint32_t> index_;  // by serialized v1::Resources
  uint64_t next_serial_ = 1;
  std::set<uint32_t> unchecked_;  // shapes without a verdict that still holds
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_SCHEDULER_PLAN_SHAPE_TABLE_H_
