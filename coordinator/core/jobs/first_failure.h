// The failures of a generation, and which of them came first: the cause, not its consequences.
//
// When a rank dies, its peers see their connections reset, and often report that before the death
// itself is reported. A failure that names a peer is therefore a probable consequence: it counts as
// the cause only if neither the exit of the peer nor the loss of its node is reported within a
// while.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_FIRST_FAILURE_H_
#define MUSTER_COORDINATOR_CORE_JOBS_FIRST_FAILURE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Returns whether a rank that exited like this has failed.
bool IsFailure(const v1::ExitInfo& exit);

// The exit status in shell convention: the rank's exit code, 128 + n for signal n, or 1 when there
// is neither. For a rank that reported a failure and was stopped before it could exit, the exit
// code that matches its report.
int ExitCodeOf(const v1::FirstFailure& failure);

// RankFailed, RankKilled or OutOfMemory; LaunchFailed for a rank that never started.
std::string ReasonOf(const v1::ExitInfo& exit, bool started);

// A one-sentence description: "rank 1 on node-2 exited with code 3: no such file: /data/x".
std::string Describe(const v1::ExitInfo& exit, uint32_t rank, const std::string& node,
                     bool started);

// The failures of one generation in order of arrival. Not thread-safe.
class FailureLog {
 public:
  void Add(v1::FirstFailure failure, bool consequence);
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  const v1::FirstFailure& first() const { return entries_.front().failure; }

  // Returns the cause if it is certain, or the best guess when `final`; null if there is none
  // (yet). `is_accused` returns whether a peer reported the loss of the failure's rank, or of a
  // rank on its node.
  const v1::FirstFailure* FindCause(const std::function<bool(const v1::FirstFailure&)>& is_accused,
                                    bool final) const;

 private:
  struct Entry {
    v1::FirstFailure failure;
    bool consequence;
  };
  std::vector<Entry> entries_;  // in order of arrival
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_FIRST_FAILURE_H_
