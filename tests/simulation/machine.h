// A machine with its worker and the ranks that run on it. Ranks outlive the worker; nothing
// outlives the machine. The worker's decisions on leases and on the coordinator's store are the
// product's: LeaseKeeper, LeaseWitness, Promises and Membership.
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
#include <vector>

#include "proto/muster/v1/worker.pb.h"
#include "tests/simulation/coordinator.h"
#include "tests/simulation/world.h"
#include "worker/agent/lease/lease_keeper.h"
#include "worker/agent/lease/promises.h"
#include "worker/agent/session/membership.h"

namespace muster::simulation {

class Machine {
 public:
  // Receives the answer of a peer; `process` is the coordinator whose answer it forwards.
  using Reply = std::function<void(const v1::PeerAnswer&, uint64_t process)>;
  struct Options {
    std::string node;
    uint64_t id = 0;
    uint32_t slots = 1;
    // Called when a rank has failed by itself.
    std::function<void(const Process&)> on_death;
    // Asks the other machines' workers.
    std::function<void(const v1::LeaseQuestion&, const Reply&)> ask;
  };
  Machine(World& world, Coordinator& coordinator, Options options);

  const std::string& node() const { return options_.node; }
  uint64_t id() const { return options_.id; }
  // Whether it has a session with a coordinator that it is not in conflict with.
  bool welcomed() const { return welcomed_ && Obeys(); }
  bool refused() const { return refused_; }
  bool retired() const { return retired_; }
  bool worker_up() const { return worker_up_; }
  // Whether it has crashed and no worker has started since.
  bool is_off() const { return off_; }
  bool idle() const { return holdings_.empty(); }
  bool HasLiveRanks() const;
  bool HasLiveRanks(const std::string& job, uint64_t generation) const;
  uint64_t live_ranks() { return LiveRanks().size(); }
  // The state that the machine still holds, for failure messages.
  std::string Describe() const;

  void StartWorker();
  void CrashWorker();
  // Replaces a worker of the previous protocol version; returns false if it is of the newest.
  bool UpgradeWorker();
  // The worker reports that it is leaving, and exits when its ranks have exited; after a while it
  // stops them itself.
  void Leave();
  // With `forget`, the disk is lost as well.
  void Crash(bool forget);
  // Crashes permanently.
  void Retire();
  void BreakStream();
  // Cuts it off from the coordinator, which both notice soon.
  void CutNetwork(absl::Duration how_long);
  // World::cut_links has changed.
  void OnLinksCut();

  // ---- Stopped processes, which continue after the time `by`. The methods for one rank return
  // false if there is none.
  void PauseWorker(absl::Duration by);
  bool PauseSomeRank(absl::Duration by);
  bool PauseSomeShim(absl::Duration by);
  void PauseMachine(absl::Duration by);

  // Makes one of the live ranks fail; returns false if there is none.
  bool FailSomeRank();
  void PeerDied(const Process& peer);
  // The worker receives the question of another machine's worker.
  void AskAsPeer(uint64_t from, v1::LeaseQuestion question, Reply reply);
  // Runs `deliver` when a message to the other machine arrives, if it does.
  void SendToPeer(uint64_t to, std::function<void()> deliver);
  // The number of ranks whose lease has ended.
  uint64_t expired_leases() const { return expired_leases_; }

 private:
  enum class Stage {
    kLaunched,
    kRunning,
    kWaitsForWorld,
    kWaitsForKey,
    kWaitsAtBarrier,
    kGone,  // its stopped shim has not noticed yet
    kEnded
  };
  struct Rank {
    Process process;
    v1::RankReport report;
    Stage stage = Stage::kLaunched;
    uint64_t barrier = 0;  // the newest one that it arrived at
    uint64_t step = 0;     // step of rank 0's newest checkpoint
    bool unkillable = false;
    SteadyTime paused_until;
    SteadyTime shim_paused_until;
  };
  struct Holding {
    v1::Launch launch;
    std::map<uint32_t, Rank> ranks;
    std::optional<v1::World> world;  // known to this worker
    std::string put;                 // the unique id created by rank 0
    uint64_t passed = 0;
    SteadyTime deadline = SteadyTime::Infinite();  // end of its lease, held by its shims
  };
  using Key = std::pair<std::string, uint64_t>;

  // Whether the worker acts on the coordinator's messages.
  bool Obeys() const { return is_old_ || !membership_->in_conflict(); }

  bool IsWorkerPaused() const { return worker_paused_until_ > world_.scheduler.now().steady; }
  // Runs the action when the worker is not stopped.
  void WhenWorkerRuns(std::function<void()> action);

  // ---- Session
  void Connect();
  v1::Hello MakeHello();
  // Repeats what the coordinator may have missed before this session, and unanswered calls.
  void ReportAgain();
  void SendCalls(const Key& key, const Holding& holding);
  // Drops the message unless this worker has an open session without a conflict.
  void Send(const v1::WorkerMessage& message);
  void SendNow(const v1::WorkerMessage& message);
  // Sends a copy of the message with something out of bounds, or something else that is.
  void SendGarbage(v1::WorkerMessage message);
  void Transmit(const v1::WorkerMessage& message, const std::optional<v1::WorkerMessage>& used);
  void SendHeartbeat();
  void SendReport(const Holding& holding, const Rank& rank);
  void SendLeaving();
  void EndIfIdle();
  void SendArrivals(const Key& key, const Holding& holding, uint64_t sequence);
  void SendJobRecords();
  v1::GenerationReport Inventory(const Key& key, const Holding& holding) const;

  // ---- Messages from the coordinator
  void Receive(const v1::CoordinatorMessage& message);
  // Adds a violation for what a worker of an older version does not understand.
  void CheckVersion(const v1::CoordinatorMessage& message);
  void OnWelcome(const v1::Welcome& welcome);
  void OnHeartbeatAck(const v1::HeartbeatAck& ack);
  void OnJoinCluster(const v1::JoinCluster& join);
  void OnLaunch(const v1::Launch& launch);
  // Adds a violation unless a repetition of the launch is the reason for refusing it.
  void RefuseLaunch(const v1::Launch& launch);
  void OnWorld(const v1::World& world);
  void OnStop(const v1::StopGeneration& stop);
  void OnKeyValue(const v1::KeyValue& value);
  void OnReleaseBarrier(const v1::ReleaseBarrier& release);
  void OnForget(const v1::ForgetGeneration& forget);
  void OnFenceSet(const v1::FenceSet& set);
  void OnBans(const v1::Bans& bans);

  // ---- Ranks
  // Runs `step` on the rank after a delay, if the rank still runs then.
  void Later(const Key& key, uint32_t rank, absl::Duration least, absl::Duration most,
             std::function<void(Holding&, Rank&)> step);
  // Like Later, for an action of the rank itself: a stopped rank does it when it continues.
  void Act(const Holding& holding, const Rank& rank, absl::Duration least, absl::Duration most,
           std::function<void(Holding&, Rank&)> step);
  std::vector<std::pair<Holding*, Rank*>> LiveRanks();
  void OutliveKill(const Key& key, Rank& rank);
  void Start(Holding& holding, Rank& rank);
  void Join(Holding& holding, Rank& rank);
  void FetchUniqueId(Holding& holding, Rank& rank);
  void SetConnected(Holding& holding, Rank& rank);
  void Work(Holding& holding, Rank& rank);
  void Arrive(Holding& holding, Rank& rank);
  // ---- Checkpoints of rank 0
  bool SavesCheckpoints(const Holding& holding, const Rank& rank) const;
  void ContinueFromCheckpoint(Rank& rank);
  void SaveCheckpoint(const Holding& holding, Rank& rank);
  void RemoveOldCheckpoints(const Holding& holding, const Rank& rank);

  void End(Holding& holding, Rank& rank, v1::ExitInfo exit);
  // The rank ends by itself, but its shim does not notice, or the shim is to kill it and cannot.
  void EndWhenShimContinues(Holding& holding, Rank& rank, v1::ExitInfo exit);
  static v1::ExitInfo StoppedByWorker(int signal);

  // ---- Leases and the coordinator's store
  agent::LeaseKeeper::Outside MakeLeaseOutside();
  void SetDeadline(const Key& key, SteadyTime deadline);
  void AskPeers(v1::LeaseQuestion question, absl::Duration patience,
                std::function<void(const v1::PeerAnswer&)> answered, std::function<void()> done);
  void CountAnswer(const v1::PeerAnswer& answer);
  agent::LeaseWitness::Outside MakeWitnessOutside();
  std::string AcknowledgedAddress() const {
    return acknowledged_address_.has_value() ? std::to_string(*acknowledged_address_) : "";
  }
  // Calls `done` with whether the coordinator's address refuses a connection.
  void Probe(std::function<void(bool refused)> done);
  // Looks after leases and conflicts, as the worker does twice a second.
  void Tick();
  // Keeps the worker's identity for its successor, which restores it.
  void StoreIdentity();
  void RestoreIdentity();
  // Whether the store of the coordinator process is not the one that the live ranks belong to, as
  // far as the worker can know.
  bool IsWrongStore(uint64_t process) const;
  // A rank is to be ended because of `why`: adds a violation if a wrong store decided it.
  void CheckMayEnd(const Key& key, bool wrong_store, const std::string& why);
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
  bool off_ = true;
  // The worker speaks the previous protocol version: it does not know of stores, machine ids,
  // leases of ranks, or ranks that cannot be killed.
  bool is_old_ = false;
  bool leaving_ = false;
  bool welcomed_ = false;
  bool refused_ = false;
  bool retired_ = false;
  SteadyTime cut_until_;
  SteadyTime worker_paused_until_;
  SteadyTime hello_sent_;
  uint64_t sequence_ = 0;
  std::map<uint64_t, SteadyTime> sent_;
  uint64_t next_question_ = 1;
  std::map<uint64_t, Reply> replies_;             // to questions of peers
  uint64_t known_address_ = 0;                    // where the worker looks for the coordinator
  std::optional<uint64_t> acknowledged_address_;  // of the coordinator that last acknowledged it
  uint64_t expired_leases_ = 0;
  std::shared_ptr<Stream> stream_;
  std::map<Key, Holding> holdings_;
  std::optional<agent::Promises> promises_;
  std::optional<agent::LeaseKeeper> keeper_;
  std::optional<agent::LeaseWitness> witness_;
  std::optional<agent::Membership> membership_;
  // ---- The coordinator's store. The stored members are on disk.
  v1::PromiseRecord stored_promises_;
  v1::Hello stored_identity_;
  SteadyTime identity_stored_;
  Coordinator::SeenCommit seen_;  // the newest that the worker should know
  Coordinator::SeenCommit stored_seen_;
  bool session_of_wrong_store_ = false;
  bool answered_by_wrong_store_ = false;  // the latest question
};

}  // namespace muster::simulation

#endif  // MUSTER_TESTS_SIMULATION_MACHINE_H_
