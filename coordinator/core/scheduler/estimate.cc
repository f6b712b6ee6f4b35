#include "coordinator/core/scheduler/estimate.h"

#include <algorithm>
#include <utility>

namespace muster::core {
namespace {

// The most times at which slots become free. Each costs a look at every node.
constexpr size_t kMaxReleaseTimes = 1024;

class QueueSimulation {
 public:
  explicit QueueSimulation(Forecast forecast) : pools_(std::move(forecast.pools)) {
    for (Forecast::Release& release : forecast.releases) Add(std::move(release));
  }

  // Places the job now if it fits.
  bool TryPlace(const QueuedJob& job) {
    for (const std::string& kind : job.kinds) {
      const auto pools = pools_.find(kind);
      if (pools != pools_.end() && TryPlaceOn(job, kind, pools->second)) return true;
    }
    return false;
  }

  // Advances to the next time at which slots become free; returns false when there is none.
  bool Advance() {
    if (releases_.empty() || ++release_times_ > kMaxReleaseTimes) return false;
    now_ = releases_.begin()->first;
    const auto freed = releases_.extract(releases_.begin());
    for (const Forecast::Release& release : freed.mapped()) {
      Forecast::Pool& pool = pools_[release.kind][release.node];
      pool.free = std::min(pool.slots, pool.free + release.slots);
    }
    return true;
  }

  absl::Duration now() const { return now_; }

 private:
  void Add(Forecast::Release release) {
    if (release.in == absl::InfiniteDuration()) return;
    release.in = std::max(release.in, now_);
    releases_[release.in].push_back(std::move(release));
  }

  bool TryPlaceOn(const QueuedJob& job, const std::string& kind,
                  std::vector<Forecast::Pool>& pools) {
    std::vector<Forecast::Release> taken;
    uint64_t ranks = 0;
    for (size_t node = 0; node < pools.size() && !IsComplete(job.shape, taken.size(), ranks);
         ++node) {
      const std::optional<Share> share =
          ShareOf(job.shape, pools[node].slots, pools[node].free);
      if (!share.has_value()) continue;
      taken.push_back({now_ + job.length, kind, node, share->slots()});
      ranks += share->ranks;
    }
    if (!Suffices(job.shape, taken.size(), ranks)) return false;
    for (Forecast::Release& release : taken) {
      pools[release.node].free -= release.slots;
      Add(std::move(release));
    }
    return true;
  }

  std::map<std::string, std::vector<Forecast::Pool>> pools_;
  std::map<absl::Duration, std::vector<Forecast::Release>> releases_;
  absl::Duration now_ = absl::ZeroDuration();
  size_t release_times_ = 0;
};

}  // namespace

std::optional<absl::Duration> EstimateStart(Forecast forecast,
                                            const std::vector<QueuedJob>& queue) {
  if (queue.empty() || queue.size() > kForecastJobs) return std::nullopt;
  return EstimateStarts(std::move(forecast), queue).back();
}

std::vector<std::optional<absl::Duration>> EstimateStarts(Forecast forecast,
                                                          const std::vector<QueuedJob>& queue) {
  std::vector<std::optional<absl::Duration>> starts(queue.size());
  if (queue.size() > kForecastJobs) return starts;
  QueueSimulation simulation(std::move(forecast));
  for (size_t i = 0; i < queue.size(); ++i) {
    while (!simulation.TryPlace(queue[i])) {
      if (!simulation.Advance()) return starts;
    }
    starts[i] = simulation.now();
  }
  return starts;
}

}  // namespace muster::core
