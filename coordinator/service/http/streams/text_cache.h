// Texts that several pages show: each is rendered once for all of them, at a bounded rate.
#ifndef MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_TEXT_CACHE_H_
#define MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_TEXT_CACHE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster::service {

// Thread-safe.
class TextCache {
 public:
  using Text = std::shared_ptr<const std::string>;

  explicit TextCache(std::function<Time()> clock = Now) : clock_(std::move(clock)) {}

  // Returns the text of this key, rendered at most `max_age` ago; callers of the same key wait for
  // one rendering. The same object as before is returned while the text is equal. If rendering
  // fails, returns the error, also to others within `max_age`.
  absl::StatusOr<Text> Get(const std::string& key, absl::Duration max_age,
                           const std::function<absl::StatusOr<std::string>()>& render);

 private:
  struct Entry {
    absl::Mutex mutex;
    absl::StatusOr<Text> text ABSL_GUARDED_BY(mutex) = Text();
    SteadyTime fresh_until ABSL_GUARDED_BY(mutex);
    SteadyTime last_use;  // guarded by the cache's mutex
  };
  std::shared_ptr<Entry> Find(const std::string& key);

  const std::function<Time()> clock_;
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<Entry>> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_HTTP_STREAMS_TEXT_CACHE_H_
