#include "collectives/loopback.h"

#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "collectives/operation.h"
#include "collectives/peer_status.h"
#include "collectives/queued_communicator.h"
#include "collectives/reduce.h"
#include "common/status.h"
#include "common/time/deadline.h"
#include "common/time/steady_cond_var.h"

namespace muster::collectives {
namespace {

// State shared by the threads of a group.
struct Group {
  struct Member {
    bool joined = false;
    bool gone = false;
    uint32_t lost_rank = 0;  // job rank that a departed member reports as lost, normally itself
    uint64_t arrivals = 0;
    Operation operation;
  };
  struct Message {
    const void* data = nullptr;
    size_t bytes = 0;
    bool received = false;
  };

  explicit Group(size_t size) : members(size) {}

  absl::Mutex mutex;
  SteadyCondVar changed;
  std::vector<Member> members ABSL_GUARDED_BY(mutex);
  // Keyed by sender and receiver.
  std::map<std::pair<uint32_t, uint32_t>, std::deque<std::shared_ptr<Message>>> messages
      ABSL_GUARDED_BY(mutex);
};

// Process-wide registry of groups: the only place where ranks that are threads can find each other.
class Groups {
 public:
  static std::shared_ptr<Group> Find(const std::string& id, size_t size) {
    static auto* const groups = new Groups;
    absl::MutexLock lock(&groups->mutex_);
    std::shared_ptr<Group> group = groups->by_id_[id].lock();
    if (group == nullptr) {
      for (auto it = groups->by_id_.begin(); it != groups->by_id_.end();) {
        it = it->second.expired() ? groups->by_id_.erase(it) : std::next(it);
      }
      group = std::make_shared<Group>(size);
      groups->by_id_[id] = group;
    }
    return group;
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::weak_ptr<Group>> by_id_ ABSL_GUARDED_BY(mutex_);
};

const std::byte* Part(const void* data, size_t index, size_t bytes) {
  return static_cast<const std::byte*>(data) + index * bytes;
}

class LoopbackCommunicator final : public QueuedCommunicator {
 public:
  LoopbackCommunicator(const GroupOptions& options, std::shared_ptr<Group> group)
      : QueuedCommunicator(options.name, options.rank, options.members),
        timeout_(options.timeout),
        group_(std::move(group)) {}

  ~LoopbackCommunicator() override {
    Close();
    Leave(job_rank(rank()));
  }

  absl::string_view backend() const override { return "loopback"; }

  absl::Status Join(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(group_->mutex) {
    absl::MutexLock lock(&group_->mutex);
    if (group_->members.size() != size() || group_->members[rank()].joined) {
      return absl::InvalidArgumentError(
          absl::StrCat(name(), ": rank ", rank(), " of ", size(), " does not match the group of ",
                       group_->members.size(), " ranks or has already joined"));
    }
    group_->members[rank()].joined = true;
    group_->changed.SignalAll();
    return WaitForAll(timeout, [](const Group::Member& member) { return member.joined; });
  }

 protected:
  absl::Status Execute(const Operation& operation) override {
    if (operation.kind == Operation::Kind::kSend) return SendMessage(operation);
    if (operation.kind == Operation::Kind::kReceive) return ReceiveMessage(operation);
    std::vector<Operation> calls;
    RETURN_IF_ERROR(Meet(operation, &calls));
    for (const Operation& call : calls) {
      if (!(SignatureOf(call) == SignatureOf(operation))) {
        return absl::InvalidArgumentError(
            absl::StrCat("ranks call different operations: ", Describe(SignatureOf(operation)),
                         " and ", Describe(SignatureOf(call))));
      }
    }
    // Reduce into a temporary first: peers may still read a buffer that is reduced in place.
    ASSIGN_OR_RETURN(const std::vector<std::byte> result, Result(operation, calls));
    RETURN_IF_ERROR(Meet(operation, &calls));
    if (!result.empty()) std::memcpy(operation.recv, result.data(), result.size());
    return absl::OkStatus();
  }

  void Interrupt(const absl::Status& failure) override {
    Leave(PeerRankOf(failure).value_or(job_rank(rank())));
  }

 private:
  void Leave(uint32_t lost_rank) ABSL_LOCKS_EXCLUDED(group_->mutex) {
    absl::MutexLock lock(&group_->mutex);
    MarkGone(lost_rank);
  }

  void MarkGone(uint32_t lost_rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_->mutex) {
    Group::Member& self = group_->members[rank()];
    if (!self.gone) self.lost_rank = lost_rank;
    self.gone = true;
    group_->changed.SignalAll();
  }

  // Waits until every member satisfies `ready`.
  template <typename Ready>
  absl::Status WaitForAll(absl::Duration timeout, const Ready& ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_->mutex) {
    const Deadline deadline(timeout);
    for (;;) {
      std::vector<uint32_t> missing;
      for (uint32_t i = 0; i < size(); ++i) {
        const Group::Member& member = group_->members[i];
        if (ready(member)) continue;
        if (member.gone) return PeerLost(member.lost_rank, "left");
        missing.push_back(job_rank(i));
      }
      if (missing.empty()) return absl::OkStatus();
      if (failed()) return failure();
      if (group_->changed.WaitUntil(&group_->mutex, deadline)) {
        return PeersMissing(name(), missing, timeout);
      }
    }
  }

  absl::Status Meet(const Operation& operation, std::vector<Operation>* calls)
      ABSL_LOCKS_EXCLUDED(group_->mutex) {
    absl::MutexLock lock(&group_->mutex);
    group_->members[rank()].operation = operation;
    const uint64_t arrivals = ++group_->members[rank()].arrivals;
    group_->changed.SignalAll();
    const absl::Status status = WaitForAll(
        timeout_, [arrivals](const Group::Member& member) { return member.arrivals >= arrivals; });
    if (!status.ok()) {
      // The caller may free its buffers once this returns, so no peer may read them any more.
      MarkGone(PeerRankOf(status).value_or(job_rank(rank())));
      return status;
    }
    calls->clear();
    for (const Group::Member& member : group_->members) calls->push_back(member.operation);
    return absl::OkStatus();
  }

  // Holds the lock, so that no member leaves while its buffers are read.
  absl::StatusOr<std::vector<std::byte>> Result(const Operation& operation,
                                                const std::vector<Operation>& calls) const
      ABSL_LOCKS_EXCLUDED(group_->mutex) {
    absl::MutexLock lock(&group_->mutex);
    for (const Group::Member& member : group_->members) {
      if (member.gone) return PeerLost(member.lost_rank, "left");
    }
    const size_t bytes = operation.bytes();
    const bool root = operation.root == rank();
    std::vector<std::byte> result;
    auto append = [&](const void* part) {
      const auto* begin = static_cast<const std::byte*>(part);
      if (bytes > 0) result.insert(result.end(), begin, begin + bytes);
    };
    auto reduce = [&](size_t part) {
      std::vector<const void*> inputs;
      for (const Operation& call : calls) inputs.push_back(Part(call.send, part, bytes));
      result.resize(bytes);
      void* output = result.data();
      ReduceArrays(inputs, {&output, 1}, operation.count, operation.type, operation.op);
    };
    switch (operation.kind) {
      case Operation::Kind::kAllReduce:
        reduce(0);
        break;
      case Operation::Kind::kReduceScatter:
        reduce(rank());
        break;
      case Operation::Kind::kReduce:
        if (root) reduce(0);
        break;
      case Operation::Kind::kAllGather:
        for (const Operation& call : calls) append(call.send);
        break;
      case Operation::Kind::kGather:
        for (const Operation& call : calls) {
          if (root) append(call.send);
        }
        break;
      case Operation::Kind::kBroadcast:
        append(calls[operation.root].send);
        break;
      case Operation::Kind::kScatter:
        append(Part(calls[operation.root].send, rank(), bytes));
        break;
      case Operation::Kind::kAllToAll:
        for (const Operation& call : calls) append(Part(call.send, rank(), bytes));
        break;
      case Operation::Kind::kSend:
      case Operation::Kind::kReceive:
      case Operation::Kind::kBarrier:
        break;
    }
    return result;
  }

  absl::Status SendMessage(const Operation& operation) ABSL_LOCKS_EXCLUDED(group_->mutex) {
    auto message = std::make_shared<Group::Message>();
    message->data = operation.send;
    message->bytes = operation.bytes();
    absl::MutexLock lock(&group_->mutex);
    auto& queue = group_->messages[{rank(), operation.root}];
    queue.push_back(message);
    group_->changed.SignalAll();
    absl::Status status = WaitForPeer(operation.root, [&] { return message->received; });
    if (!status.ok()) queue.clear();
    return status;
  }

  absl::Status ReceiveMessage(const Operation& operation) ABSL_LOCKS_EXCLUDED(group_->mutex) {
    absl::MutexLock lock(&group_->mutex);
    auto& queue = group_->messages[{operation.root, rank()}];
    RETURN_IF_ERROR(WaitForPeer(operation.root, [&] { return !queue.empty(); }));
    Group::Message& message = *queue.front();
    if (message.bytes != operation.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", job_rank(operation.root), " sent ",
                                                     message.bytes, " bytes, expected ",
                                                     operation.bytes()));
    }
    if (message.bytes > 0) std::memcpy(operation.recv, message.data, message.bytes);
    message.received = true;
    queue.pop_front();
    group_->changed.SignalAll();
    return absl::OkStatus();
  }

  template <typename Ready>
  absl::Status WaitForPeer(uint32_t peer, const Ready& ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(group_->mutex) {
    const Deadline deadline(timeout_);
    while (!ready()) {
      if (failed()) return failure();
      if (group_->members[peer].gone) return PeerLost(group_->members[peer].lost_rank, "left");
      if (group_->changed.WaitUntil(&group_->mutex, deadline)) {
        return PeersMissing(name(), {job_rank(peer)}, timeout_);
      }
    }
    return absl::OkStatus();
  }

  const absl::Duration timeout_;
  const std::shared_ptr<Group> group_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateLoopback(const GroupOptions& options) {
  auto communicator = std::make_unique<LoopbackCommunicator>(
      options, Groups::Find(options.id, options.members.size()));
  RETURN_IF_ERROR(communicator->Join(options.connect_timeout));
  return {std::move(communicator)};
}

}  // namespace muster::collectives
