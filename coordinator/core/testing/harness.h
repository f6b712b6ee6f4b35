// A core on a clock and a store that a test moves by hand, and workers that say what the test has
// them say.
//
// After every step the records are loaded into a second core, which must show the same jobs: the
// coordinator can be killed between any two steps.
#ifndef MUSTER_COORDINATOR_CORE_TESTING_HARNESS_H_
#define MUSTER_COORDINATOR_CORE_TESTING_HARNESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/event.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core::testing {

// Train jobs unless a command is given.
v1::JobSpec MakeSpec(uint32_t nodes, uint32_t ranks_per_node = 1);
v1::JobSpec MakeCommandSpec(uint32_t nodes, uint32_t ranks_per_node = 1);

v1::ExitInfo ExitWith(int code);
v1::ExitInfo KilledBy(int signal);

class Harness {
 public:
  explicit Harness(Options options = DefaultOptions());
  static Options DefaultOptions();

  Effects Step(const Event& event);
  void Advance(absl::Duration by) { now_ = {now_.steady + by, now_.wall + by}; }
  // Moves time to the next deadline and ticks.
  Effects TickAtDeadline();
  // Moves time on in small steps, ticking whenever it is due; `beating` nodes send heartbeats.
  // Returns what the ticks did, their sends and log lines one after the other.
  Effects Run(absl::Duration by, const std::vector<std::string>& beating = {});

  // Loads a new coordinator from the records; every stream is gone.
  void Restart();

  // ---- clients
  std::string Submit(v1::JobSpec spec, const std::string& idempotency_key = "");
  absl::StatusOr<v1::Job> Cancel(const std::string& job);
  absl::StatusOr<v1::Job> Hold(const std::string& job);
  absl::StatusOr<v1::Job> Release(const std::string& job);
  absl::StatusOr<v1::Job> Requeue(const std::string& job);
  v1::Job Get(const std::string& job) const;
  v1::JobState State(const std::string& job) const { return Get(job).state(); }
  std::vector<std::string> EventTypes(const std::string& job) const;

  // ---- workers
  v1::Hello MakeHello(const std::string& node, uint32_t slots, uint64_t incarnation = 1) const;
  // Opens a session; the last one that was opened is the node's.
  Effects Open(const v1::Hello& hello);
  Effects Join(const std::string& node, uint32_t slots = 1, uint64_t incarnation = 1) {
    return Open(MakeHello(node, slots, incarnation));
  }
  Effects CloseStream(const std::string& node);
  Effects Say(const std::string& node, v1::WorkerMessage message);
  Effects Beat(const std::string& node);
  Effects Leave(const std::string& node);
  Effects Arrive(const std::string& node, const std::string& job, std::vector<uint32_t> ranks,
                 uint64_t sequence = 1, const std::string& group = "world");
  Effects Report(const std::string& node, const std::string& job, const v1::RankReport& rank);
  Effects ReportPhase(const std::string& node, const std::string& job, uint32_t rank,
                      v1::RankPhase phase);
  Effects ReportExit(const std::string& node, const std::string& job, uint32_t rank,
                     v1::ExitInfo exit);
  // All ranks of the job's generation, wherever they are.
  void ReportPhaseOfAll(const std::string& job, v1::RankPhase phase);
  void BringUp(const std::string& job);
  void ExitAll(const std::string& job, const v1::ExitInfo& exit);
  static v1::RankReport MakeReport(uint32_t rank, v1::RankPhase phase);
  v1::GenerationReport MakeInventory(const std::string& job,
                                     std::vector<v1::RankReport> ranks) const;

  Core& core() { return *core_; }
  Time now() const { return now_; }
  const std::map<std::string, std::string>& records() const { return records_; }
  SessionId session(const std::string& node) const { return sessions_.at(node); }
  v1::NodeState StateOf(const std::string& node) const { return GetNode(node).state(); }
  // Empty when there is no such node.
  v1::Node GetNode(const std::string& node) const;

 private:
  std::unique_ptr<Core> Load(Effects* effects = nullptr) const;
  void Apply(const Effects& effects);
  void CheckRecords() const;

  Options options_;
  Time now_;
  std::map<std::string, std::string> records_;
  std::unique_ptr<Core> core_;
  std::map<std::string, SessionId> sessions_;
  uint64_t next_session_ = 1;
  uint64_t next_request_ = 1;
  uint64_t next_job_ = 1;
  std::map<uint64_t, absl::StatusOr<v1::Job>> replies_;
};

// How many messages of `kind` a step sends to the session.
int CountSent(const Effects& effects, SessionId session, v1::CoordinatorMessage::KindCase kind);
// The first of them, or nothing.
const v1::CoordinatorMessage* FindSent(const Effects& effects, SessionId session,
                                       v1::CoordinatorMessage::KindCase kind);

}  // namespace muster::core::testing

#endif  // MUSTER_COORDINATOR_CORE_TESTING_HARNESS_H_
