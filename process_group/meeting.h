// What rank 0 keeps for all ranks of a process group: who has come, who was lost, and the keys by
// which groups find one another. No gRPC in here.
#ifndef MUSTER_PROCESS_GROUP_MEETING_H_
#define MUSTER_PROCESS_GROUP_MEETING_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace muster {

struct MeetingMember {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  std::string run;
  std::string host;  // equal for ranks that share memory; empty: for none
};

// A rank's presence
//
//   expected --Join--> here --Leave--> left
//                        \--Remove without Leave--> lost: everybody is told, and the meeting fails
//
// Thread-safe.
class Meeting {
 public:
  // Called with the meeting's lock held: must neither block nor call the meeting.
  class Listener {
   public:
    virtual ~Listener() = default;
    // Everybody is here. Once, first of all.
    virtual void Complete(const std::vector<uint32_t>& node_of_rank) = 0;
    virtual void Lost(uint32_t rank) = 0;
    // Nothing comes after it.
    virtual void End(const absl::Status& status) = 0;
  };
  using Answer = std::function<void(absl::StatusOr<std::string>)>;

  Meeting(uint32_t world_size, std::string run);

  // `listener` is told until Remove, which has to come. INVALID_ARGUMENT, ALREADY_EXISTS,
  // FAILED_PRECONDITION, UNAVAILABLE as in process_group.proto; then there is nothing to remove.
  absl::Status Join(const MeetingMember& member, Listener* listener);
  void Leave(uint32_t rank);
  void Remove(uint32_t rank, const Listener* listener);
  // Those that have never come, the lowest ones, so many at most.
  std::vector<uint32_t> Missing(size_t most) const;

  // ALREADY_EXISTS, INVALID_ARGUMENT, RESOURCE_EXHAUSTED.
  absl::Status Put(const std::string& key, const std::string& value);
  // `answer` is called once, without the lock, perhaps before Get returns: with the value when
  // there is one, RESOURCE_EXHAUSTED, UNAVAILABLE when a rank is lost or the meeting closes,
  // CANCELLED after Cancel. -> what Cancel takes.
  uint64_t Get(const std::string& key, Answer answer);
  void Cancel(uint64_t id);

  // Ends everybody: OK if all had come, else DEADLINE_EXCEEDED that names the missing. No Get is
  // left.
  void Close();

 private:
  enum class Presence : uint8_t { kExpected, kHere, kLeft, kLost };
  struct Waiter {
    std::string key;
    Answer answer;
  };

  std::vector<uint32_t> MissingLocked(size_t most) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<uint32_t> NodeOfRank() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::vector<Waiter> TakeWaiters() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const uint32_t world_size_;
  const std::string run_;

  mutable absl::Mutex mutex_;
  std::vector<Presence> presence_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> hosts_ ABSL_GUARDED_BY(mutex_);
  uint32_t came_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, Listener*> listeners_ ABSL_GUARDED_BY(mutex_);  // by rank
  std::map<std::string, std::string> values_ ABSL_GUARDED_BY(mutex_);
  size_t value_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint64_t, Waiter> waiters_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_waiter_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace muster

#endif  // MUSTER_PROCESS_GROUP_MEETING_H_
