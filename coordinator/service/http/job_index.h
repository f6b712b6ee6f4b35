// All jobs that the coordinator keeps, as rows of the status page's list.
//
// The core thread puts changed jobs; pages look up windows of the list. Each row is rendered once,
// when its job changes, whatever the number of pages. Thread-safe.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_JOB_INDEX_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_JOB_INDEX_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "common/ids.h"
#include "proto/muster/v1/job.pb.h"

namespace muster::service {

class JobIndex {
 public:
  void Put(const v1::Job& job);
  void Erase(const JobId& job);

  // Selects jobs and a window of them. Active jobs come first, then waiting ones, then those that
  // have ended; in each group the newest come first.
  struct Query {
    std::string search;  // part of an id, name, owner, array or reason, in lower case; empty: all
    std::string states;  // groups or states, in lower case and separated by commas; empty: all
    size_t offset = 0;
    size_t limit = 0;
    bool operator==(const Query&) const = default;
  };
  struct Row {
    std::string id;
    std::shared_ptr<const std::string> json;  // another object after each change
  };
  struct Window {
    std::vector<Row> rows;
    size_t total = 0;                      // number of selected jobs
    std::map<std::string, size_t> states;  // number of jobs by state, of all jobs
  };
  // Pages with the same query share one window.
  std::shared_ptr<const Window> Find(const Query& query) const;

 private:
  struct Key {
    int group = 0;
    int64_t age = 0;  // nanoseconds from the submission to the epoch
    std::string id;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    Key key;
    v1::JobState state;
    std::string text;  // in which is searched
    std::shared_ptr<const std::string> json;
  };

  struct Found {
    Query query;
    uint64_t version = 0;
    std::shared_ptr<const Window> window;
  };
  // Adds some of the jobs after `after` to the window. Returns the last job that was looked at;
  // nullopt: there are no others.
  std::optional<Key> Search(const Query& query, const std::set<v1::JobState>& states,
                            const std::optional<Key>& after, Window& window) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  absl::flat_hash_map<std::string, std::unique_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
  std::map<Key, const Entry*> order_ ABSL_GUARDED_BY(mutex_);
  std::map<v1::JobState, size_t> states_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 1;             // changes with every Put and Erase
  mutable std::deque<Found> found_ ABSL_GUARDED_BY(mutex_);  // the newest last
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_JOB_INDEX_H_
