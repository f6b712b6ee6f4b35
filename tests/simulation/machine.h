// A machine with its worker and the ranks that run on it. Ranks outlive the worker; nothing
// outlives the machine.
//
// A rank joins, fetches the unique id of its generation, passes a few barriers and ends, unless it
// is stopped, fails or loses a peer. What it did and whom it waits for is on the machine, so that a
// worker that is started again can tell it all again, as the real one does.
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
    // A rank has ended by itself, and not well.
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
  // What it still holds, for a person.
  std::string Describe() const;

  void StartWorker();
  void CrashWorker();
  // The worker says that it is leaving, and ends when its ranks have; after a while it ends them
  // itself.
  void Leave();
  // With `forget`, the disk is gone as well.
  void Crash(bool forget);
  // Crashes, and is never seen again.
  void Retire();
  void BreakStream();
  void CutNetwork(absl::Duration how_long);

  // One of its live ranks fails; false if there is none.
  bool FailSomeRank();
  void PeerDied(const Process& peer);

 private:
  enum class Stage { kLaunched, kRunning, kWaitsForWorld, kWaitsForKey, kWaitsAtBarrier, kEnded };
  struct Rank {
    Process process;
    v1::RankReport report;
    Stage stage = Stage::kLaunched;
    uint64_t barrier = 0;  // the newest it arrived at
  };
  struct Holding {
    v1::Launch launch;
    std::map<uint32_t, Rank> ranks;
    std::optional<v1::World> world;  // known to this worker
    std::string put;                 // the unique id that rank 0 made
    uint64_t passed = 0;
  };
  using Key = std::pair<std::string, uint64_t>;

  void Connect();
  v1::Hello MakeHello() const;
  void TellAgain();
  void Send(const v1::WorkerMessage& message);
  void Beat();
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

  // Runs `step` on the rank after a while, if it still runs then.
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
  uint64_t boot_ = 0;    // counts crashes of the machine: what was under way before is void
  uint64_t worker_ = 0;  // likewise of the worker
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
