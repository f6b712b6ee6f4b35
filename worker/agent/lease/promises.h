// The promises of this node about ranks of other nodes, kept on disk.
//
// A voucher extends a lease while the coordinator is unreachable: until it ends, the ranks may run.
// A ban is a promise to the coordinator not to vouch for them again. The coordinator declares the
// ranks of a command job lost only after bans of half of the fence set, so a worker that forgot a
// promise could let two generations of a job run at once. docs/design/liveness.md has the rules.
#ifndef MUSTER_WORKER_AGENT_LEASE_PROMISES_H_
#define MUSTER_WORKER_AGENT_LEASE_PROMISES_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/time/time.h"
#include "proto/muster/v1/worker.pb.h"
#include "proto/muster/v1/worker_files.pb.h"
#include "worker/agent/lease/lease_keeper.h"

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
  // its lease has passed. Returns them; empty if this node does not use the fence set of the
  // question, or if the store fails.
  std::vector<v1::LeasedGeneration> Vouch(const v1::LeaseQuestion& question, SteadyTime now);

  // Replaces the bans. Errors: those of the store.
  absl::StatusOr<v1::BansKept> Ban(const v1::Bans& bans, SteadyTime now);

 private:
  // Changes the record by `change` and stores it; on failure, the record stays as it was.
  absl::Status Update(const std::function<void(v1::PromiseRecord&)>& change);

  v1::PromiseRecord record_;
  const Store store_;
};

// All times are on CLOCK_BOOTTIME. Not thread-safe.
class LeaseWitness {
 public:
  struct Outside {
    std::function<SteadyTime()> now;
    // The address of the coordinator that last acknowledged this worker.
    std::function<std::string()> address;
    // Sends the question to the coordinator, whose answer becomes that of the peer.
    std::function<void(const v1::LeaseQuestion&)> forward;
    // Connects to that address, and calls `done` once: with the time at which the
    // connection was begun if it was refused.
    std::function<void(std::function<void(std::optional<SteadyTime>)> done)> probe;
    std::function<void(uint64_t question, v1::PeerAnswer)> answer;
  };

  // Keeper and promises must outlive the witness.
  LeaseWitness(std::string node_name, Outside outside, LeaseKeeper& keeper, Promises& promises)
      : node_name_(std::move(node_name)),
        outside_(std::move(outside)),
        keeper_(keeper),
        promises_(promises) {}

  // `fresh`: the age of the newest acknowledgement up to which the coordinator counts as reachable.
  void Ask(const v1::LeaseQuestion& question, absl::Duration fresh);

 private:
  v1::PeerAnswer Vouch(const v1::LeaseQuestion& question);

  const std::string node_name_;
  const Outside outside_;
  LeaseKeeper& keeper_;
  Promises& promises_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_LEASE_PROMISES_H_
