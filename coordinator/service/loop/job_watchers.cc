#include "coordinator/service/loop/job_watchers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace muster::service {
namespace {

// Equal jobs give equal bytes, maps included.
std::string SerializeDeterministic(const v1::Job& job) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    job.SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace

absl::Status JobWatchers::Add(const JobId& job, std::shared_ptr<JobWatcher> watcher) {
  absl::MutexLock lock(&mutex_);
  if (shut_down_) return absl::UnavailableError("the coordinator is shutting down");
  if (count_ >= limits::kWatchers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the coordinator has ", limits::kWatchers, " watchers, the limit"));
  }
  Watched& watched = watched_[job];
  if (watched.watchers.size() >= limits::kWatchersPerJob) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "job ", job.value(), " has ", limits::kWatchersPerJob, " watchers, the limit"));
  }
  watched.watchers.push_back(std::move(watcher));
  ++count_;
  return absl::OkStatus();
}

void JobWatchers::Remove(const JobId& job, const JobWatcher* watcher) {
  absl::MutexLock lock(&mutex_);
  const auto it = watched_.find(job);
  if (it == watched_.end()) return;
  auto& watchers = it->second.watchers;
  count_ -= watchers.size();
  watchers.erase(std::remove_if(watchers.begin(), watchers.end(),
                                [watcher](const auto& w) { return w.get() == watcher; }),
                 watchers.end());
  count_ += watchers.size();
  if (watchers.empty()) watched_.erase(it);
}

void JobWatchers::AfterTurn(const core::Core& core, absl::Span<const JobId> changed,
                            const Time& now, std::vector<Release>& releases) {
  absl::MutexLock lock(&mutex_);
  if (watched_.empty()) return;
  for (const JobId& id : changed) {
    const auto it = watched_.find(id);
    if (it == watched_.end()) continue;
    absl::StatusOr<v1::Job> job = core.GetJob(id, /*detailed=*/false, now);
    if (!job.ok()) continue;
    std::string bytes = SerializeDeterministic(*job);
    if (bytes == it->second.last) continue;
    it->second.last = std::move(bytes);
    releases.push_back(
        [job = std::make_shared<const v1::Job>(*std::move(job)), watchers = it->second.watchers] {
          for (const auto& watcher : watchers) watcher->OnJob(job);
        });
  }
}

bool JobWatchers::CountUnread(const std::string& caller, size_t before, size_t now) {
  absl::MutexLock lock(&mutex_);
  unread_.Remove(caller, before);
  const bool allowed = now <= before || unread_.Check(caller, now).ok();
  unread_.Add(caller, allowed ? now : before);
  return allowed;
}

void JobWatchers::Shutdown() {
  absl::flat_hash_map<JobId, Watched> watched;
  {
    absl::MutexLock lock(&mutex_);
    shut_down_ = true;
    watched.swap(watched_);
    count_ = 0;
  }
  for (const auto& [id, entry] : watched) {
    for (const auto& watcher : entry.watchers) watcher->OnShutdown();
  }
}

size_t JobWatchers::size() const {
  absl::MutexLock lock(&mutex_);
  return count_;
}

}  // namespace muster::service
