#include "coordinator/service/http/job_index.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job.h"
#include "coordinator/service/http/json/job_json.h"

namespace muster::service {
namespace {

struct Group {
  const char* name;
  int order;
};
constexpr size_t kWindowsKept = 8;
// The most jobs that a search looks at in one go: the core thread waits for the mutex in Put.
constexpr int kSearchedAtOnce = 512;

constexpr Group kActive = {"active", 0};
constexpr Group kWaiting = {"waiting", 1};
constexpr Group kEnded = {"ended", 2};

const Group& GroupOf(v1::JobState state) {
  if (core::IsTerminal(state)) return kEnded;
  return core::IsActive(state) ? kActive : kWaiting;
}

std::string NameOf(v1::JobState state) { return absl::AsciiStrToLower(v1::JobState_Name(state)); }

// The states that the names select; all if there are none.
std::set<v1::JobState> StatesOf(const std::string& names) {
  const std::set<std::string> wanted = absl::StrSplit(names, ',', absl::SkipEmpty());
  std::set<v1::JobState> states;
  for (int value = v1::JobState_MIN; value <= v1::JobState_MAX; ++value) {
    if (!v1::JobState_IsValid(value)) continue;
    const auto state = static_cast<v1::JobState>(value);
    if (wanted.empty() || wanted.count(NameOf(state)) != 0 ||
        wanted.count(GroupOf(state).name) != 0) {
      states.insert(state);
    }
  }
  return states;
}

}  // namespace

void JobIndex::Put(const v1::Job& job) {
  auto entry = std::make_unique<Entry>();
  entry->key = {GroupOf(job.state()).order, -absl::ToUnixNanos(FromProto(job.submit_time())),
                job.job_id()};
  entry->state = job.state();
  entry->text =
      absl::AsciiStrToLower(absl::StrCat(job.job_id(), "\n", job.spec().name(), "\n", job.owner(),
                                         "\n", job.array_id(), "\n", job.reason()));
  entry->json = std::make_shared<const std::string>(JobRowJson(job));
  absl::MutexLock lock(&mutex_);
  ++version_;
  std::unique_ptr<Entry>& slot = entries_[job.job_id()];
  if (slot != nullptr) {
    order_.erase(slot->key);
    --states_[slot->state];
  }
  slot = std::move(entry);
  order_[slot->key] = slot.get();
  ++states_[slot->state];
}

void JobIndex::Erase(const JobId& job) {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(job.value());
  if (found == entries_.end()) return;
  ++version_;
  order_.erase(found->second->key);
  --states_[found->second->state];
  entries_.erase(found);
}

std::shared_ptr<const JobIndex::Window> JobIndex::Find(const Query& query) const {
  const std::set<v1::JobState> states = StatesOf(query.states);
  auto window = std::make_shared<Window>();
  uint64_t version = 0;
  {
    absl::MutexLock lock(&mutex_);
    for (const Found& found : found_) {
      if (found.version == version_ && found.query == query) return found.window;
    }
    version = version_;
    for (const auto& [state, count] : states_) {
      if (count > 0) window->states[NameOf(state)] = count;
    }
  }
  // A job that changes meanwhile may be missed: the version has changed then, too.
  std::optional<Key> last;
  do {
    absl::MutexLock lock(&mutex_);
    last = Search(query, states, last, *window);
  } while (last.has_value());
  absl::MutexLock lock(&mutex_);
  found_.push_back({query, version, window});
  if (found_.size() > kWindowsKept) found_.pop_front();
  return window;
}

std::optional<JobIndex::Key> JobIndex::Search(const Query& query,
                                              const std::set<v1::JobState>& states,
                                              const std::optional<Key>& after,
                                              Window& window) const {
  auto next = after.has_value() ? order_.upper_bound(*after) : order_.begin();
  const Key* last = nullptr;
  for (int i = 0; next != order_.end() && i < kSearchedAtOnce; ++i, ++next) {
    const auto& [key, entry] = *next;
    last = &key;
    if (states.count(entry->state) == 0) continue;
    if (!query.search.empty() && !absl::StrContains(entry->text, query.search)) continue;
    if (window.total >= query.offset && window.rows.size() < query.limit) {
      window.rows.push_back({key.id, entry->json});
    }
    ++window.total;
  }
  if (next == order_.end()) return std::nullopt;
  return *last;
}

}  // namespace muster::service
