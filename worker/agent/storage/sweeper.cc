#include "worker/agent/storage/sweeper.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/time/time.h"
#include "glog/logging.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kLongestSweepInterval = absl::Minutes(10);

}  // namespace

void Sweeper::SweepIfDue(SteadyTime now, const std::function<Held()>& held) {
  if (now < next_sweep_) return;
  next_sweep_ = now + std::min(kLongestSweepInterval, keep_.age / 10);
  Post([this, held = held(), now = file_clock_.At(Now())] {
    if (memory_ != nullptr) {
      memory_->Sweep(held, now - kKeepState);
      memory_->SweepAbandoned(now - kKeepState);
    }
    const SweepResult swept = Sweep(directory_.Jobs(), keep_, held, now);
    LOG_IF(INFO, swept.generations + swept.jobs > 0)
        << "deleted the logs of " << swept.generations << " finished generations ("
        << swept.log_bytes << " bytes) and all files of " << swept.jobs
        << " jobs; retention: " << keep_.Text();
  });
}

void Sweeper::DeleteFiles(const std::string& job_id) {
  Post([path = directory_.Job(job_id)] {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    LOG_IF(WARNING, error) << "cannot delete " << path << ": " << error.message();
  });
}

void Sweeper::DiscardMemory(const std::string& job_id) {
  if (memory_ != nullptr) Post([this, job_id] { memory_->Discard(job_id); });
}

void Sweeper::SweepMemory(const Held& held, bool hands_over) const {
  if (memory_ == nullptr) return;
  memory_->Sweep(held, hands_over ? file_clock_.At(Now()) - kKeepState : absl::InfiniteFuture());
}

}  // namespace muster::agent
