// The state of a rendezvous: the ranks that have joined or were lost, the keys that they exchange,
// and the calls that wait for these. It does no network I/O: the worker's agent and rank 0 of a
// process group expose it over gRPC.
#ifndef MUSTER_COMMON_RENDEZVOUS_RENDEZVOUS_STATE_H_
#define MUSTER_COMMON_RENDEZVOUS_RENDEZVOUS_STATE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/rendezvous/write_once_store.h"

namespace muster {

// A rank's presence:
//
//   expected --Join--> joined --Leave--> left
//                         \--Remove without Leave--> lost, which fails the rendezvous
//
// Thread-safe. Listeners and Done callbacks run one at a time, in order and without a lock held;
// they may call the object again and may destroy it. A method runs the callbacks that it causes
// before it returns, unless another thread is running callbacks already: then that thread runs
// these, too.
class RendezvousState {
 public:
  // Receives the events of the rendezvous for one rank. May still be called after Remove.
  class Listener {
   public:
    virtual ~Listener() = default;
    // All ranks have joined. `node_of_rank` holds the node of each rank, in rank order; nodes are
    // numbered from 0 in the order of their lowest rank.
    virtual void OnComplete(const std::vector<uint32_t>& node_of_rank) = 0;
    virtual void OnLost(uint32_t rank) = 0;
    // The rendezvous was closed; this is the last call.
    virtual void OnClose(const absl::Status& status) = 0;
  };

  // The event that a call waits for.
  struct Wait {
    enum class For : uint8_t { kWorld, kKey, kWrite, kBarrier };
    For what = For::kWorld;
    std::string name = "";  // name of the key or the barrier
    uint64_t sequence = 0;  // number of the barrier among those of its name

    friend bool operator<(const Wait& a, const Wait& b) {
      return std::tie(a.what, a.name, a.sequence) < std::tie(b.what, b.name, b.sequence);
    }
    friend bool operator==(const Wait& a, const Wait& b) = default;
  };
  using WaitId = uint64_t;  // chosen by the caller; never reused
  // Called exactly once; for kKey, with the key's value.
  using Done = std::function<void(absl::StatusOr<std::string>)>;

  explicit RendezvousState(std::set<uint32_t> ranks);
  RendezvousState(const RendezvousState&) = delete;
  RendezvousState& operator=(const RendezvousState&) = delete;

  // ---- Membership.
  // Ranks with the same non-empty `host` share a node. `listener` may be null. Errors:
  // INVALID_ARGUMENT (unexpected rank, or a host longer than limits::kLabelBytes), ALREADY_EXISTS
  // (the rank has joined before), failure(). Remove must not be called for a Join that failed.
  absl::Status Join(uint32_t rank, const std::string& host, std::shared_ptr<Listener> listener);
  // Announces a regular exit: a later Remove is not a loss.
  void Leave(uint32_t rank);
  // The rank's connection has ended. Without a preceding Leave, the rank is lost: OnLost of all
  // listeners is called, and all waits fail with UNAVAILABLE.
  void Remove(uint32_t rank);
  // The lowest ranks that have not joined, at most `most`.
  std::vector<uint32_t> Missing(size_t most) const;
  // Calls OnClose of all listeners, with OK if all ranks had joined and otherwise with
  // DEADLINE_EXCEEDED naming the missing ranks; then calls Fail(reason).
  void Close(const absl::Status& reason);

  // ---- Keys.
  // Writes the key and answers the calls that wait for it. OK if the key already holds this value;
  // errors of WriteOnceStore::Put.
  absl::Status Put(const std::string& key, const std::string& value);
  std::optional<std::string> Find(const std::string& key) const;
  // Calls `done` with the value as soon as the key exists. Errors: those of Await, and
  // INVALID_ARGUMENT as WriteOnceStore::CheckKey.
  void Get(WaitId id, const std::string& key, Done done);

  // ---- Waits.
  // Registers a waiting call. Returns false if it is rejected; `done` then receives the error:
  // failure(), or RESOURCE_EXHAUSTED (too many waiting calls for the number of ranks).
  bool Await(WaitId id, const Wait& wait, Done done);
  // Answers all calls that wait for `wait`.
  void Answer(const Wait& wait, const absl::StatusOr<std::string>& answer);
  // Answers one call; no effect if it has been answered.
  void AnswerOne(WaitId id, const absl::StatusOr<std::string>& answer);
  // Answers all waiting calls with `status`, which must not be OK, and all later calls with the
  // first failure.
  void Fail(const absl::Status& status);
  // OK until Fail, Close or the loss of a rank.
  absl::Status failure() const;
  bool IsAwaited(const Wait& wait) const;
  std::optional<Wait> WaitOf(WaitId id) const;
  std::set<Wait> Waits() const;

 private:
  enum class Presence : uint8_t { kExpected, kJoined, kLeft, kLost };
  struct Member {
    Presence presence = Presence::kExpected;
    std::string host;
    std::shared_ptr<Listener> listener;
  };
  struct Call {
    Wait wait;
    Done done;
  };
  // Callbacks to run without the lock. Shared ownership: a callback may destroy the state.
  struct Callbacks {
    absl::Mutex mutex;
    std::deque<std::function<void()>> queue ABSL_GUARDED_BY(mutex);
    bool running ABSL_GUARDED_BY(mutex) = false;

    void Add(std::function<void()> callback);
    void Run();
  };

  std::vector<uint32_t> MissingLocked(size_t most) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<uint32_t> NodeOfRank() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AwaitLocked(WaitId id, const Wait& wait, Done done) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AnswerLocked(const Wait& wait, const absl::StatusOr<std::string>& answer)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues a call to the listener of each rank that has one.
  void NotifyAll(const std::function<void(Listener&)>& notify)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void QueueAnswer(Done done, const absl::StatusOr<std::string>& answer) const;
  void RunCallbacks() const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::shared_ptr<Callbacks> callbacks_ = std::make_shared<Callbacks>();
  mutable absl::Mutex mutex_;
  std::map<uint32_t, Member> members_ ABSL_GUARDED_BY(mutex_);
  size_t joined_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  WriteOnceStore keys_ ABSL_GUARDED_BY(mutex_);
  std::map<WaitId, Call> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster

#endif  // MUSTER_COMMON_RENDEZVOUS_RENDEZVOUS_STATE_H_
