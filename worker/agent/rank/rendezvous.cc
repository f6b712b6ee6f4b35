#include "worker/agent/rank/rendezvous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/text/wait_text.h"

namespace muster::agent {
namespace {

// How long to wait for this node's other ranks at a barrier before reporting those that have
// arrived, which the coordinator needs only to name the missing ones.
constexpr absl::Duration kFoldDelay = absl::Milliseconds(200);
// Outdated entries that the stored record may have in addition to as many as there are live ones.
constexpr size_t kOutdatedEntries = 1024;

}  // namespace

Rendezvous::Rendezvous(std::string job_id, uint64_t generation, std::set<uint32_t> local_ranks,
                       Outside outside)
    : job_id_(std::move(job_id)),
      generation_(generation),
      local_ranks_(std::move(local_ranks)),
      outside_(std::move(outside)),
      state_(local_ranks_),
      self_(std::make_shared<Rendezvous*>(this)) {}

void Rendezvous::Restore(const v1::RendezvousRecord& record) {
  for (const auto& barrier : record.passed()) {
    uint64_t& newest = passed_[barrier.group()];
    newest = std::max(newest, barrier.sequence());
  }
  // The first value of a key counts, as it did in the earlier worker.
  for (const auto& put : record.puts()) proposed_.Put(put.key(), put.value()).IgnoreError();
  stored_entries_ = static_cast<size_t>(record.passed_size() + record.puts_size());
}

Rendezvous::~Rendezvous() {
  *self_ = nullptr;
  EndAll(absl::UnavailableError("the worker is shutting down"));
}

void Rendezvous::Join(uint32_t rank, CallId id, Done done) {
  // A rank that repeats its call has already joined.
  state_.Join(rank, /*host=*/"", /*listener=*/nullptr).IgnoreError();
  if (state_.Await(id, {Wait::For::kWorld}, std::move(done)) && world_known_) {
    state_.AnswerOne(id, std::string());
  }
}

void Rendezvous::Put(uint32_t rank, const std::string& key, const std::string& value, CallId id,
                     Done done) {
  if (const absl::Status over = state_.failure(); !over.ok()) return done(over);
  if (const std::optional<std::string> known = state_.Find(key); known.has_value()) {
    if (*known == value) return done(value);
    return done(absl::AlreadyExistsError(absl::StrCat("key ", key, " holds another value")));
  }
  const absl::StatusOr<bool> proposed = proposed_.Put(key, value);
  if (!proposed.ok()) return done(proposed.status());
  const bool waits = state_.Await(
      id, {Wait::For::kWrite, key},
      [key, value, done = std::move(done)](const absl::StatusOr<std::string>& accepted) {
        if (!accepted.ok() || *accepted == value) return done(accepted);
        done(absl::AlreadyExistsError(absl::StrCat("key ", key, " holds another value")));
      });
  if (waits) {
    if (*proposed) StorePut(key, value);
    return SendPut(key, value);
  }
  if (*proposed) proposed_.Erase(key);
}

void Rendezvous::Get(uint32_t rank, const std::string& key, CallId id, Done done) {
  if (const absl::Status over = state_.failure(); !over.ok()) return done(over);
  // One request serves all calls; SendPut also requests the key.
  const bool asked =
      state_.IsAwaited({Wait::For::kKey, key}) || state_.IsAwaited({Wait::For::kWrite, key});
  state_.Get(id, key, std::move(done));
  if (!asked && state_.WaitOf(id).has_value()) SendGet(key);
}

void Rendezvous::Arrive(uint32_t rank, const v1::BarrierId& barrier, CallId id, Done done) {
  if (barrier.group().size() > limits::kKeyBytes || barrier.sequence() == 0) {
    return done(absl::InvalidArgumentError(absl::StrCat("a barrier needs a group of at most ",
                                                        limits::kKeyBytes,
                                                        " bytes and a sequence of at least 1")));
  }
  const BarrierKey key(barrier.group(), barrier.sequence());
  if (arrivals_.count(key) == 0 && arrivals_.size() >= limits::kBarriersPerGeneration) {
    return done(absl::ResourceExhaustedError(absl::StrCat(
        "too many open barriers in this generation (limit: ", limits::kBarriersPerGeneration,
        ")")));
  }
  if (!state_.Await(id, {Wait::For::kBarrier, key.first, key.second}, std::move(done))) return;
  const auto passed = passed_.find(key.first);
  if (passed != passed_.end() && key.second <= passed->second) {
    return state_.AnswerOne(id, std::string());
  }
  Arrivals& arrivals = arrivals_[key];
  arrivals.ranks.insert(rank);
  if (arrivals.ranks.size() == local_ranks_.size()) return SendArrivals(key);
  if (arrivals.timer_set) return;
  arrivals.timer_set = true;
  outside_.run_after(kFoldDelay, [self = self_, key] {
    if (*self != nullptr) (*self)->OnFoldTimer(key);
  });
}

void Rendezvous::OnFoldTimer(const BarrierKey& barrier) {
  const auto it = arrivals_.find(barrier);
  if (it == arrivals_.end()) return;
  it->second.timer_set = false;
  SendArrivals(barrier);
}

void Rendezvous::Expire(CallId id) {
  const std::optional<Wait> wait = state_.WaitOf(id);
  if (wait.has_value()) End(id, absl::DeadlineExceededError(WaitsFor(*wait)));
}

std::string Rendezvous::Describe(const std::vector<uint32_t>& missing) const {
  if (missing.empty()) return "ranks of other nodes";
  return absl::StrCat("ranks ", absl::StrJoin(missing, ", "),
                      " of this node (and possibly ranks of other nodes)");
}

std::string Rendezvous::WaitsFor(const Wait& wait) const {
  const std::string barrier = absl::StrCat("barrier ", wait.name, "/", wait.sequence);
  const bool at_barrier = wait.what == Wait::For::kBarrier;
  const std::string key =
      wait.what == Wait::For::kKey ? absl::StrCat("no rank has published key ", wait.name) : "";
  // Do not name the missing ranks of another barrier.
  if (notice_.has_value() && wait.what != Wait::For::kWrite &&
      at_barrier == (notice_->what() == barrier)) {
    return absl::StrCat(key, key.empty() ? "" : "; ", WaitText(*notice_));
  }
  switch (wait.what) {
    case Wait::For::kWorld:
      return absl::StrCat("rendezvous is waiting for ",
                          Describe(state_.Missing(local_ranks_.size())));
    case Wait::For::kWrite:
      return absl::StrCat("the coordinator has not confirmed key ", wait.name);
    case Wait::For::kKey:
      return key;
    case Wait::For::kBarrier:
      break;
  }
  std::vector<uint32_t> missing;
  const auto arrivals = arrivals_.find({wait.name, wait.sequence});
  for (const uint32_t rank : local_ranks_) {
    if (arrivals == arrivals_.end() || arrivals->second.ranks.count(rank) == 0) {
      missing.push_back(rank);
    }
  }
  return absl::StrCat(barrier, " is waiting for ", Describe(missing));
}

void Rendezvous::OnWorld() {
  world_known_ = true;
  notice_.reset();
  state_.Answer({Wait::For::kWorld}, std::string());
}

void Rendezvous::OnKeyValue(const v1::KeyValue& message) {
  const std::string& key = message.key();
  if (message.code() != 0) {
    // Rejects a write; readers keep waiting.
    proposed_.Erase(key);
    return state_.Answer(
        {Wait::For::kWrite, key},
        absl::Status(static_cast<absl::StatusCode>(message.code()), message.message()));
  }
  // Fails only for a second value, from a coordinator that lost its state: local ranks keep the
  // first one.
  state_.Put(key, message.value()).IgnoreError();
  state_.Answer({Wait::For::kWrite, key}, message.value());
}

void Rendezvous::OnReleaseBarrier(const v1::ReleaseBarrier& message) {
  const BarrierKey key(message.barrier().group(), message.barrier().sequence());
  arrivals_.erase(key);
  absl::StatusOr<std::string> answer = std::string();
  if (message.code() != 0) {
    answer = absl::Status(static_cast<absl::StatusCode>(message.code()), message.message());
  } else {
    uint64_t& newest = passed_[key.first];
    if (key.second > newest) {
      newest = key.second;
      StorePassed(key.first, key.second);
    }
  }
  state_.Answer({Wait::For::kBarrier, key.first, key.second}, answer);
}

void Rendezvous::Resend() {
  if (!state_.failure().ok()) return;
  for (const auto& [key, value] : proposed_.values()) SendPut(key, value);
  for (const Wait& wait : state_.Waits()) {
    if (wait.what == Wait::For::kKey) SendGet(wait.name);
  }
  for (const auto& [barrier, arrivals] : arrivals_) SendArrivals(barrier);
}

std::vector<v1::BarrierId> Rendezvous::PassedBarriers() const {
  std::vector<v1::BarrierId> passed;
  for (const auto& [group, sequence] : passed_) {
    passed.emplace_back();
    passed.back().set_group(group);
    passed.back().set_sequence(sequence);
  }
  return passed;
}

void Rendezvous::StorePut(const std::string& key, const std::string& value) {
  v1::RendezvousRecord addition;
  addition.add_puts()->set_key(key);
  addition.mutable_puts(0)->set_value(value);
  Store(addition);
}

void Rendezvous::StorePassed(const std::string& group, uint64_t sequence) {
  v1::RendezvousRecord addition;
  addition.add_passed()->set_group(group);
  addition.mutable_passed(0)->set_sequence(sequence);
  Store(addition);
}

void Rendezvous::Store(const v1::RendezvousRecord& addition) {
  if (outside_.store == nullptr) return;
  const size_t live = passed_.size() + proposed_.values().size();
  if (++stored_entries_ <= 2 * live + kOutdatedEntries) {
    return outside_.store(addition, /*replace=*/false);
  }
  v1::RendezvousRecord whole;
  for (const auto& [group, sequence] : passed_) {
    v1::RendezvousRecord::Barrier& barrier = *whole.add_passed();
    barrier.set_group(group);
    barrier.set_sequence(sequence);
  }
  for (const auto& [key, value] : proposed_.values()) {
    v1::RendezvousRecord::Entry& put = *whole.add_puts();
    put.set_key(key);
    put.set_value(value);
  }
  stored_entries_ = live;
  outside_.store(whole, /*replace=*/true);
}

void Rendezvous::SendPut(const std::string& key, const std::string& value) {
  v1::WorkerMessage message;
  v1::PutKey& put = *message.mutable_put_key();
  put.set_job_id(job_id_);
  put.set_generation(generation_);
  put.set_key(key);
  put.set_value(value);
  outside_.send(std::move(message));
  // The coordinator answers reads but not accepted writes; the value of a read shows whether our
  // write was accepted.
  SendGet(key);
}

void Rendezvous::SendGet(const std::string& key) {
  v1::WorkerMessage message;
  v1::GetKey& get = *message.mutable_get_key();
  get.set_job_id(job_id_);
  get.set_generation(generation_);
  get.set_key(key);
  outside_.send(std::move(message));
}

void Rendezvous::SendArrivals(const BarrierKey& barrier) {
  v1::WorkerMessage message;
  v1::ArriveBarrier& arrive = *message.mutable_arrive_barrier();
  arrive.set_job_id(job_id_);
  arrive.set_generation(generation_);
  arrive.mutable_barrier()->set_group(barrier.first);
  arrive.mutable_barrier()->set_sequence(barrier.second);
  for (const uint32_t rank : arrivals_[barrier].ranks) arrive.add_ranks(rank);
  outside_.send(std::move(message));
}

}  // namespace muster::agent
