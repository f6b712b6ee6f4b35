// The state of a rendezvous: which ranks have joined, which were lost, the keys that they exchange
// and the calls that wait for any of these. Without network: the worker's agent and rank 0 of a
// process group put it behind gRPC.
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

// A rank's presence
//
//   expected --Join--> joined --Leave--> left
//                         \--Remove without Leave--> lost, which fails the rendezvous
//
// Thread-safe. Listeners and the Done of a wait are called without a lock, one at a time and in
// order; they may call the object again and may destroy it. Usually the call that causes them makes
// them before it returns; while another thread is making such calls, that thread makes these too.
class RendezvousState {
 public:
  // Follows one rank's membership. A call may still arrive after Remove.
  class Listener {
   public:
    virtual ~Listener() = default;
    // All ranks have joined. `node_of_rank`, in the order of ranks, numbers hosts from 0 in the
    // order of their first rank.
    virtual void OnComplete(const std::vector<uint32_t>& node_of_rank) = 0;
    virtual void OnLost(uint32_t rank) = 0;
    // The last call: the rendezvous was closed.
    virtual void OnClose(const absl::Status& status) = 0;
  };

  // What a call waits for. Barriers of one name are numbered.
  struct Wait {
    enum class For : uint8_t { kWorld, kKey, kWrite, kBarrier };
    For what = For::kWorld;
    std::string name = "";  // of the key or the barrier
    uint64_t sequence = 0;

    friend bool operator<(const Wait& a, const Wait& b) {
      return std::tie(a.what, a.name, a.sequence) < std::tie(b.what, b.name, b.sequence);
    }
    friend bool operator==(const Wait& a, const Wait& b) = default;
  };
  using WaitId = uint64_t;  // chosen by the caller; never used twice
  // Called exactly once, with the value of a key for kKey.
  using Done = std::function<void(absl::StatusOr<std::string>)>;

  explicit RendezvousState(std::set<uint32_t> ranks);
  RendezvousState(const RendezvousState&) = delete;
  RendezvousState& operator=(const RendezvousState&) = delete;

  // ---- Membership.
  // Ranks with the same non-empty `host` share a node. `listener` may be null. INVALID_ARGUMENT: an
  // unexpected rank or a host of more than limits::kLabelBytes; ALREADY_EXISTS: it has joined
  // before; the failure. After an error there is nothing to remove.
  absl::Status Join(uint32_t rank, const std::string& host, std::shared_ptr<Listener> listener);
  // Makes a later Remove regular.
  void Leave(uint32_t rank);
  // The rank's connection has ended. Without Leave, the rank is lost: listeners hear of it, and all
  // waits fail with UNAVAILABLE.
  void Remove(uint32_t rank);
  // The lowest ranks that have not joined, at most `most`.
  std::vector<uint32_t> Missing(size_t most) const;
  // Ends all listeners, with OK if all ranks had joined and otherwise with DEADLINE_EXCEEDED naming
  // the missing ones, and fails with `reason`.
  void Close(const absl::Status& reason);

  // ---- Keys.
  // Answers the waits for the key. Errors of WriteOnceStore::Put; OK for a repetition.
  absl::Status Put(const std::string& key, const std::string& value);
  std::optional<std::string> Find(const std::string& key) const;
  // Answered with the value as soon as there is one. Errors of Await, and INVALID_ARGUMENT.
  void Get(WaitId id, const std::string& key, Done done);

  // ---- Waits.
  // False when refused, and answered, with the failure or with RESOURCE_EXHAUSTED: too many waits
  // for the number of ranks.
  bool Await(WaitId id, const Wait& wait, Done done);
  // Answers every call that waits for it.
  void Answer(const Wait& wait, const absl::StatusOr<std::string>& answer);
  // Answers one call; nothing when it has been answered.
  void AnswerOne(WaitId id, const absl::StatusOr<std::string>& answer);
  // Answers all calls that wait and all later ones with `status`, which is not OK. The first
  // failure counts.
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
  // Calls to make without the lock. Shared, as one of them may destroy the state.
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
  // Queues a call to each listener that is still there.
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
