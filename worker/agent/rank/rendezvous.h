// The rendezvous of one generation's ranks on this node: merges their calls into single messages to
// the coordinator, and answers all of them from one reply.
#ifndef MUSTER_WORKER_AGENT_RANK_RENDEZVOUS_H_
#define MUSTER_WORKER_AGENT_RANK_RENDEZVOUS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/rendezvous/rendezvous_state.h"
#include "common/rendezvous/write_once_store.h"
#include "proto/muster/v1/worker.pb.h"
#include "proto/muster/v1/worker_files.pb.h"

namespace muster::agent {

// Identifies a rank's waiting call; assigned by the rank service and never reused.
using CallId = RendezvousState::WaitId;

// Must be used on the loop's thread. Every call is answered exactly once.
class Rendezvous {
 public:
  // Called with the value for Put and Get, empty for other calls.
  using Done = RendezvousState::Done;

  struct Outside {
    // Messages are dropped while there is no session; Resend repeats them.
    std::function<void(v1::WorkerMessage)> send;
    std::function<void(absl::Duration, std::function<void()>)> run_after;
    // Adds to the record that Restore receives in the next worker, or replaces it by `record`.
    // Null: there is no next worker.
    std::function<void(const v1::RendezvousRecord& record, bool replace)> store;
  };

  Rendezvous(std::string job_id, uint64_t generation, std::set<uint32_t> local_ranks,
             Outside outside);
  // Restores what an earlier worker of the generation stored. Call it before anything else.
  void Restore(const v1::RendezvousRecord& record);
  // Answers waiting calls with UNAVAILABLE: the rank repeats them to the next worker.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // ---- A rank's calls.
  // Answered when the world is known.
  void Join(uint32_t rank, CallId id, Done done);
  // Answered when the coordinator has the key. ALREADY_EXISTS, INVALID_ARGUMENT,
  // RESOURCE_EXHAUSTED.
  void Put(uint32_t rank, const std::string& key, const std::string& value, CallId id, Done done);
  void Get(uint32_t rank, const std::string& key, CallId id, Done done);
  void Arrive(uint32_t rank, const v1::BarrierId& barrier, CallId id, Done done);

  // Answers a waiting call with `status`.
  void End(CallId id, const absl::Status& status) { state_.AnswerOne(id, status); }
  // Answers a waiting call with DEADLINE_EXCEEDED, naming the awaited key, barrier or ranks.
  void Expire(CallId id);
  // Answers all waiting and all later calls.
  void EndAll(const absl::Status& status) { state_.Fail(status); }

  // ---- Messages of the coordinator.
  void OnWorld();
  void OnKeyValue(const v1::KeyValue& message);
  void OnReleaseBarrier(const v1::ReleaseBarrier& message);
  // Stores the ranks to name to a caller whose deadline expires.
  void OnWaitNotice(const v1::Wait& wait) { notice_ = wait; }

  // Repeats all unanswered calls, for a coordinator that may have lost its state.
  void Resend();
  // The newest barrier of each group that ranks of this node have passed.
  std::vector<v1::BarrierId> PassedBarriers() const;

 private:
  using Wait = RendezvousState::Wait;
  using BarrierKey = std::pair<std::string, uint64_t>;
  struct Arrivals {
    std::set<uint32_t> ranks;
    bool timer_set = false;
  };

  std::string WaitsFor(const Wait& wait) const;
  // The missing ranks of this node, or "ranks of other nodes".
  std::string Describe(const std::vector<uint32_t>& missing) const;
  void SendPut(const std::string& key, const std::string& value);
  void SendGet(const std::string& key);
  void SendArrivals(const BarrierKey& barrier);
  void OnFoldTimer(const BarrierKey& barrier);
  void StorePut(const std::string& key, const std::string& value);
  void StorePassed(const std::string& group, uint64_t sequence);
  // Adds to the stored record, or replaces it once most of it is out of date.
  void Store(const v1::RendezvousRecord& addition);

  const std::string job_id_;
  const uint64_t generation_;
  const std::set<uint32_t> local_ranks_;
  const Outside outside_;

  RendezvousState
      state_;  // state of the local ranks; contains the keys that the coordinator has accepted
  bool world_known_ = false;
  WriteOnceStore proposed_;  // values put by local ranks, accepted or pending
  std::map<BarrierKey, Arrivals> arrivals_;
  std::map<std::string, uint64_t> passed_;
  size_t stored_entries_ = 0;  // in the stored record, outdated ones included
  // The coordinator's latest notice of the generation's wait, on all nodes.
  std::optional<v1::Wait> notice_;
  // For timers that outlive this object.
  std::shared_ptr<Rendezvous*> self_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_RENDEZVOUS_H_
