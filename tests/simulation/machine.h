// A machine with its worker and the ranks that run on it. Ranks outlive the worker; nothing
// outlives the machine.
//
// A rank joins, fetches the unique id of its generation, passes a few barriers and exits, unless it
// is stopped, fails or loses a peer. The machine keeps the state of its ranks, so that a restarted
// worker can report it again, as the real one does.
#ifndef MUSTER_TESTS_SIMULATION_MACHINE_H_
#define MUSTER_TESTS_SIMULATION_MACHINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "proto/muster/v1/worker.pb.h"
#include "tests/simulation/coordinator.h"
#include "tests/simulation/world.h"

namespace muster::simulation {

class Machine {
 public:
  struct Options {
    std::string node;
    uint64_t id = 0;
    uint32_t slots = 1;
    // Called when a rank has failed by itself.
    std::function<void(const Process&)> on_death;
  };
  Machine(World& world, Coordinator& coordinator, Options options);

  const std::string& node() const { return options_.node; }
  uint64_t id() const { return options_.id; }
  bool welcomed() const { return welcomed_; }
  bool refused() const { return refused_; }
  bool retired() const { return retired_; }
  bool worker_up() const { return worker_up_; }
  bool idle() const { return holdings_.empty(); }
  // The state that the machine still holds, for failure messages.
  std::string Describe() const;

  void StartWorker();
  void CrashWorker();
  // The worker reports that it is leaving, and exits when its ranks have exited; after a while it
  // stops them itself.
  void Leave();
  // With `forget`, the disk is lost as well.
  void Crash(bool forget);
  // Crashes for good.
  void Retire();
  void BreakStream();
  void CutNetwork(absl::Duration how_long);

  // Makes one of the live ranks fail; returns false if there is none.
  bool FailSomeRank();
  void PeerDied(const Process& peer);

 private:
  enum class Stage { kLaunched, kRunning, kWaitsForWorld, kWaitsForKey, kWaitsAtBarrier, kEnded };
  struct Rank {
    Process process;
    v1::RankReport report;
    Stage stage = Stage::kLaunched;
    uint64_t barrier = 0;  // the newest one that it arrived at
  };
  struct Holding {
    v1::Launch launch;
    std::map<uint32_t, Rank> ranks;
    std::optional<v1::World> world;  // known to this worker
    std::string put;                 // the unique id created by rank 0
    uint64_t passed = 0;
  };
  using Key = std::pair<std::string, uint64_t>;

  void Connect();
  v1::Hello MakeHello() const;
  void ReportAgain();
  void Send(const v1::WorkerMessage& message);
  void SendHeartbeat();
  void SendReport(const Holding& holding, const Rank& rank);
  void SendLeaving();
  void EndIfIdle();
  bool HasLiveRanks() const;
  void SendArrivals(const Key& key, const Holding& holding, uint64_t sequence);

  void Receive(const v1::CoordinatorMessage& message);
  void OnLaunch(const v1::Launch& launch);
  void OnWorld(const v1::World& world);
  void OnStop(const v1::StopGeneration& stop);
  void OnKeyValue(const v1::KeyValue& value);
  void OnReleaseBarrier(const v1::ReleaseBarrier& release);
  void OnForget(const v1::ForgetGeneration& forget);

  // Runs `step` on the rank after a delay, if the rank still runs then.
  void Later(const Key& key, uint32_t rank, absl::Duration least, absl::Duration most,
             std::function<void(Holding&, Rank&)> step);
  void Start(Holding& holding, Rank& rank);
  void Join(Holding& holding, Rank& rank);
  void FetchUniqueId(Holding& holding, Rank& rank);
  void SetConnected(Holding& holding, Rank& rank);
  void Work(Holding& holding, Rank& rank);
  void Arrive(Holding& holding, Rank& rank);
  void End(Holding& holding, Rank& rank, v1::ExitInfo exit);
  static Key KeyOf(const Holding& holding) {
    return {holding.launch.job_id(), holding.launch.generation()};
  }

  World& world_;
  Coordinator& coordinator_;
  const Options options_;
  uint64_t boot_ = 0;  // number of crashes of the machine: actions scheduled before are void
  uint64_t worker_ =
      0;  // number of starts and crashes of the worker: actions scheduled before are void
  uint64_t incarnation_ = 0;
  bool worker_up_ = false;
  bool leaving_ = false;
  bool welcomed_ = false;
  bool refused_ = false;
  bool retired_ = false;
  SteadyTime cut_until_;
  std::shared_ptr<Stream> stream_;
  std::map<Key, Holding> holdings_;
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_MACHINE_H_
