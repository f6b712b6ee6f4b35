// Test harness: a core with a manual clock, an in-memory store and scripted workers.
//
// After every step, it loads the records into a second core, which must show the same jobs, because
// the coordinator can be killed between any two steps.
#ifndef MUSTER_COORDINATOR_CORE_TESTING_HARNESS_H_
#define MUSTER_COORDINATOR_CORE_TESTING_HARNESS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/core/core.h"
#include "coordinator/core/event.h"
#include "proto/muster/v1/worker.pb.h"

namespace muster::core::testing {

// Specs of a train job and of a command job.
v1::JobSpec MakeSpec(uint32_t nodes, uint32_t ranks_per_node = 1);
v1::JobSpec MakeCommandSpec(uint32_t nodes, uint32_t ranks_per_node = 1);

v1::ExitInfo ExitWith(int code);
v1::ExitInfo KilledBy(int signal);

class Harness {
 public:
  explicit Harness(Options options = DefaultOptions());
  // The lease of ranks is that of their node, so that a node is lost in one step.
  static Options DefaultOptions();

  Effects Step(const Event& event, bool more = false);
  void Advance(absl::Duration by) { now_ = {now_.steady + by, now_.wall + by}; }
  void StepWallClock(absl::Duration by) {
    now_.wall += by;
    wall_clock_is_right_ = false;
  }
  // Advances the clock to the next deadline and steps a Tick.
  Effects TickAtDeadline();
  // Advances the clock in small steps and ticks whenever due; the nodes in `alive` send heartbeats.
  // Returns the concatenated sends and log lines of the ticks.
  Effects Run(absl::Duration by, const std::vector<std::string>& alive = {});

  // Replaces the core by one loaded from the records; all streams are closed.
  void Restart();
  // The same on a machine that has just booted.
  void Reboot();

  // ---- Clients
  std::string Submit(v1::JobSpec spec, const std::string& idempotency_key = "");
  // Submits an array of `count` tasks with the same spec; returns its id.
  std::string SubmitArray(v1::JobSpec spec, uint32_t count, uint32_t concurrency = 0,
                          const std::string& idempotency_key = "");
  absl::StatusOr<v1::Job> TrySubmit(v1::JobSpec spec);
  absl::StatusOr<v1::Job> CancelArray(const std::string& array);
  // The array; an empty message when it is unknown.
  v1::JobArray GetArray(const std::string& array) const;
  absl::StatusOr<v1::Job> Cancel(const std::string& job);
  absl::StatusOr<v1::Job> Hold(const std::string& job);
  absl::StatusOr<v1::Job> Release(const std::string& job);
  absl::StatusOr<v1::Job> Requeue(const std::string& job);
  v1::Job Get(const std::string& job) const;
  v1::JobState State(const std::string& job) const { return Get(job).state(); }
  std::vector<std::string> EventTypes(const std::string& job) const;

  // ---- Workers
  v1::Hello MakeHello(const std::string& node, uint32_t slots, uint64_t incarnation = 1) const;
  // Opens a session, which becomes the current session of the node.
  Effects Open(const v1::Hello& hello);
  Effects Join(const std::string& node, uint32_t slots = 1, uint64_t incarnation = 1) {
    return Open(MakeHello(node, slots, incarnation));
  }
  Effects CloseStream(const std::string& node);
  Effects SendMessage(const std::string& node, v1::WorkerMessage message);
  Effects SendHeartbeat(const std::string& node);
  Effects SendLeaving(const std::string& node);
  Effects Arrive(const std::string& node, const std::string& job, std::vector<uint32_t> ranks,
                 uint64_t sequence = 1, const std::string& group = "world");
  Effects Report(const std::string& node, const std::string& job, const v1::RankReport& rank);
  Effects ReportPhase(const std::string& node, const std::string& job, uint32_t rank,
                      v1::RankPhase phase);
  Effects ReportExit(const std::string& node, const std::string& job, uint32_t rank,
                     v1::ExitInfo exit);
  // Reports the phase for all ranks of the job's generation, on all nodes.
  void ReportPhaseOfAll(const std::string& job, v1::RankPhase phase);
  // Takes the job to RUNNING.
  void BringUp(const std::string& job);
  void ExitAll(const std::string& job, const v1::ExitInfo& exit);
  static v1::RankReport MakeReport(uint32_t rank, v1::RankPhase phase);
  v1::GenerationReport MakeInventory(const std::string& job,
                                     std::vector<v1::RankReport> ranks) const;

  Core& core() { return *core_; }
  Time now() const { return now_; }
  const std::map<std::string, std::string>& records() const { return records_; }
  // Replaces a record, for the next Restart.
  void PutRecord(const std::string& key, std::string value) { records_[key] = std::move(value); }
  // Makes the record of the node's ranks in generation 1 one of an earlier build, which did not
  // record the barriers that ended ranks have passed.
  void ForgetPassedBarriers(const std::string& job, uint32_t node_rank);
  void EraseRecord(const std::string& key) { records_.erase(key); }
  SessionId session(const std::string& node) const { return sessions_.at(node); }
  v1::NodeState StateOf(const std::string& node) const { return GetNode(node).state(); }
  // The node; an empty message when it is unknown.
  v1::Node GetNode(const std::string& node) const;

 private:
  std::unique_ptr<Core> Load(Effects* effects = nullptr) const;
  std::vector<store::Record> StoredRecords() const;
  // Applies the writes in batches, which must be within their bounds. A coordinator that starts
  // between two of them must find the records from before the step or from after it.
  void Apply(const Effects& effects);
  void CheckRecords() const;
  void CheckTime(const Core& again, const JobId& id) const;

  Options options_;
  Time now_;
  bool wall_clock_is_right_ = true;
  bool checks_each_step_ = true;  // in Run, only steps with writes
  std::map<std::string, std::string> records_;
  std::unique_ptr<Core> core_;
  std::map<std::string, SessionId> sessions_;
  uint64_t next_session_ = 1;
  uint64_t next_request_ = 1;
  uint64_t next_job_ = 1;
  std::map<uint64_t, absl::StatusOr<v1::Job>> replies_;
};

// The number of messages of `kind` that a step sends to the session.
int CountSent(const Effects& effects, SessionId session, v1::CoordinatorMessage::KindCase kind);
// The first of them; null when there is none.
const v1::CoordinatorMessage* FindSent(const Effects& effects, SessionId session,
                                       v1::CoordinatorMessage::KindCase kind);

}  // namespace muster::core::testing

#endif  // MUSTER_COORDINATOR_CORE_TESTING_HARNESS_H_
