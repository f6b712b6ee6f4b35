// Collects the ranks whose reports have changed, so that the changes of one loop iteration are sent
// together.
#ifndef MUSTER_WORKER_AGENT_GENERATION_REPORT_QUEUE_H_
#define MUSTER_WORKER_AGENT_GENERATION_REPORT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "worker/agent/event_loop.h"

namespace muster::agent {

// Must be used on the loop's thread.
class ReportQueue {
 public:
  // `send` sends the reports of these ranks; it is not called with none.
  ReportQueue(EventLoop& loop, std::function<void(const std::set<uint32_t>& ranks)> send)
      : loop_(loop), send_(std::move(send)) {}
  ~ReportQueue() { *self_ = nullptr; }
  ReportQueue(const ReportQueue&) = delete;
  ReportQueue& operator=(const ReportQueue&) = delete;

  // The rank's report has changed.
  void Add(uint32_t rank) {
    if (changed_.empty()) {
      loop_.Post([self = self_] {
        if (*self != nullptr) (*self)->Send();
      });
    }
    changed_.insert(rank);
    changed_since_hello_.insert(rank);
  }
  // A Hello with all reports is sent.
  void OnHello() { changed_since_hello_.clear(); }
  // Sends the changes since the newest Hello, whose session has just been opened: messages in
  // between were dropped.
  void Resend() {
    changed_.insert(changed_since_hello_.begin(), changed_since_hello_.end());
    Send();
  }

 private:
  void Send() {
    if (!changed_.empty()) send_(std::exchange(changed_, {}));
  }

  EventLoop& loop_;
  const std::function<void(const std::set<uint32_t>&)> send_;
  std::set<uint32_t> changed_;
  std::set<uint32_t> changed_since_hello_;
  const std::shared_ptr<ReportQueue*> self_ = std::make_shared<ReportQueue*>(this);
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_GENERATION_REPORT_QUEUE_H_
