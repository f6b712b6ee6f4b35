// All nodes, as tiles of the status page's grid. A tile is rendered at most once per snapshot, and
// pages receive only those that have changed. Thread-safe.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_NODE_INDEX_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_NODE_INDEX_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "coordinator/service/loop/snapshot.h"

namespace muster::service {

class NodeIndex {
 public:
  // Takes over the nodes of a snapshot; does nothing for the one of the last call.
  void Update(std::shared_ptr<const Snapshot> snapshot);

  struct Changes {
    uint64_t version = 0;           // for the next call
    std::vector<std::string> rows;  // JSON of the new and changed nodes, by name
    std::vector<std::string> gone;  // names of removed nodes
    bool empty() const { return rows.empty() && gone.empty(); }
  };
  // The changes since a call that returned `version`; 0: all nodes.
  Changes Since(uint64_t version) const;

 private:
  struct Tile {
    std::string json;
    uint64_t version = 0;
    bool gone = false;
  };

  mutable absl::Mutex mutex_;
  std::shared_ptr<const Snapshot> snapshot_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Tile> tiles_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
};

// {"n": name, "s": state in lower case, "d": a character per slot: "." free, "#" busy, "!"
// unusable, "~" becoming usable}. Other fields, if they apply: "c" cordoned, "l" leaving, "x" in
// conflict, "f" number of failed launches.
std::string NodeTileJson(const v1::Node& node);

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_NODE_INDEX_H_
