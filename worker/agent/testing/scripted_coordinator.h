// A fake coordinator for tests: implements worker.proto on a loopback port and does only what the
// test requests.
#ifndef MUSTER_WORKER_AGENT_TESTING_SCRIPTED_COORDINATOR_H_
#define MUSTER_WORKER_AGENT_TESTING_SCRIPTED_COORDINATOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/muster/v1/worker.pb.h"

namespace muster::agent {

// Welcomes every worker and acknowledges heartbeats automatically. Thread-safe. A wait that fails
// returns false or an empty value after many seconds, so that the test can fail.
class ScriptedCoordinator {
 public:
  // Port 0 selects a free one. With `silent`, a Hello is not answered until Welcome is called.
  explicit ScriptedCoordinator(int port = 0, bool silent = false);
  // Breaks all streams.
  ~ScriptedCoordinator();
  ScriptedCoordinator(const ScriptedCoordinator&) = delete;
  ScriptedCoordinator& operator=(const ScriptedCoordinator&) = delete;

  int port() const;
  std::string address() const;

  // Answers later Hellos by ending the stream with this gRPC code; 0 restores the Welcome.
  void Refuse(int code, const std::string& message);

  // Whether later heartbeats are acknowledged.
  void SetAcknowledging(bool acknowledging);
  // The peers in later Welcomes.
  void SetPeers(std::vector<std::string> peers);
  // Identity of the store in later Welcomes; none at first.
  void SetCluster(const std::string& cluster_id, uint64_t commit_index,
                  const std::string& coordinator_start = "");

  // Answers the newest Hello of a silent coordinator.
  void Welcome();

  // Number of sessions so far, that is, of Hellos.
  int sessions() const;
  bool WaitForSessions(int count) const;
  v1::Hello hello() const;                              // the newest
  std::map<std::string, std::string> metadata() const;  // metadata of the newest Hello's call

  // Uses the newest session.
  void Send(const v1::CoordinatorMessage& message);
  void BreakSession();

  // All messages after the Hellos, in order, heartbeats included.
  std::vector<v1::WorkerMessage> messages() const;
  // Waits for the first message, past or future, for which `predicate` holds.
  bool WaitFor(const std::function<bool(const v1::WorkerMessage&)>& predicate,
               v1::WorkerMessage* found = nullptr) const;
  // Returns false if fewer than `count` messages arrive for which the predicate holds.
  bool WaitForCount(const std::function<bool(const v1::WorkerMessage&)>& predicate,
                    int count) const;
  // Waits until `predicate` holds for the newest report of a rank.
  bool WaitForRank(const std::string& job_id, uint64_t generation, uint32_t rank,
                   const std::function<bool(const v1::RankReport&)>& predicate,
                   v1::RankReport* found = nullptr) const;

  // Ends later log streams with this gRPC code; 0 accepts them again.
  void RefuseLogs(int code);

  struct Log {
    std::string data;
    std::string notice;
    std::vector<v1::LineTime> lines;
    uint64_t first_offset = 0;
    int chunks = 0;
    bool end = false;       // set in the last chunk
    bool finished = false;  // the stream has ended
    bool cancelled = false;
  };
  Log log(uint64_t transfer) const;
  bool WaitForLog(uint64_t transfer, const std::function<bool(const Log&)>& predicate) const;

  // The streams of an exec or of a copy.
  struct Stream {
    std::string out;  // stdout, or the archive
    std::string err;
    std::optional<int> exit_code;
    bool finished = false;
    bool cancelled = false;
  };
  bool WaitForStream(uint64_t transfer, const std::function<bool(const Stream&)>& predicate,
                     Stream* found = nullptr) const;
  // The exec must have opened its stream.
  void SendInput(uint64_t transfer, const v1::ExecInput& input);
  // Ends the exec's stream, as when its client disconnects.
  void BreakExec(uint64_t transfer);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace muster::agent

#endif  // MUSTER_WORKER_AGENT_TESTING_SCRIPTED_COORDINATOR_H_
