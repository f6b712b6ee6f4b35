#include "collectives/lane.h"

#include <pthread.h>

#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "collectives/spin.h"

namespace muster::collectives {

class Lane::Task final : public Work {
 public:
  Task(std::shared_ptr<Lane> lane, std::function<absl::Status()> run)
      : lane_(std::move(lane)), run_(std::move(run)) {}

  absl::Status Wait() override {
    if (!done_.HasBeenNotified()) lane_->RunUntilDone(*this);
    if (!SpinUntil([this] { return done_.HasBeenNotified(); }, kSpinTime)) {
      done_.WaitForNotification();
    }
    return status_;
  }

  bool Done() const override { return done_.HasBeenNotified(); }

  absl::Status Run() { return run_(); }

  void Finish(absl::Status status) {
    status_ = std::move(status);
    run_ = nullptr;
    done_.Notify();
  }

 private:
  const std::shared_ptr<Lane> lane_;
  std::function<absl::Status()> run_;
  absl::Status status_;  // before done_
  absl::Notification done_;
};

std::shared_ptr<Lane> Lane::Start(const std::string& thread_name) {
  std::shared_ptr<Lane> lane(new Lane);
  lane->thread_ = std::thread([raw = lane.get()] { raw->Loop(); });
  // Linux limits thread names to 15 characters.
  pthread_setname_np(lane->thread_.native_handle(), thread_name.substr(0, 15).c_str());
  return lane;
}

Lane::~Lane() = default;

std::shared_ptr<Work> Lane::Issue(std::function<absl::Status()> run) {
  auto task = std::make_shared<Task>(shared_from_this(), std::move(run));
  {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) {
      queue_.push_back(task);
      if (!running_) changed_.Signal();
      return task;
    }
  }
  task->Finish(absl::AbortedError("the communicator is closed"));
  return task;
}

void Lane::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

bool Lane::Idle() const {
  absl::MutexLock lock(&mutex_);
  return queue_.empty() && !running_;
}

void Lane::Loop() {
  absl::MutexLock lock(&mutex_);
  for (;;) {
    while (!RunnableOrStopping()) changed_.Wait(&mutex_);
    if (queue_.empty()) return;
    RunOldest();
  }
}

void Lane::RunOldest() {
  std::shared_ptr<Task> task = std::move(queue_.front());
  queue_.pop_front();
  running_ = true;
  mutex_.Unlock();
  absl::Status status = task->Run();
  mutex_.Lock();
  // Cleared before the task is marked done, so that a lane whose operations are all done is idle.
  running_ = false;
  task->Finish(std::move(status));
  if (!queue_.empty() || stopping_) changed_.Signal();
}

void Lane::RunUntilDone(const Task& task) {
  absl::MutexLock lock(&mutex_);
  while (!task.Done() && Runnable()) RunOldest();
}

}  // namespace muster::collectives
