// What went wrong in a generation, and which of it was first: the cause rather than its
// consequences.
//
// When a rank dies, its peers see their connections reset, and often say so before its own end has
// been reported. A failure that names a peer is therefore a probable consequence. It waits a while
// for the exit of the peer, or the loss of its node, before it is taken for the cause itself.
#ifndef MUSTER_COORDINATOR_CORE_JOBS_FIRST_FAILURE_H_
#define MUSTER_COORDINATOR_CORE_JOBS_FIRST_FAILURE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::core {

// Whether a rank that ended like this has failed.
bool IsFailure(const v1::ExitInfo& exit);

// The exit status that a process would have: its own code, 128 + n for a signal, 1 where there is
// none. A rank that said why it failed and was then stopped before it could exit counts as having
// exited with the matching code.
int ExitCodeOf(const v1::FirstFailure& failure);

// RankFailed, RankKilled, OutOfMemory; LaunchFailed for one that never started.
std::string ReasonOf(const v1::ExitInfo& exit, bool started);

// One sentence: "rank 1 on node-2 exited with code 3: no such file: /data/x".
std::string Describe(const v1::ExitInfo& exit, uint32_t rank, const std::string& node,
                     bool started);

// Whether two generations ended in the same way, as far as that says anything about the job: nodes
// are lost for reasons of their own.
bool IsSameFailure(const v1::FirstFailure& a, const v1::FirstFailure& b);

// Not thread-safe.
class FailureLog {
 public:
  void Add(v1::FirstFailure failure, bool consequence);
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  const v1::FirstFailure& first() const { return entries_.front().failure; }

  // The cause, if it is certain; with `final` the best guess. Null if there is none (yet).
  // `is_accused` tells whether a peer says that it lost the rank, or a rank of the node, that the
  // failure is of.
  const v1::FirstFailure* FindCause(const std::function<bool(const v1::FirstFailure&)>& is_accused,
                                    bool final) const;

 private:
  struct Entry {
    v1::FirstFailure failure;
    bool consequence;
  };
  std::vector<Entry> entries_;  // as they arrived
};

}  // namespace muster::core

#endif  // MUSTER_COORDINATOR_CORE_JOBS_FIRST_FAILURE_H_
