#include "worker/agent/lease/lease_lines.h"

#include <algorithm>

#include "worker/agent/lease/lease_keeper.h"

namespace muster::agent {

void LeaseLines::Add(const std::string& job_id, uint64_t generation, absl::Duration lease,
                     std::weak_ptr<ShimLine> line) {
  absl::MutexLock lock(&mutex_);
  leases_.push_back({{job_id, generation}, lease, std::move(line)});
}

void LeaseLines::OnAcknowledged(SteadyTime sent) {
  absl::MutexLock lock(&mutex_);
  acknowledged_ = std::max(acknowledged_, sent);
  std::erase_if(leases_, [](const Lease& lease) { return lease.line.expired(); });
  for (const Lease& lease : leases_) {
    const std::shared_ptr<ShimLine> line = lease.line.lock();
    if (line == nullptr || held_.count(lease.key) > 0) continue;
    line->SetLeaseDeadline(ToBootMs(LeaseDeadline(sent, lease.length)));
  }
}

void LeaseLines::Hold(const std::string& job_id, uint64_t generation) {
  absl::MutexLock lock(&mutex_);
  held_.emplace(job_id, generation);
}

void LeaseLines::Release(const std::string& job_id, uint64_t generation) {
  absl::MutexLock lock(&mutex_);
  held_.erase({job_id, generation});
}

void LeaseLines::ReleaseAll() {
  absl::MutexLock lock(&mutex_);
  held_.clear();
}

SteadyTime LeaseLines::acknowledged() const {
  absl::MutexLock lock(&mutex_);
  return acknowledged_;
}

}  // namespace muster::agent
