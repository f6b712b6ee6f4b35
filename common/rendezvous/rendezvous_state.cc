#include "common/rendezvous/rendezvous_state.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"

namespace muster {
namespace {

constexpr size_t kWaitsPerRank = 64;
constexpr size_t kNamedRanks = 10;

}  // namespace

void RendezvousState::Callbacks::Add(std::function<void()> callback) {
  absl::MutexLock lock(&mutex);
  queue.push_back(std::move(callback));
}

void RendezvousState::Callbacks::Run() {
  mutex.Lock();
  if (running) {
    mutex.Unlock();
    return;
  }
  running = true;
  while (!queue.empty()) {
    std::function<void()> callback = std::move(queue.front());
    queue.pop_front();
    mutex.Unlock();
    callback();
    callback = nullptr;  // destroys captured objects, which may call back
    mutex.Lock();
  }
  running = false;
  mutex.Unlock();
}

RendezvousState::RendezvousState(std::set<uint32_t> ranks) {
  for (const uint32_t rank : ranks) members_[rank];
}

absl::Status RendezvousState::Join(uint32_t rank, const std::string& host,
                                   std::shared_ptr<Listener> listener) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = members_.find(rank);
    if (found == members_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("rank ", rank, " is not one of the ", members_.size(), " expected ranks"));
    }
    if (host.size() > limits::kLabelBytes) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", rank, ": host name is ", host.size(),
                                                     " bytes long; the limit is ",
                                                     limits::kLabelBytes));
    }
    Member& member = found->second;
    if (member.presence != Presence::kExpected) {
      return absl::AlreadyExistsError(
          absl::StrCat("rank ", rank, " has already joined; each process needs its own rank"));
    }
    if (!failure_.ok()) return failure_;
    member = {Presence::kJoined, host, std::move(listener)};
    if (++joined_ < members_.size()) return absl::OkStatus();
    NotifyAll([nodes = std::make_shared<const std::vector<uint32_t>>(NodeOfRank())](
                  Listener& each) { each.OnComplete(*nodes); });
  }
  RunCallbacks();
  return absl::OkStatus();
}

void RendezvousState::Leave(uint32_t rank) {
  absl::MutexLock lock(&mutex_);
  const auto found = members_.find(rank);
  if (found != members_.end() && found->second.presence == Presence::kJoined) {
    found->second.presence = Presence::kLeft;
  }
}

void RendezvousState::Remove(uint32_t rank) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = members_.find(rank);
    if (found == members_.end()) return;
    Member& member = found->second;
    const bool lost = member.presence == Presence::kJoined && failure_.ok();
    member.listener = nullptr;
    if (!lost) return;
    member.presence = Presence::kLost;
    NotifyAll([rank](Listener& each) { each.OnLost(rank); });
    FailLocked(absl::UnavailableError(absl::StrCat("rank ", rank, " went away")));
  }
  RunCallbacks();
}

std::vector<uint32_t> RendezvousState::Missing(size_t most) const {
  absl::MutexLock lock(&mutex_);
  return MissingLocked(most);
}

std::vector<uint32_t> RendezvousState::MissingLocked(size_t most) const {
  std::vector<uint32_t> missing;
  for (const auto& [rank, member] : members_) {
    if (missing.size() >= most) break;
    if (member.presence == Presence::kExpected) missing.push_back(rank);
  }
  return missing;
}

std::vector<uint32_t> RendezvousState::NodeOfRank() const {
  std::map<std::string, uint32_t> nodes;
  std::vector<uint32_t> node_of_rank;
  uint32_t next = 0;
  for (const auto& [rank, member] : members_) {
    const auto found = member.host.empty() ? nodes.end() : nodes.find(member.host);
    node_of_rank.push_back(found == nodes.end() ? next : found->second);
    if (found != nodes.end()) continue;
    if (!member.host.empty()) nodes[member.host] = next;
    ++next;
  }
  return node_of_rank;
}

void RendezvousState::Close(const absl::Status& reason) {
  {
    absl::MutexLock lock(&mutex_);
    absl::Status status;
    if (joined_ < members_.size()) {
      status = absl::DeadlineExceededError(
          absl::StrCat("the rendezvous closed before all ranks joined; missing: rank ",
                       absl::StrJoin(MissingLocked(kNamedRanks), ", rank ")));
    }
    NotifyAll([status](Listener& each) { each.OnClose(status); });
    FailLocked(reason);
  }
  RunCallbacks();
}

absl::Status RendezvousState::Put(const std::string& key, const std::string& value) {
  {
    absl::MutexLock lock(&mutex_);
    const absl::StatusOr<bool> added = keys_.Put(key, value);
    if (!added.ok() || !*added) return added.status();
    AnswerLocked({Wait::For::kKey, key}, value);
  }
  RunCallbacks();
  return absl::OkStatus();
}

std::optional<std::string> RendezvousState::Find(const std::string& key) const {
  absl::MutexLock lock(&mutex_);
  const std::string* const value = keys_.Find(key);
  return value == nullptr ? std::nullopt : std::optional<std::string>(*value);
}

void RendezvousState::Get(WaitId id, const std::string& key, Done done) {
  {
    absl::MutexLock lock(&mutex_);
    const absl::Status valid = WriteOnceStore::CheckKey(key);
    if (const std::string* const value = keys_.Find(key); value != nullptr) {
      QueueAnswer(std::move(done), *value);
    } else if (!valid.ok()) {
      QueueAnswer(std::move(done), valid);
    } else {
      AwaitLocked(id, {Wait::For::kKey, key}, std::move(done));
    }
  }
  RunCallbacks();
}

bool RendezvousState::Await(WaitId id, const Wait& wait, Done done) {
  bool waits = false;
  {
    absl::MutexLock lock(&mutex_);
    waits = AwaitLocked(id, wait, std::move(done));
  }
  RunCallbacks();
  return waits;
}

bool RendezvousState::AwaitLocked(WaitId id, const Wait& wait, Done done) {
  if (!failure_.ok()) {
    QueueAnswer(std::move(done), failure_);
    return false;
  }
  if (calls_.size() >= kWaitsPerRank * members_.size()) {
    QueueAnswer(std::move(done),
                absl::ResourceExhaustedError(absl::StrCat("too many waiting calls; the limit is ",
                                                          kWaitsPerRank, " per rank")));
    return false;
  }
  calls_.emplace(id, Call{wait, std::move(done)});
  return true;
}

void RendezvousState::Answer(const Wait& wait, const absl::StatusOr<std::string>& answer) {
  {
    absl::MutexLock lock(&mutex_);
    AnswerLocked(wait, answer);
  }
  RunCallbacks();
}

void RendezvousState::AnswerLocked(const Wait& wait, const absl::StatusOr<std::string>& answer) {
  for (auto it = calls_.begin(); it != calls_.end();) {
    if (it->second.wait != wait) {
      ++it;
      continue;
    }
    QueueAnswer(std::move(it->second.done), answer);
    it = calls_.erase(it);
  }
}

void RendezvousState::AnswerOne(WaitId id, const absl::StatusOr<std::string>& answer) {
  {
    absl::MutexLock lock(&mutex_);
    const auto found = calls_.find(id);
    if (found == calls_.end()) return;
    QueueAnswer(std::move(found->second.done), answer);
    calls_.erase(found);
  }
  RunCallbacks();
}

void RendezvousState::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    FailLocked(status);
  }
  RunCallbacks();
}

void RendezvousState::FailLocked(const absl::Status& status) {
  if (failure_.ok()) failure_ = status;
  for (auto& [id, call] : calls_) QueueAnswer(std::move(call.done), status);
  calls_.clear();
}

absl::Status RendezvousState::failure() const {
  absl::MutexLock lock(&mutex_);
  return failure_;
}

bool RendezvousState::IsAwaited(const Wait& wait) const {
  absl::MutexLock lock(&mutex_);
  return std::any_of(calls_.begin(), calls_.end(),
                     [&](const auto& entry) { return entry.second.wait == wait; });
}

std::optional<RendezvousState::Wait> RendezvousState::WaitOf(WaitId id) const {
  absl::MutexLock lock(&mutex_);
  const auto found = calls_.find(id);
  return found == calls_.end() ? std::nullopt : std::optional<Wait>(found->second.wait);
}

std::set<RendezvousState::Wait> RendezvousState::Waits() const {
  absl::MutexLock lock(&mutex_);
  std::set<Wait> waits;
  for (const auto& [id, call] : calls_) waits.insert(call.wait);
  return waits;
}

void RendezvousState::NotifyAll(const std::function<void(Listener&)>& notify) {
  for (const auto& [rank, member] : members_) {
    if (member.listener == nullptr) continue;
    callbacks_->Add([notify, listener = member.listener] { notify(*listener); });
  }
}

void RendezvousState::QueueAnswer(Done done, const absl::StatusOr<std::string>& answer) const {
  callbacks_->Add([done = std::move(done), answer] { done(answer); });
}

void RendezvousState::RunCallbacks() const {
  const std::shared_ptr<Callbacks> callbacks = callbacks_;
  callbacks->Run();
}

}  // namespace muster
