#include "collectives/mpi/mpi_progress_thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/lane.h"
#include "collectives/mpi/mpi_library.h"
#include "collectives/spin.h"
#include "common/deadline.h"
#include "common/status.h"

namespace muster::collectives {
namespace {

// MPI makes progress only while it is called: sleeps between polls grow from kShortNap to kLongNap.
constexpr absl::Duration kShortNap = absl::Microseconds(20);
constexpr absl::Duration kLongNap = absl::Microseconds(100);
// Sleep while no exchange is active: a completed send may still have to leave this process.
constexpr absl::Duration kIdleNap = absl::Milliseconds(10);
// Await polls at this interval to detect a stopped process: a delay longer than kLongestDelay means
// that this process was stopped, and its peers are not to blame for that time.
constexpr absl::Duration kAwaitStep = absl::Milliseconds(100);
constexpr absl::Duration kLongestDelay = absl::Milliseconds(500);
// How long a caller that leaves waits for the thread to return from MPI, and how long an exiting
// process waits for the others in MPI_Finalize.
constexpr absl::Duration kLeaveTime = absl::Seconds(1);
constexpr absl::Duration kFinishTime = absl::Seconds(10);

int64_t SteadyNanoseconds() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Without a launcher MPI_Init would create an MPI job of this process alone.
bool StartedByLauncher() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  return false;
}

absl::Status Ended(absl::string_view why) {
  return absl::UnavailableError(absl::StrCat(
      "mpi: ", why, "; MPI cannot cancel messages, so all processes must be restarted"));
}

MpiProgressThread* started = nullptr;  // before FinishAtExit is registered

}  // namespace

absl::StatusOr<MpiProgressThread*> MpiProgressThread::Get(absl::Duration timeout) {
  // MPI_Init can be called once per process, so the result of the first attempt is final.
  static const auto* const owner = new absl::StatusOr<MpiProgressThread*>(Make(timeout));
  RETURN_IF_ERROR(owner->status());
  absl::MutexLock lock(&(**owner)->mutex_);
  RETURN_IF_ERROR((**owner)->failure_);
  return *owner;
}

absl::StatusOr<MpiProgressThread*> MpiProgressThread::Make(absl::Duration timeout) {
  if (!StartedByLauncher()) {
    return absl::FailedPreconditionError(
        "mpi: this process is not part of an MPI job: none of OMPI_COMM_WORLD_SIZE, PMIX_RANK and "
        "PMI_RANK is set; start the ranks with mpirun");
  }
  ASSIGN_OR_RETURN(const MusterMpiApi* const api, OpenMpiLibrary());
  auto* const owner = new MpiProgressThread(api);  // never deleted: its thread runs until exit
  std::thread thread([owner] { owner->Loop(); });
  pthread_setname_np(thread.native_handle(), "mpi");
  thread.detach();
  RETURN_IF_ERROR(owner->Call(
      [owner]() -> absl::Status {
        if (const char* const error = owner->api_.start(); error != nullptr) {
          return absl::FailedPreconditionError(absl::StrCat("mpi: ", error));
        }
        owner->started_ = true;
        owner->rank_ = owner->api_.rank();
        owner->size_ = owner->api_.size();
        return absl::OkStatus();
      },
      timeout, "MPI_Init, which waits for all processes of the MPI job,"));
  started = owner;
  std::atexit(&FinishAtExit);
  return owner;
}

void MpiProgressThread::FinishAtExit() {
  MpiProgressThread& owner = *started;
  {
    absl::MutexLock lock(&owner.mutex_);
    // The launcher notices a process that exits without MPI_Finalize and ends the others.
    // MPI_Finalize would wait for them.
    if (!owner.failure_.ok()) return;
  }
  const absl::Status status = owner.Call(
      [&owner] {
        // MPI_Finalize would also wait for pending messages.
        const char* const error = owner.active_.empty() ? owner.api_.finish() : nullptr;
        owner.started_ = false;
        return error == nullptr ? absl::OkStatus() : absl::UnavailableError(error);
      },
      kFinishTime, "MPI_Finalize, which waits for all processes of the MPI job,");
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  absl::MutexLock lock(&owner.mutex_);
  owner.Fail(absl::UnavailableError("mpi: the process is exiting"));
}

absl::Status MpiProgressThread::Call(std::function<absl::Status()> call, absl::Duration timeout,
                                     absl::string_view what) {
  struct Outcome {
    bool done = false;
    absl::Status status;
  };
  const auto outcome = std::make_shared<Outcome>();
  absl::MutexLock lock(&mutex_);
  RETURN_IF_ERROR(failure_);
  calls_.push_back([this, outcome, call = std::move(call)] {
    absl::Status status = call();
    absl::MutexLock lock(&mutex_);
    outcome->status = std::move(status);
    outcome->done = true;
    changed_.SignalAll();
  });
  given_.Signal();
  const Deadline deadline(timeout);
  while (!outcome->done && failure_.ok()) {
    if (!changed_.WaitUntil(&mutex_, deadline)) continue;
    if (outcome->done) break;
    Fail(absl::DeadlineExceededError(
        absl::StrCat("mpi: ", what, " did not return within ", absl::FormatDuration(timeout))));
  }
  if (outcome->done) return outcome->status;
  return failure_;
}

absl::StatusOr<MusterMpiGroup*> MpiProgressThread::MakeGroup(std::vector<uint32_t> members,
                                                             uint32_t tag, absl::Duration timeout) {
  const auto group = std::make_shared<MusterMpiGroup*>(nullptr);
  RETURN_IF_ERROR(Call(
      [this, group, members = std::move(members), tag]() -> absl::Status {
        const char* const error =
            api_.make_group(members.data(), static_cast<uint32_t>(members.size()), tag, &*group);
        if (error == nullptr) return absl::OkStatus();
        const absl::Status status = absl::UnavailableError(absl::StrCat("mpi: ", error));
        absl::MutexLock lock(&mutex_);
        Fail(status);
        return status;
      },
      timeout, "MPI_Comm_create_group, which waits for all members,"));
  return *group;
}

std::shared_ptr<MpiExchange> MpiProgressThread::Begin(MusterMpiGroup* group,
                                                      std::vector<MusterMpiMessage> messages) {
  auto exchange = std::make_shared<MpiExchange>();
  exchange->group_ = group;
  exchange->messages_ = std::move(messages);
  exchange->left_ = static_cast<uint32_t>(exchange->messages_.size());
  if (exchange->messages_.empty()) {
    exchange->done_.store(true, std::memory_order_release);
    return exchange;
  }
  absl::MutexLock lock(&mutex_);
  begun_.push_back(exchange);
  given_.Signal();
  return exchange;
}

absl::Status MpiProgressThread::Await(MpiExchange& exchange, absl::Duration timeout,
                                      std::vector<uint32_t>* waiting_for) {
  if (SpinUntil([&exchange] { return exchange.done(); }, kSpinTime)) return exchange.status_;
  const absl::Duration step = std::min(timeout / 4, kAwaitStep);
  absl::Duration waited;
  uint32_t left = exchange.left_;
  absl::MutexLock lock(&mutex_);
  while (!exchange.done() && failure_.ok() && waited < timeout) {
    const int64_t start_ns = SteadyNanoseconds();
    changed_.WaitFor(&mutex_, std::min(step, timeout - waited));
    const absl::Duration elapsed = absl::Nanoseconds(SteadyNanoseconds() - start_ns);
    waited += elapsed > step + kLongestDelay ? step : elapsed;
    if (const uint32_t now_left = exchange.left_; now_left != left) {
      left = now_left;
      waited = absl::ZeroDuration();
    }
  }
  if (exchange.done()) return exchange.status_;
  if (failure_.ok()) {
    for (MusterMpiMessage& message : exchange.messages_) {
      if (std::atomic_ref(message.done).load() == 0) waiting_for->push_back(message.peer);
    }
    return absl::DeadlineExceededError("mpi: no progress");
  }
  AwaitThreadOut();
  return failure_;
}

void MpiProgressThread::End(absl::string_view why) {
  absl::MutexLock lock(&mutex_);
  Fail(Ended(why));
}

void MpiProgressThread::Fail(const absl::Status& status) {
  if (failure_.ok()) failure_ = status;
  given_.Signal();
  changed_.SignalAll();
}

void MpiProgressThread::AwaitThreadOut() {
  const Deadline deadline(kLeaveTime);
  while (calling_ && !changed_.WaitUntil(&mutex_, deadline)) {
  }
}

bool MpiProgressThread::Move(MpiExchange& exchange) {
  const char* error = nullptr;
  const uint32_t before = exchange.left_;
  bool begins = false;
  if (exchange.batch_ == nullptr) {
    begins = true;
    error = api_.begin(exchange.group_, exchange.messages_.data(), before, &exchange.batch_);
  }
  uint32_t left = before;
  if (error == nullptr) error = api_.progress(exchange.batch_, &left);
  exchange.left_ = left;
  if (error != nullptr) {
    Finish(exchange, absl::UnavailableError(absl::StrCat("mpi: ", error)));
    return true;
  }
  if (left == 0) {
    api_.release(exchange.batch_);
    exchange.batch_ = nullptr;
    Finish(exchange, absl::OkStatus());
    return true;
  }
  return begins || left < before;
}

void MpiProgressThread::Finish(MpiExchange& exchange, absl::Status status) {
  absl::MutexLock lock(&mutex_);
  if (!status.ok()) Fail(status);
  exchange.status_ = std::move(status);
  exchange.done_.store(true, std::memory_order_release);
  changed_.SignalAll();
}

void MpiProgressThread::Loop() {
  const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !begun_.empty() || !calls_.empty();
  };
  int64_t moved_ns = SteadyNanoseconds();
  absl::Duration nap = kShortNap;
  std::vector<std::function<void()>> calls;
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      calling_ = false;
      if (!failure_.ok()) {
        changed_.SignalAll();
        return;
      }
      if (active_.empty()) {
        while (!has_work() && failure_.ok() && !started_) given_.Wait(&mutex_);
        if (!has_work() && failure_.ok()) given_.WaitFor(&mutex_, kIdleNap);
      } else if (!has_work() && absl::Nanoseconds(SteadyNanoseconds() - moved_ns) > kSpinTime) {
        given_.WaitFor(&mutex_, nap);
        nap = std::min(2 * nap, kLongNap);
      }
      if (!failure_.ok()) continue;
      if (!begun_.empty()) moved_ns = SteadyNanoseconds();
      active_.insert(active_.end(), begun_.begin(), begun_.end());
      begun_.clear();
      calls.swap(calls_);
      calling_ = true;
    }
    if (started_ && active_.empty() && calls.empty()) api_.poke();
    for (const std::function<void()>& call : calls) call();
    calls.clear();
    bool moved = false;
    for (const std::shared_ptr<MpiExchange>& exchange : active_) {
      moved = Move(*exchange) || moved;
    }
    active_.erase(std::remove_if(active_.begin(), active_.end(),
                                 [](const std::shared_ptr<MpiExchange>& exchange) {
                                   return exchange->done();
                                 }),
                  active_.end());
    if (moved) {
      moved_ns = SteadyNanoseconds();
      nap = kShortNap;
    }
  }
}

}  // namespace muster::collectives
