#include "coordinator/service/loop/core_loop.h"

#include <time.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "coordinator/core/batches.h"
#include "coordinator/service/loop/absence.h"

namespace muster::service {
namespace {

// Bounds a turn, so that a long queue does not delay deadlines.
constexpr size_t kItemsPerTurn = 256;
// The most turns that may wait for the disk; beyond it, the core thread waits as well.
constexpr size_t kOutstandingTurns = 4096;
// How often the core learns how much space the store has.
constexpr absl::Duration kMeasureInterval = absl::Seconds(1);

}  // namespace

absl::Duration ThreadCpuTime() {
  timespec used = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return absl::DurationFromTimespec(used);
}

CoreLoop::CoreLoop(std::unique_ptr<core::Core> core, store::Store& store, Options options)
    : options_(std::move(options)), store_(store), core_(std::move(core)) {}

CoreLoop::~CoreLoop() { Stop(); }

void CoreLoop::Start() {
  commit_thread_ = std::thread([this] { RunCommitter(); });
  core_thread_ = std::thread([this] { RunCore(); });
}

void CoreLoop::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.Signal();
  }
  if (core_thread_.joinable()) core_thread_.join();
  if (commit_thread_.joinable()) commit_thread_.join();
}

bool CoreLoop::Push(core::Event event, absl::AnyInvocable<void()> taken) {
  return Enqueue({std::move(event), std::move(taken), nullptr, options_.clock().steady});
}

bool CoreLoop::PushQuery(Query query) {
  return Enqueue({core::Event(), nullptr, std::move(query), options_.clock().steady});
}

bool CoreLoop::Enqueue(Item item) {
  absl::MutexLock lock(&mutex_);
  if (stopping_) return false;
  queue_.push_back(std::move(item));
  changed_.Signal();
  return true;
}

void CoreLoop::Wake() {
  absl::MutexLock lock(&mutex_);
  woken_ = true;
  changed_.Signal();
}

absl::Duration CoreLoop::Delay() const {
  const SteadyTime now = options_.clock().steady;
  absl::MutexLock lock(&mutex_);
  SteadyTime since = turn_started_;
  if (!queue_.empty()) since = std::min(since, queue_.front().queued);
  return std::max(now - since, absl::ZeroDuration());
}

bool CoreLoop::TakeItems(SteadyTime deadline, std::vector<Item>& items, absl::Duration& idle) {
  const SteadyTime began = options_.clock().steady;
  absl::MutexLock lock(&mutex_);
  turn_started_ = SteadyTime::Infinite();
  changed_.WaitFor(&mutex_, deadline - began, [this] {
    mutex_.AssertHeld();
    return stopping_ || woken_ || !queue_.empty();
  });
  woken_ = false;
  turn_started_ = options_.clock().steady;
  const SteadyTime item = queue_.empty() ? SteadyTime::Infinite() : queue_.front().queued;
  const SteadyTime busy = std::min({deadline, item, turn_started_});
  idle = std::max(busy - began, absl::ZeroDuration());
  if (queue_.empty()) return !stopping_;
  const size_t count = std::min(queue_.size(), kItemsPerTurn);
  items.assign(std::make_move_iterator(queue_.begin()),
               std::make_move_iterator(queue_.begin() + count));
  queue_.erase(queue_.begin(), queue_.begin() + count);
  return true;
}

void CoreLoop::DropEndedSessions(std::vector<Item>& items) const {
  std::erase_if(items, [this](Item& item) {
    const auto* const opened = std::get_if<core::SessionOpened>(&item.event);
    if (item.query || opened == nullptr || options_.is_open(opened->session)) return false;
    if (item.taken) item.taken();
    return true;
  });
}

bool CoreLoop::HasItemOf(SteadyTime time) const {
  absl::MutexLock lock(&mutex_);
  return !queue_.empty() && queue_.front().queued <= time;
}

void CoreLoop::RunCore() {
  SteadyTime observer_deadline = SteadyTime::Infinite();
  SteadyTime last_turn = options_.clock().steady;
  AbsenceMeter absence(last_turn, options_.cpu_clock());
  absl::Duration blocked;
  SteadyTime next_measure = last_turn;
  while (true) {
    const SteadyTime deadline = core_->NextDeadline();
    std::vector<Item> items;
    absl::Duration idle;
    if (!TakeItems(std::min(deadline, observer_deadline), items, idle)) break;
    const Time now = options_.clock();
    absence.EndTurn(now.steady, options_.cpu_clock(), idle, blocked);
    if (now.steady >= next_measure) {
      core_->SetSpace(MeasureSpace());
      next_measure = now.steady + kMeasureInterval;
    }
    Turn turn;
    std::set<JobId> changed;
    if (!items.empty() && options_.observer != nullptr) {
      options_.observer->OnLag(now.steady - items.front().queued);
    }
    DropEndedSessions(items);
    for (size_t i = 0; i < items.size(); ++i) {
      const bool more = i + 1 < items.size() && !items[i + 1].query;
      StepItem(std::move(items[i]), now, more, turn, changed);
    }
    // A busy loop first handles what arrived before the deadline: the nodes are not silent.
    const SteadyTime due = core_->NextDeadline();
    if (due <= now.steady && !HasItemOf(due)) {
      // A deadline that had already passed when the last turn began does not count as lag.
      if (options_.observer != nullptr) {
        options_.observer->OnLag(
            std::max(now.steady - std::max(deadline, last_turn), absl::ZeroDuration()));
      }
      StepEvent(core::Tick{absence.TakeExtension(now.steady)}, now, /*more=*/false, turn, changed);
    }
    last_turn = now.steady;
    if (options_.observer != nullptr) {
      const std::vector<JobId> jobs(changed.begin(), changed.end());
      observer_deadline = options_.observer->AfterTurn(*core_, jobs, now, turn.releases);
    }
    blocked = HandOver(std::move(turn));
  }
  absl::MutexLock lock(&commit_mutex_);
  core_ended_ = true;
}

void CoreLoop::StepItem(Item item, const Time& now, bool more, Turn& turn,
                        std::set<JobId>& changed) {
  if (item.query) {
    Release release = item.query(*core_, now);
    if (release) turn.releases.push_back(std::move(release));
    return;
  }
  StepEvent(item.event, now, more, turn, changed);
  if (item.taken) item.taken();
}

void CoreLoop::StepEvent(const core::Event& event, const Time& now, bool more, Turn& turn,
                         std::set<JobId>& changed) {
  core::Effects effects = core_->Step(event, now, more);
  std::move(effects.writes.begin(), effects.writes.end(), std::back_inserter(turn.writes));
  effects.writes.clear();
  changed.insert(effects.changed_jobs.begin(), effects.changed_jobs.end());
  if (effects.sends.empty() && effects.replies.empty() && effects.closes.empty() &&
      effects.logs.empty()) {
    return;
  }
  turn.releases.push_back(
      [this, effects = std::move(effects)]() mutable { options_.deliver(std::move(effects)); });
}

store::Space CoreLoop::MeasureSpace() {
  // Before the measurement, so that no turn is left out.
  uint64_t outstanding = 0;
  {
    absl::MutexLock lock(&commit_mutex_);
    outstanding = outstanding_bytes_;
  }
  store::Space space = store_.Measure();
  space.free_bytes -= std::min(space.free_bytes, 2 * outstanding);
  return space;
}

absl::Duration CoreLoop::HandOver(Turn turn) {
  if (turn.writes.empty() && turn.releases.empty()) return absl::ZeroDuration();
  const SteadyTime began = options_.clock().steady;
  for (const store::Mutation& write : turn.writes) {
    turn.bytes += write.key.size() + (write.value.has_value() ? write.value->size() : 0);
  }
  {
    absl::MutexLock lock(&commit_mutex_);
    if (commit_failed_) return absl::ZeroDuration();
    if (outstanding_ > 0 || !turn.writes.empty()) {
      const auto has_room = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_) {
        return outstanding_ < kOutstandingTurns || commit_failed_;
      };
      commit_mutex_.Await(absl::Condition(&has_room));
      ++outstanding_;
      outstanding_bytes_ += turn.bytes;
      pending_.push_back(std::move(turn));
      return options_.clock().steady - began;
    }
  }
  // Nothing is outstanding, and only this thread adds work, so the committer is idle.
  for (Release& release : turn.releases) release();
  return absl::ZeroDuration();
}

void CoreLoop::RunCommitter() {
  while (true) {
    std::vector<Turn> turns;
    {
      absl::MutexLock lock(&commit_mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_) {
        return core_ended_ || !pending_.empty();
      };
      commit_mutex_.Await(absl::Condition(&ready));
      if (pending_.empty()) return;
      turns.swap(pending_);
    }
    std::vector<store::Mutation> writes;
    uint64_t bytes = 0;
    for (Turn& turn : turns) {
      bytes += turn.bytes;
      std::move(turn.writes.begin(), turn.writes.end(), std::back_inserter(writes));
    }
    const absl::Status status = core::CommitInBatches(store_, std::move(writes));
    if (!status.ok()) {
      {
        absl::MutexLock lock(&commit_mutex_);
        commit_failed_ = true;
        pending_.clear();
      }
      options_.on_commit_failure(status);
      return;
    }
    for (Turn& turn : turns) {
      for (Release& release : turn.releases) release();
    }
    absl::MutexLock lock(&commit_mutex_);
    outstanding_ -= turns.size();
    outstanding_bytes_ -= bytes;
  }
}

}  // namespace muster::service
