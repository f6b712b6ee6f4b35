#include "process_group/meeting.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"

namespace muster {
namespace {

// Gets that wait at the same time, of each rank.
constexpr size_t kWaitersPerRank = 64;
constexpr size_t kNamedRanks = 10;

absl::Status LostStatus(uint32_t rank) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " went away"));
}

}  // namespace

Meeting::Meeting(uint32_t world_size, std::string run)
    : world_size_(world_size),
      run_(std::move(run)),
      presence_(world_size, Presence::kExpected),
      hosts_(world_size) {}

absl::Status Meeting::Join(const MeetingMember& member, Listener* listener) {
  absl::MutexLock lock(&mutex_);
  if (member.world_size != world_size_ || member.rank >= world_size_) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", member.rank, " of ", member.world_size,
                                                   " ranks is none of this group of ",
                                                   world_size_));
  }
  if (member.run != run_) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", member.rank, " is of another run of the program"));
  }
  if (member.host.size() > limits::kLabelBytes) {
    return absl::InvalidArgumentError("a host's name that is too long");
  }
  if (presence_[member.rank] != Presence::kExpected) {
    return absl::AlreadyExistsError(absl::StrCat("there is a rank ", member.rank,
                                                 " already: each process has a rank of its own"));
  }
  if (!failure_.ok()) return failure_;
  presence_[member.rank] = Presence::kHere;
  hosts_[member.rank] = member.host;
  listeners_[member.rank] = listener;
  if (++came_ < world_size_) return absl::OkStatus();
  const std::vector<uint32_t> node_of_rank = NodeOfRank();
  for (const auto& [rank, each] : listeners_) each->Complete(node_of_rank);
  return absl::OkStatus();
}

void Meeting::Leave(uint32_t rank) {
  absl::MutexLock lock(&mutex_);
  if (rank < world_size_ && presence_[rank] == Presence::kHere) presence_[rank] = Presence::kLeft;
}

void Meeting::Remove(uint32_t rank, const Listener* listener) {
  std::vector<Waiter> waiters;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = listeners_.find(rank);
    if (found == listeners_.end() || found->second != listener) return;
    listeners_.erase(found);
    if (presence_[rank] == Presence::kLeft || !failure_.ok()) return;
    presence_[rank] = Presence::kLost;
    failure_ = LostStatus(rank);
    for (const auto& [other, each] : listeners_) each->Lost(rank);
    waiters = TakeWaiters();
  }
  for (const Waiter& waiter : waiters) waiter.answer(LostStatus(rank));
}

std::vector<uint32_t> Meeting::Missing(size_t most) const {
  absl::MutexLock lock(&mutex_);
  return MissingLocked(most);
}

std::vector<uint32_t> Meeting::MissingLocked(size_t most) const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < world_size_ && missing.size() < most; ++rank) {
    if (presence_[rank] == Presence::kExpected) missing.push_back(rank);
  }
  return missing;
}

std::vector<uint32_t> Meeting::NodeOfRank() const {
  std::map<std::string, uint32_t> nodes;
  std::vector<uint32_t> node_of_rank;
  uint32_t next = 0;
  for (const std::string& host : hosts_) {
    const auto found = host.empty() ? nodes.end() : nodes.find(host);
    node_of_rank.push_back(found == nodes.end() ? next : found->second);
    if (found != nodes.end()) continue;
    if (!host.empty()) nodes[host] = next;
    ++next;
  }
  return node_of_rank;
}

absl::Status Meeting::Put(const std::string& key, const std::string& value) {
  if (key.empty() || key.size() > limits::kKeyBytes || value.size() > limits::kValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a key has 1 to ", limits::kKeyBytes, " bytes, its value up to ", limits::kValueBytes));
  }
  std::vector<Waiter> waiters;
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = values_.find(key); found != values_.end()) {
      if (found->second == value) return absl::OkStatus();
      return absl::AlreadyExistsError(absl::StrCat("key ", key, " holds another value"));
    }
    if (values_.size() >= limits::kKeysPerGeneration ||
        value_bytes_ + value.size() > limits::kValueBytesPerGeneration) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a process group has at most ", limits::kKeysPerGeneration, " keys, and ",
                       limits::kValueBytesPerGeneration, " bytes of values"));
    }
    values_[key] = value;
    value_bytes_ += value.size();
    for (auto i = waiters_.begin(); i != waiters_.end();) {
      if (i->second.key != key) {
        ++i;
        continue;
      }
      waiters.push_back(std::move(i->second));
      i = waiters_.erase(i);
    }
  }
  for (const Waiter& waiter : waiters) waiter.answer(value);
  return absl::OkStatus();
}

uint64_t Meeting::Get(const std::string& key, Answer answer) {
  absl::StatusOr<std::string> now = absl::ResourceExhaustedError("too many wait for keys");
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = values_.find(key); found != values_.end()) {
      now = found->second;
    } else if (!failure_.ok()) {
      now = failure_;
    } else if (waiters_.size() < kWaitersPerRank * world_size_ && key.size() <= limits::kKeyBytes) {
      waiters_[++last_waiter_] = {key, std::move(answer)};
      return last_waiter_;
    }
  }
  answer(std::move(now));
  return 0;
}

void Meeting::Cancel(uint64_t id) {
  Waiter waiter;
  {
    absl::MutexLock lock(&mutex_);
    const auto found = waiters_.find(id);
    if (found == waiters_.end()) return;
    waiter = std::move(found->second);
    waiters_.erase(found);
  }
  waiter.answer(absl::CancelledError("nobody waits any more"));
}

std::vector<Meeting::Waiter> Meeting::TakeWaiters() {
  std::vector<Waiter> waiters;
  for (auto& [id, waiter] : waiters_) waiters.push_back(std::move(waiter));
  waiters_.clear();
  return waiters;
}

void Meeting::Close() {
  std::vector<Waiter> waiters;
  {
    absl::MutexLock lock(&mutex_);
    absl::Status status;
    if (came_ < world_size_) {
      status = absl::DeadlineExceededError(
          absl::StrCat("rank 0 has given up: no sign of rank ",
                       absl::StrJoin(MissingLocked(kNamedRanks), ", ")));
    }
    if (failure_.ok()) {
      failure_ = absl::UnavailableError("rank 0, which keeps the group's keys, has left");
    }
    for (const auto& [rank, each] : listeners_) each->End(status);
    waiters = TakeWaiters();
  }
  for (const Waiter& waiter : waiters) {
    waiter.answer(absl::UnavailableError("rank 0, which keeps the group's keys, has left"));
  }
}

}  // namespace muster
