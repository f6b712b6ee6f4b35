// Delivers directives to the ranks of a generation that watch for them.
#ifndef MUSTER_WORKER_AGENT_RANK_DIRECTIVES_H_
#define MUSTER_WORKER_AGENT_RANK_DIRECTIVES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "proto/muster/v1/rank.pb.h"
#include "worker/agent/rank/rendezvous.h"

namespace muster::agent {

// Must be used on the loop's thread. Watch calls that are left when it is destroyed end with
// UNAVAILABLE.
class Directives {
 public:
  // A rank's call. `done` is called exactly once.
  struct Watcher {
    uint32_t rank = 0;
    std::function<void(const v1::Directive&)> on_directive;
    std::function<void(absl::Status)> done;
  };

  // Accepts four calls for each of the `ranks`.
  explicit Directives(size_t ranks) : max_watchers_(4 * ranks) {}
  ~Directives();
  Directives(const Directives&) = delete;
  Directives& operator=(const Directives&) = delete;

  // Whether the ranks have been directed to stop or to abort.
  bool stopping() const { return last_.has_value(); }
  bool aborting() const { return stopping() && last_->kind() == v1::Directive::ABORT; }

  // Sends a directive to stop or abort to the present and all later watchers. Returns false, and
  // sends nothing, if it equals the last one.
  bool Stop(const v1::Directive& directive);
  // Directs rank 0 to write a checkpoint. Without effect if it does not watch for directives, or
  // once the ranks are being stopped: they may write one by themselves.
  void RequestCheckpoint();

  // Delivers the last directive to abort or stop, if any, and each later directive, until End.
  // RESOURCE_EXHAUSTED if there are too many calls.
  void Watch(CallId id, Watcher watcher);
  // The caller has cancelled.
  void Cancel(CallId id);
  // The generation is over.
  void End();

 private:
  const size_t max_watchers_;
  std::optional<v1::Directive> last_;  // to abort or stop, for later Watch calls
  std::map<CallId, Watcher> watchers_;
  bool ended_ = false;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_RANK_DIRECTIVES_H_
