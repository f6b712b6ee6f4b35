// Whether nodes can be connected to, by sockets of its own: before a job's ranks rely on it.
#ifndef MUSTER_TRAINER_RANK_REACH_H_
#define MUSTER_TRAINER_RANK_REACH_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/address.h"

namespace muster::rank {

// Answers whoever connects with a word, from a thread of its own, for as long as it lives.
class ReachListener {
 public:
  // On a free port of `host`, a number or a name; on every address of its family where this machine
  // has no such address, as behind an address translation. `word` fits into a socket's buffer.
  // Errors name the address.
  static absl::StatusOr<std::unique_ptr<ReachListener>> Start(const std::string& host,
                                                              std::string word);
  ~ReachListener();
  ReachListener(const ReachListener&) = delete;
  ReachListener& operator=(const ReachListener&) = delete;

  uint16_t port() const { return port_; }

 private:
  ReachListener(int socket, int stop, uint16_t port, std::string word);
  void Answer();

  const int socket_;
  const int stop_;  // an eventfd: readable once the thread is to end
  const uint16_t port_;
  const std::string word_;
  std::thread thread_;
};

struct ReachTarget {
  Address address;
  std::string word;  // that its ReachListener says
};

struct ReachOptions {
  size_t at_once = 64;                         // connects under way
  absl::Duration timeout = absl::Seconds(15);  // for all of them together
  std::function<bool()> cancelled;             // asked ten times a second; may be empty
};

struct ReachResult {
  // OK: all were reached. UNAVAILABLE says what happened, without a name; CANCELLED.
  absl::Status status;
  size_t target = 0;  // the first that was found to be out of reach
};

// Connects to all of them and waits for each one's word. Blocks.
ReachResult ReachAll(const std::vector<ReachTarget>& targets, const ReachOptions& options);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_REACH_H_
