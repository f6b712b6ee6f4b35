// Limits what peers can use of a server before they authenticate.
#ifndef MUSTER_COMMON_NETWORK_ADMISSION_H_
#define MUSTER_COMMON_NETWORK_ADMISSION_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/time/now.h"
#include "common/time/time.h"

namespace muster {

// Passes accepted connections to a server. A connection is a stranger until a call on it has been
// authenticated. The strangers of an address (for IPv6, of a /64) share a budget of points, which
// refills with time:
//
//   a connection                   1
//   each call                      1
//   each KiB received              1
//   no authentication in 10 s     32, and the connection is closed
//
// A connection that authenticates returns its points. When an address exceeds its budget, its
// strangers are reset and its new connections refused for 10 s; authenticated connections continue.
// Each address is logged once an hour at most. Thread-safe.
//
// The budget is small because a server works off what it has received before an address is refused:
// with HTTP/2, 28 bytes open a stream and reset it.
class Admission {
 public:
  static constexpr int kBudget = 256;
  static constexpr int kRefillPerSecond = 32;
  // Strangers that the server has at the same time, and connections that wait until it has fewer;
  // the latter two are smaller for a process with few file descriptors.
  static constexpr size_t kStrangersPerAddress = 16;
  static constexpr size_t kStrangers = 1024;
  static constexpr size_t kWaiting = 4096;
  // Addresses with an account of their own; further ones share one.
  static constexpr size_t kAddresses = 4096;

  // `admit` gets the connections that the server may serve, on the threads that call OnConnection
  // and Update.
  explicit Admission(std::function<void(int socket, int connection)> admit,
                     std::function<SteadyTime()> clock = SteadyNow);
  // Closes the connections that wait.
  ~Admission();
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  // `connection` was accepted by `socket`, and belongs to this object.
  void OnConnection(int socket, int connection);
  // Applies the limits, and admits connections that wait. Called some times a second as long as it
  // returns true.
  bool Update();

  bool HasStrangers() const { return strangers_ > 0; }
  // `peer` is what grpc::ServerContext::peer() returns. Both ignore unknown ones.
  void OnCall(absl::string_view peer);
  void OnAuthenticated(absl::string_view peer);
  // Whether the peer's address was logged in the last hour, and need not be again.
  bool WasLogged(absl::string_view peer);

 private:
  struct Waiting {
    int socket;
    int connection;
    SteadyTime since;
  };
  // The use of the server by the strangers of an address.
  struct Account {
    double points = 0;
    SteadyTime at;  // of `points`
    size_t strangers = 0;
    std::deque<Waiting> waiting;
    SteadyTime refused_until;
    SteadyTime silent_until;  // not logged
  };
  // A connection that the server has.
  struct Stranger {
    std::string address;
    int fd;  // a duplicate of the server's
    SteadyTime since;
    double points = 1;
    uint64_t charged_bytes = 0;
  };
  using Strangers = absl::flat_hash_map<std::string, Stranger>;  // keyed by peer

  bool HasRoom(const Account& account) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The key of an address's account, with which its account may be created.
  std::string KeyOf(const std::string& address, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns whether the server may get the connection, which then counts as a stranger.
  bool Admit(const std::string& key, int connection, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Charge(const std::string& key, double points, SteadyTime now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(const std::string& key, SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckStranger(const std::string& peer, SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Does not close the server's connection.
  void Forget(Strangers::iterator stranger) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::function<void(int, int)> admit_;
  const std::function<SteadyTime()> clock_;
  const size_t max_strangers_;
  const size_t max_waiting_;
  std::atomic<size_t> strangers_ = 0;
  absl::Mutex mutex_;
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  Strangers by_peer_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Account> accounts_ ABSL_GUARDED_BY(mutex_);
  SteadyTime next_sweep_ ABSL_GUARDED_BY(mutex_);
  SteadyTime trim_at_ ABSL_GUARDED_BY(mutex_) = SteadyTime::Infinite();
};

}  // namespace muster

#endif  // MUSTER_COMMON_NETWORK_ADMISSION_H_
