// Answers the questions of peers about their leases with the evidence that this worker has.
#ifndef MUSTER_WORKER_AGENT_LEASE_LEASE_WITNESS_H_
#define MUSTER_WORKER_AGENT_LEASE_LEASE_WITNESS_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/time.h"
#include "proto/muster/v1/worker.pb.h"
#include "worker/agent/lease/lease_keeper.h"
#include "worker/agent/lease/promises.h"

namespace muster::agent {

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

#endif  // MUSTER_WORKER_AGENT_LEASE_LEASE_WITNESS_H_
