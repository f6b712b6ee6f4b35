// A coordinator for tests: speaks worker.proto on a loopback port and does what the test tells it,
// nothing else.
#ifndef MUSTER_WORKER_AGENT_SCRIPTED_COORDINATOR_H_
#define MUSTER_WORKER_AGENT_SCRIPTED_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

// Welcomes every worker and acknowledges heartbeats by itself. Thread-safe. A wait that fails after
// many seconds returns false or an empty value, for the test to complain.
class ScriptedCoordinator {
 public:
  // Port 0: a free one. With `silent` a Hello is answered by nothing until Welcome is called.
  explicit ScriptedCoordinator(int port = 0, bool silent = false);
  // Breaks all streams.
  ~ScriptedCoordinator();
  ScriptedCoordinator(const ScriptedCoordinator&) = delete;
  ScriptedCoordinator& operator=(const ScriptedCoordinator&) = delete;

  int port() const;
  std::string address() const;

  // Hellos from now on are answered by ending the stream with this gRPC code; 0: by a Welcome
  // again.
  void Refuse(int code, const std::string& message);

  // The newest Hello, of a silent one.
  void Welcome();

  // Sessions so far; each has its Hello.
  int sessions() const;
  bool WaitForSessions(int count) const;
  v1::Hello hello() const;  // the newest

  // On the newest session.
  void Send(const v1::CoordinatorMessage& message);
  void BreakSession();

  // Everything that came after the Hellos, in order, heartbeats included.
  std::vector<v1::WorkerMessage> messages() const;
  // The first message for which `predicate` holds, among those that came and those that come.
  bool WaitFor(const std::function<bool(const v1::WorkerMessage&)>& predicate,
               v1::WorkerMessage* found = nullptr) const;
  // The newest report of a rank, once `predicate` holds for it.
  bool WaitForRank(const std::string& job_id, uint64_t generation, uint32_t rank,
                   const std::function<bool(const v1::RankReport&)>& predicate,
                   v1::RankReport* found = nullptr) const;

  struct Log {
    std::string data;
    uint64_t first_offset = 0;
    int chunks = 0;
    bool end = false;       // the last chunk said so
    bool finished = false;  // the stream is over
    bool cancelled = false;
  };
  Log log(uint64_t transfer) const;
  bool WaitForLog(uint64_t transfer, const std::function<bool(const Log&)>& predicate) const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_SCRIPTED_COORDINATOR_H_
