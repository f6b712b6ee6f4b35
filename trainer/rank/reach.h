// Tests TCP connections between nodes before a job's ranks rely on them.
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

// Sends a token to every client that connects; runs a thread during its lifetime.
class ReachListener {
 public:
  // Listens on a free port of `host`, an address or a name; on all addresses of its family if this
  // machine does not have the address, as behind NAT. `word`, the token, must fit into a socket
  // buffer. Errors name the address.
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
  const int stop_;  // eventfd that becomes readable when the thread must exit
  const uint16_t port_;
  const std::string word_;
  std::thread thread_;
};

struct ReachTarget {
  Address address;
  std::string word;  // token that its ReachListener sends
};

struct ReachOptions {
  size_t at_once = 64;                         // maximum number of concurrent connection attempts
  absl::Duration timeout = absl::Seconds(15);  // limit for all targets together
  std::function<bool()> cancelled;             // polled every 100 ms; may be empty
};

struct ReachResult {
  // OK if all targets were reached; UNAVAILABLE with the cause, but not the target's name;
  // CANCELLED.
  absl::Status status;
  size_t target = 0;  // index of the first target that could not be reached
};

// Connects to all targets and waits for the token of each. Blocks.
ReachResult ReachAll(const std::vector<ReachTarget>& targets, const ReachOptions& options);

}  // namespace muster::rank

#endif  // MUSTER_TRAINER_RANK_REACH_H_
