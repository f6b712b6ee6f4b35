// The promises of this node about ranks of other nodes, kept on disk.
//
// A voucher extends a lease while the coordinator is unreachable: until it ends, the ranks may run.
// A ban is a promise to the coordinator not to vouch for them again. The coordinator declares the
// ranks of a command job lost only after bans of half of the fence set, so a worker that forgot a
// promise could let two generations of a job run at once. docs/design/liveness.md has the rules.
#ifndef MUSTER_WORKER_AGENT_LEASE_PROMISES_H_
#define MUSTER_WORKER_AGENT_LEASE_PROMISES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/time.h"
#include "proto/muster/v1/worker.pb.h"
#include "proto/muster/v1/worker_files.pb.h"

namespace muster::agent {

// All times are on CLOCK_BOOTTIME. Not thread-safe.
class Promises {
 public:
  // Writes the record so that it survives a crash of the machine.
  using Store = std::function<absl::Status(const v1::PromiseRecord&)>;

  // `record` is what an earlier worker stored; empty if there is none. `boot_id` is that of the
  // running machine: times that were taken before it started do not count.
  Promises(v1::PromiseRecord record, std::string boot_id, SteadyTime now, Store store);

  const v1::FenceSet& fence_set() const { return record_.fence_set(); }
  // Errors: those of the store; the worker then has no set.
  absl::Status SetFenceSet(const v1::FenceSet& set);

  // Vouches for the generations of the question that have a lease and are not banned, each until
  // its lease has passed. Returns them; empty without a fence set, or if the store fails.
  std::vector<v1::LeasedGeneration> Vouch(const v1::LeaseQuestion& question, SteadyTime now);

  // Replaces the bans. Errors: those of the store.
  absl::StatusOr<v1::BansKept> Ban(const v1::Bans& bans, SteadyTime now);

 private:
  // Changes the record by `change` and stores it; on failure, the record stays as it was.
  absl::Status Update(const std::function<void(v1::PromiseRecord&)>& change);

  v1::PromiseRecord record_;
  const Store store_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_PROMISES_H_
