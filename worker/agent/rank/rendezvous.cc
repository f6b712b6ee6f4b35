#include "worker/agent/rank/rendezvous.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/wait_text.h"

namespace muster::agent {
namespace {

// How long a barrier waits for this node's other ranks before the coordinator hears of those that
// are there. It needs to hear of them at all only to name the missing ones.
constexpr absl::Duration kFoldDelay = absl::Milliseconds(200);
constexpr size_t kCallsPerRank = 64;

std::string Describe(const std::set<uint32_t>& present, const std::set<uint32_t>& all) {
  std::vector<uint32_t> missing;
  for (const uint32_t rank : all) {
    if (present.count(rank) == 0) missing.push_back(rank);
  }
  if (missing.empty()) return "ranks of other nodes";
  return absl::StrCat("of this node's ranks ", absl::StrJoin(missing, ", "),
                      " (and perhaps others elsewhere)");
}

}  // namespace

Rendezvous::Rendezvous(std::string job_id, uint64_t generation, std::set<uint32_t> local_ranks,
                       Outside outside)
    : job_id_(std::move(job_id)),
      generation_(generation),
      local_ranks_(std::move(local_ranks)),
      outside_(std::move(outside)),
      self_(std::make_shared<Rendezvous*>(this)) {}

Rendezvous::~Rendezvous() {
  *self_ = nullptr;
  EndAll(absl::UnavailableError("the worker ends"));
}

bool Rendezvous::Add(CallId id, Call call) {
  if (over_.has_value()) {
    call.done(*over_);
    return false;
  }
  if (calls_.size() >= kCallsPerRank * local_ranks_.size()) {
    call.done(absl::ResourceExhaustedError(
        absl::StrCat("more than ", kCallsPerRank, " calls per rank wait in this generation")));
    return false;
  }
  calls_.emplace(id, std::move(call));
  return true;
}

void Rendezvous::Join(uint32_t rank, CallId id, Done done) {
  joined_.insert(rank);
  Call call;
  call.rank = rank;
  call.done = std::move(done);
  if (Add(id, std::move(call)) && world_known_) End(id, absl::OkStatus());
}

void Rendezvous::Put(uint32_t rank, const std::string& key, const std::string& value, CallId id,
                     Done done) {
  const absl::Status check = CheckKey(key, value);
  const auto mine = put_.find(key);
  const auto theirs = known_.find(key);
  if (!check.ok()) {
    done(check);
  } else if ((mine != put_.end() && mine->second != value) ||
             (theirs != known_.end() && theirs->second != value)) {
    done(absl::AlreadyExistsError(absl::StrCat("key ", key, " holds another value")));
  } else {
    Call call;
    call.kind = Call::Kind::kPut;
    call.rank = rank;
    call.key = key;
    call.value = value;
    call.done = std::move(done);
    if (!Add(id, std::move(call))) return;
    if (theirs != known_.end()) return End(id, absl::OkStatus());
    if (mine == put_.end()) {
      put_[key] = value;
      value_bytes_ += value.size();
    }
    SendPut(key, value);
  }
}

void Rendezvous::Get(uint32_t rank, const std::string& key, CallId id, Done done) {
  const absl::Status check = CheckKey(key, "");
  if (!check.ok()) return done(check);
  const auto known = known_.find(key);
  if (known != known_.end() && !over_.has_value()) return done(known->second);
  bool asked = false;
  for (const auto& [other_id, other] : calls_) asked = asked || other.key == key;
  Call call;
  call.kind = Call::Kind::kGet;
  call.rank = rank;
  call.key = key;
  call.done = std::move(done);
  if (Add(id, std::move(call)) && !asked) SendGet(key);
}

void Rendezvous::Arrive(uint32_t rank, const v1::BarrierId& barrier, CallId id, Done done) {
  if (barrier.group().size() > limits::kKeyBytes || barrier.sequence() == 0) {
    return done(absl::InvalidArgumentError(absl::StrCat(
        "a barrier has a group of at most ", limits::kKeyBytes, " bytes and a sequence from 1")));
  }
  const BarrierKey key(barrier.group(), barrier.sequence());
  if (arrivals_.count(key) == 0 && arrivals_.size() >= limits::kBarriersPerGeneration) {
    return done(absl::ResourceExhaustedError(absl::StrCat(
        "more than ", limits::kBarriersPerGeneration, " barriers are open in this generation")));
  }
  Call call;
  call.kind = Call::Kind::kBarrier;
  call.rank = rank;
  call.barrier = key;
  call.done = std::move(done);
  if (!Add(id, std::move(call))) return;
  const auto passed = passed_.find(key.first);
  if (passed != passed_.end() && key.second <= passed->second) {
    return End(id, absl::OkStatus());
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

void Rendezvous::End(CallId id, const absl::Status& status) {
  const auto it = calls_.find(id);
  if (it == calls_.end()) return;
  const Done done = std::move(it->second.done);
  calls_.erase(it);
  if (status.ok()) {
    done(std::string());
  } else {
    done(status);
  }
}

void Rendezvous::Expire(CallId id) {
  const auto it = calls_.find(id);
  if (it == calls_.end()) return;
  End(id, absl::DeadlineExceededError(WaitsFor(it->second)));
}

void Rendezvous::OnWaitNotice(const v1::Wait& wait) { notice_ = wait; }

std::string Rendezvous::WaitsFor(const Call& call) const {
  const std::string barrier =
      absl::StrCat("barrier ", call.barrier.first, "/", call.barrier.second);
  // Who waits at a barrier is not helped by the names of another.
  if (notice_.has_value() && call.kind != Call::Kind::kPut &&
      (call.kind == Call::Kind::kBarrier) == (notice_->what() == barrier)) {
    const std::string key = call.kind == Call::Kind::kGet
                                ? absl::StrCat("no rank has published key ", call.key, "; ")
                                : "";
    return absl::StrCat(key, WaitText(*notice_));
  }
  switch (call.kind) {
    case Call::Kind::kJoin:
      return absl::StrCat("the rendezvous waits for ", Describe(joined_, local_ranks_));
    case Call::Kind::kPut:
      return absl::StrCat("the coordinator has not confirmed key ", call.key);
    case Call::Kind::kGet:
      return absl::StrCat("no rank has published key ", call.key);
    case Call::Kind::kBarrier:
      break;
  }
  const auto it = arrivals_.find(call.barrier);
  const std::set<uint32_t> arrived =
      it == arrivals_.end() ? std::set<uint32_t>() : it->second.ranks;
  return absl::StrCat(barrier, " waits for ", Describe(arrived, local_ranks_));
}

void Rendezvous::EndAll(const absl::Status& status) {
  if (!over_.has_value()) over_ = status;
  while (!calls_.empty()) End(calls_.begin()->first, status);
}

template <typename Predicate>
void Rendezvous::AnswerWhere(Predicate predicate, const absl::StatusOr<std::string>& answer) {
  std::vector<Done> answered;
  for (auto it = calls_.begin(); it != calls_.end();) {
    if (predicate(it->second)) {
      answered.push_back(std::move(it->second.done));
      it = calls_.erase(it);
    } else {
      ++it;
    }
  }
  for (const Done& done : answered) done(answer);
}

void Rendezvous::OnWorld() {
  world_known_ = true;
  notice_.reset();
  AnswerWhere([](const Call& call) { return call.kind == Call::Kind::kJoin; }, std::string());
}

void Rendezvous::OnKeyValue(const v1::KeyValue& message) {
  const std::string& key = message.key();
  if (message.code() != 0) {
    // A refused write; who only reads waits on.
    put_.erase(key);
    AnswerWhere([&](const Call& call) { return call.kind == Call::Kind::kPut && call.key == key; },
                absl::Status(static_cast<absl::StatusCode>(message.code()), message.message()));
    return;
  }
  known_[key] = message.value();
  AnswerWhere(
      [&](const Call& call) {
        return call.kind == Call::Kind::kPut && call.key == key && call.value != message.value();
      },
      absl::AlreadyExistsError(absl::StrCat("key ", key, " holds another value")));
  AnswerWhere(
      [&](const Call& call) {
        return (call.kind == Call::Kind::kPut || call.kind == Call::Kind::kGet) && call.key == key;
      },
      message.value());
}

void Rendezvous::OnReleaseBarrier(const v1::ReleaseBarrier& message) {
  const BarrierKey key(message.barrier().group(), message.barrier().sequence());
  arrivals_.erase(key);
  absl::StatusOr<std::string> answer = std::string();
  if (message.code() != 0) {
    answer = absl::Status(static_cast<absl::StatusCode>(message.code()), message.message());
  } else {
    uint64_t& newest = passed_[key.first];
    newest = std::max(newest, key.second);
  }
  AnswerWhere(
      [&](const Call& call) { return call.kind == Call::Kind::kBarrier && call.barrier == key; },
      answer);
}

void Rendezvous::Resend() {
  if (over_.has_value()) return;
  for (const auto& [key, value] : put_) SendPut(key, value);
  std::set<std::string> asked;
  for (const auto& [id, call] : calls_) {
    if (call.kind == Call::Kind::kGet && asked.insert(call.key).second) SendGet(call.key);
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

absl::Status Rendezvous::CheckKey(const std::string& key, const std::string& value) const {
  if (key.empty() || key.size() > limits::kKeyBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a key has 1 to ", limits::kKeyBytes, " bytes"));
  }
  if (value.size() > limits::kValueBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the value of a key has at most ", limits::kValueBytes, " bytes"));
  }
  if (put_.size() >= limits::kKeysPerGeneration ||
      value_bytes_ + value.size() > limits::kValueBytesPerGeneration) {
    return absl::ResourceExhaustedError(absl::StrCat("this generation's store is full: at most ",
                                                     limits::kKeysPerGeneration, " keys and ",
                                                     limits::kValueBytesPerGeneration, " bytes"));
  }
  return absl::OkStatus();
}

void Rendezvous::SendPut(const std::string& key, const std::string& value) {
  v1::WorkerMessage message;
  v1::PutKey& put = *message.mutable_put_key();
  put.set_job_id(job_id_);
  put.set_generation(generation_);
  put.set_key(key);
  put.set_value(value);
  outside_.send(std::move(message));
  // A write that was accepted is not answered, a read is: the value that comes back tells whether
  // ours stands.
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
