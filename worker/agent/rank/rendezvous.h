// What the ranks of one generation on this node wait for: the world, keys, barriers. Folds their
// calls into one message each to the coordinator and answers all of them from one reply.
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
#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

// A rank's call that waits; drawn by the rank service, never used twice.
using CallId = uint64_t;

// On the loop's thread only. Every call is answered exactly once.
class Rendezvous {
 public:
  // With the value of a key; empty for the other calls.
  using Done = std::function<void(absl::StatusOr<std::string>)>;

  struct Outside {
    std::function<void(v1::WorkerMessage)>
        send;  // dropped without a session: Resend makes up for it
    std::function<void(absl::Duration, std::function<void()>)> run_after;
  };

  Rendezvous(std::string job_id, uint64_t generation, std::set<uint32_t> local_ranks,
             Outside outside);
  // Calls that still wait are answered with UNAVAILABLE: the rank repeats them to the next worker.
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

  // Answers a call that still waits with `status`; for a deadline, with whom it waits for as the
  // message.
  void End(CallId id, const absl::Status& status);
  void Expire(CallId id);
  // Answers all that wait and all that come later.
  void EndAll(const absl::Status& status);

  // ---- The coordinator's words.
  void OnWorld();
  void OnKeyValue(const v1::KeyValue& message);
  void OnReleaseBarrier(const v1::ReleaseBarrier& message);
  // Named to a caller whose deadline ends.
  void OnWaitNotice(const v1::Wait& wait);

  // Says again, to a coordinator that may have lost its memory, what waits for an answer.
  void Resend();
  // The newest barrier of each group that ranks here were released from.
  std::vector<v1::BarrierId> PassedBarriers() const;

 private:
  using BarrierKey = std::pair<std::string, uint64_t>;
  struct Call {
    enum class Kind { kJoin, kPut, kGet, kBarrier };
    Kind kind = Kind::kJoin;
    uint32_t rank = 0;
    std::string key;    // of kPut and kGet
    std::string value;  // of kPut
    BarrierKey barrier;
    Done done;
  };
  struct Arrivals {
    std::set<uint32_t> ranks;
    bool timer_set = false;
  };

  // False when the call was refused, and answered.
  bool Add(CallId id, Call call);
  template <typename Predicate>
  void AnswerWhere(Predicate predicate, const absl::StatusOr<std::string>& answer);
  absl::Status CheckKey(const std::string& key, const std::string& value) const;
  std::string WaitsFor(const Call& call) const;
  void SendPut(const std::string& key, const std::string& value);
  void SendGet(const std::string& key);
  void SendArrivals(const BarrierKey& barrier);
  void OnFoldTimer(const BarrierKey& barrier);

  const std::string job_id_;
  const uint64_t generation_;
  const std::set<uint32_t> local_ranks_;
  const Outside outside_;

  std::map<CallId, Call> calls_;
  std::optional<absl::Status> over_;
  bool world_known_ = false;
  std::set<uint32_t> joined_;
  std::map<std::string, std::string> put_;    // by local ranks, accepted or not yet
  std::map<std::string, std::string> known_;  // as the coordinator has them
  size_t value_bytes_ = 0;
  std::map<BarrierKey, Arrivals> arrivals_;
  std::map<std::string, uint64_t> passed_;
  // The coordinator's newest word of what the generation waits for: it sees all nodes.
  std::optional<v1::Wait> notice_;
  // For timers that outlive this object.
  std::shared_ptr<Rendezvous*> self_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_RENDEZVOUS_H_
