#include "tests/simulation/simulation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/proto_time.h"
#include "coordinator/core/jobs/job.h"
#include "spec/spec.h"

namespace muster::simulation {
namespace {

constexpr absl::Duration kFaultDuration = absl::Seconds(120);
constexpr absl::Duration kHealDuration = absl::Seconds(600);

// A coordinator recovers only jobs with valid specs from the records of workers.
v1::JobSpec MakeValidSpec() {
  v1::JobSpec spec = *spec::Parse(
      "train: {model: {name: small_cnn}, dataset: {name: fashion_mnist, path: /data}, "
      "epochs: 1, global_batch: 48, optimizer: {learning_rate: 0.1}}",
      "job.yaml", {});
  spec::ApplyDefaults(spec);
  spec.set_name("job");
  // Shorter than every lease, which it would extend.
  *spec.mutable_failure_timeout() = ToProto(absl::Seconds(1));
  spec.clear_hang_timeout();
  return spec;
}

// Each cluster has its own kinds of faults.
std::unique_ptr<World> MakeWorld(uint64_t seed, Simulation::Kind kind, Mutation mutation,
                                 bool tracing) {
  auto world = std::make_unique<World>(seed);
  Random& random = world->random;
  world->tracing = tracing;
  world->mutation = mutation;
  if (kind != Simulation::Kind::kAllFaults) {
    world->cuts = true;
    world->long_commands = true;
    world->loses_messages = kind == Simulation::Kind::kCuts;
    world->job_lease = absl::Seconds(kind == Simulation::Kind::kCuts ? 10 : 30);
    return world;
  }
  world->forgetful = random.Below(2) == 0;
  world->orderly = random.Below(4) == 0;
  world->loses_stores = !world->orderly && random.Below(4) == 0;
  world->garbles_reports = !world->orderly && random.Below(4) == 0;
  // A worker of version 1 does not name its machine: ranks that one with a name does not know are
  // lost with their lease, although nothing has failed.
  world->mixes_versions = random.Below(4) == 0 && !world->orderly;
  world->pauses = !world->orderly && random.Below(3) == 0;
  world->job_lease = absl::Seconds(10 + 10 * random.Below(3));
  // Not drawn, so that the other clusters stay as they were without this kind.
  world->cuts = !world->orderly && seed % 2 == 0;
  return world;
}

}  // namespace

Simulation::Simulation(uint64_t seed, bool tracing, absl::Duration wall_step)
    : Simulation(seed, Kind::kAllFaults, Mutation::kNone, tracing) {
  world_->scheduler.StepWallClock(wall_step);
}

Simulation::Simulation(uint64_t seed, Kind kind, Mutation mutation, bool tracing)
    : kind_(kind), world_(MakeWorld(seed, kind, mutation, tracing)), coordinator_(*world_) {
  node_count_ = 1 + Below(kind == Kind::kAllFaults ? 4 : 6);
  for (uint64_t i = 0; i < node_count_; ++i) {
    AddMachine(absl::StrCat("node-", i), static_cast<uint32_t>(1 + Below(3)));
  }
}

void Simulation::Run() {
  coordinator_.Start();
  for (const auto& machine : machines_) machine->StartWorker();
  if (kind_ == Kind::kCuts) {
    Repeat(absl::Milliseconds(100), absl::Seconds(15), &Simulation::SubmitSomeJob);
    Repeat(absl::Seconds(2), absl::Seconds(20), &Simulation::CutNetwork);
    Repeat(absl::Seconds(1), absl::Seconds(8), &Simulation::CauseFaultNearCut);
    return RunToTheEnd();
  }
  Repeat(absl::Milliseconds(100), absl::Seconds(6), &Simulation::SubmitSomeJob);
  // Fault rates differ widely between clusters.
  Repeat(absl::Milliseconds(100), absl::Seconds(1 << (1 + Below(5))),
         world_->orderly ? &Simulation::CauseOrderlyFault : &Simulation::CauseFault);
  Repeat(absl::Seconds(1), absl::Seconds(10), &Simulation::HoldRequeueOrCancelSomeJob);
  Repeat(absl::Seconds(1), absl::Seconds(20), &Simulation::OperateSomeNode);
  if (world_->mixes_versions) {
    Repeat(absl::Seconds(5), absl::Seconds(60), &Simulation::UpgradeSomeWorker);
  }
  if (world_->pauses) Repeat(absl::Seconds(1), absl::Seconds(30), &Simulation::CausePause);
  if (world_->cuts) Repeat(absl::Seconds(5), absl::Seconds(40), &Simulation::CutNetwork);
  if (world_->loses_stores) {
    Repeat(absl::Seconds(1), absl::Seconds(30), &Simulation::KeepBackup);
    Repeat(absl::Seconds(5), absl::Seconds(60), &Simulation::CauseStoreFault);
    Repeat(absl::Seconds(5), absl::Seconds(30), &Simulation::RecoverOrDiscard);
  }
  RunToTheEnd();
}

void Simulation::RunToTheEnd() {
  world_->scheduler.RunUntil(SteadyTime(kFaultDuration), [this] { return Failed(); });
  if (Failed()) return;
  Heal();
  world_->scheduler.RunUntil(SteadyTime(kFaultDuration + kHealDuration),
                             [this] { return Failed() || HasConverged(); });
  if (!Failed() && !HasConverged()) ExplainStall();
}

uint64_t Simulation::LoseCoordinator() {
  coordinator_.Start();
  for (const auto& machine : machines_) machine->StartWorker();
  // Some find only after a while that the coordinator does not listen yet.
  world_->scheduler.RunUntil(SteadyTime(absl::Seconds(60)), [this] {
    return std::all_of(machines_.begin(), machines_.end(),
                       [](const auto& machine) { return machine->welcomed(); });
  });
  for (int i = 0; i < 10; ++i) SubmitSomeJob();
  world_->scheduler.RunUntil(world_->scheduler.now().steady + absl::Seconds(15));
  // The nodes that keep their network: more than half.
  const uint64_t kept = node_count_ / 2 + 1 + Below(node_count_ - node_count_ / 2);
  for (uint64_t i = kept; i < node_count_; ++i) {
    if (Below(2) == 0) {
      machines_[i]->Crash(/*forget=*/false);
      continue;
    }
    for (uint64_t other = 0; other <= node_count_; ++other) {
      world_->cut_links.insert({i + 1, other});
      world_->cut_links.insert({other, i + 1});
    }
    machines_[i]->OnLinksCut();
  }
  if (Below(2) == 0) {
    coordinator_.Crash();
  } else {
    coordinator_.LosePower();
  }
  uint64_t ranks = 0;
  for (uint64_t i = 0; i < kept; ++i) ranks += machines_[i]->live_ranks();
  // Some workers are replaced meanwhile.
  for (uint64_t i = 0; i < kept; ++i) {
    if (Below(4) != 0) continue;
    machines_[i]->CrashWorker();
    machines_[i]->StartWorker();
  }
  world_->scheduler.RunUntil(world_->scheduler.now().steady + absl::Minutes(5));
  for (uint64_t i = 0; i < kept; ++i) {
    if (machines_[i]->expired_leases() == 0) continue;
    world_->violations.Add(absl::StrCat("a lease ended on ", machines_[i]->node(), ", one of ",
                                        kept, " of ", node_count_,
                                        " nodes that lost only the coordinator"));
  }
  return ranks;
}

std::vector<v1::Job> Simulation::Jobs() {
  v1::ListJobsRequest all;
  all.set_include_finished(true);
  return coordinator_.up() ? coordinator_.core()->ListJobs(all, world_->scheduler.now())
                           : std::vector<v1::Job>();
}

v1::Goodput Simulation::GoodputOf(const std::string& job) {
  if (!coordinator_.up()) return {};
  return coordinator_.core()
      ->GetJob(JobId(job), /*detailed=*/true, world_->scheduler.now())
      ->goodput();
}

Machine& Simulation::AddMachine(const std::string& node, uint32_t slots) {
  slots_[node] = slots;
  machines_.push_back(std::make_unique<Machine>(
      *world_, coordinator_,
      Machine::Options{node, machines_.size() + 1, slots,
                       [this](const Process& process) {
                         for (const auto& machine : machines_) machine->PeerDied(process);
                       },
                       [this, from = machines_.size() + 1](const v1::LeaseQuestion& question,
                                                           const Machine::Reply& reply) {
                         Ask(from, question, reply);
                       }}));
  return *machines_.back();
}

void Simulation::Ask(uint64_t from, const v1::LeaseQuestion& question,
                     const Machine::Reply& reply) {
  Machine& asking = *machines_[from - 1];
  for (const auto& machine : machines_) {
    if (machine->id() == from) continue;
    asking.SendToPeer(machine->id(), [&peer = *machine, from, question, reply] {
      peer.AskAsPeer(from, question, reply);
    });
  }
}

void Simulation::Repeat(absl::Duration least, absl::Duration most, void (Simulation::*what)()) {
  world_->scheduler.After(world_->random.Between(least, most), [this, least, most, what] {
    if (world_->scheduler.now().steady >= SteadyTime(kFaultDuration)) return;
    (this->*what)();
    Repeat(least, most, what);
  });
}

// ------------------------------------------------------------------------------------------------
// clients and operators

void Simulation::SubmitSomeJob() {
  static const v1::JobSpec* const kValid = new v1::JobSpec(MakeValidSpec());
  v1::JobSpec spec = *kValid;
  if (kind_ != Kind::kAllFaults ? Below(5) != 0 : Below(3) == 0) {
    spec.clear_train();
    spec.add_command("program");
    if (Below(2) == 0) (*spec.mutable_env())["JOINS"] = "1";
    spec.set_on_cut_off(Below(5) == 0 ? "continue" : "end");
  }
  const uint32_t most = static_cast<uint32_t>(1 + Below(node_count_));
  spec.mutable_resources()->mutable_nodes()->set_max(most);
  spec.mutable_resources()->mutable_nodes()->set_min(
      Below(2) == 0 ? most : static_cast<uint32_t>(1 + Below(most)));
  spec.mutable_resources()->set_devices_per_rank(Below(5) == 0 ? "all" : "1");
  spec.mutable_restart()->set_max(static_cast<uint32_t>(Below(4)));
  spec.set_priority(static_cast<int32_t>(Below(3)));
  if (!world_->orderly && Below(10) == 0) (*spec.mutable_env())["FAILS"] = "0";
  if (Below(10) == 0) *spec.mutable_time_limit() = ToProto(absl::Seconds(5));
  *spec.mutable_grace_period() = ToProto(absl::Seconds(2));
  if (!world_->orderly && !jobs_.empty() && Below(4) == 0) {
    v1::Dependencies& after = *spec.mutable_after();
    (Below(2) == 0 ? after.add_ok() : after.add_any())->assign(jobs_[Below(jobs_.size())]);
  }
  const absl::Status valid = spec::Validate(spec);
  if (!valid.ok()) world_->violations.Add(valid.ToString());
  Submit(spec, absl::StrCat("key-", next_job_), 1 + Below(2));
}

void Simulation::Submit(const v1::JobSpec& spec, const std::string& key, uint64_t attempts) {
  core::SubmitJob submit;
  submit.request = coordinator_.NewRequest();
  // No id is the beginning of another one: requests name jobs also in this way.
  submit.job_id = JobId(absl::StrCat(next_job_++, "-job"));
  submit.spec = spec;
  submit.idempotency_key = key;
  coordinator_.Request(submit, [this, key, depends = spec.has_after()](const core::Reply& reply) {
    // A store that was replaced may not have the job that this one depends on, or may have several
    // whose ids begin with its id.
    if (store_replaced_ && depends && !reply.job.ok()) return;
    if (!reply.job.ok()) {
      world_->violations.Add(reply.job.status().ToString());
      return;
    }
    const auto [made, first] = acknowledged_.made.emplace(key, reply.job->job_id());
    if (first) {
      jobs_.push_back(reply.job->job_id());
    } else if (made->second != reply.job->job_id()) {
      world_->violations.Add(absl::StrCat(key, " created two jobs"));
    }
  });
  if (attempts > 1) {
    world_->scheduler.After(absl::Seconds(1 + Below(5)),
                            [this, spec, key, attempts] { Submit(spec, key, attempts - 1); });
  }
}

void Simulation::HoldRequeueOrCancelSomeJob() {
  if (jobs_.empty()) return;
  const std::string job = jobs_[Below(jobs_.size())];
  const RequestId request = coordinator_.NewRequest();
  switch (Below(4)) {
    case 0:
      coordinator_.Request(core::CancelJob{request, job, std::nullopt},
                           [this, job](const core::Reply& reply) {
                             if (reply.job.ok() && !core::IsTerminal(reply.job->state())) {
                               acknowledged_.cancelled.insert(job);
                             }
                           });
      cancel_tried_.insert(job);
      break;
    case 1:
      coordinator_.Request(core::HoldJob{request, job}, [](const core::Reply&) {});
      break;
    case 2:
      coordinator_.Request(core::RequeueJob{request, job}, [](const core::Reply&) {});
      break;
    default:
      coordinator_.Request(core::ReleaseJob{request, job}, [](const core::Reply&) {});
  }
}

void Simulation::OperateSomeNode() {
  const NodeName node(SomeMachine().node());
  switch (Below(3)) {
    case 0:
      coordinator_.Request(core::CordonNode{node, "a reason", Below(2) == 0}, nullptr);
      break;
    default:
      coordinator_.Request(core::UncordonNode{node}, nullptr);
  }
}

std::vector<NodeName> Simulation::Conflicts() {
  std::vector<NodeName> names;
  if (!coordinator_.up()) return names;
  for (const v1::Node& node : coordinator_.core()->ListNodes(world_->scheduler.now())) {
    if (!node.conflict().empty() && node.state() == v1::READY) names.emplace_back(node.name());
  }
  return names;
}

void Simulation::RecoverOrDiscard() {
  std::vector<NodeName> nodes = Conflicts();
  if (nodes.empty()) return;
  const bool discard = Below(5) == 0;
  // An operator recovers all nodes, unless the request names some.
  if (!discard && Below(2) == 0) return Recover({}, /*discard=*/false);
  nodes = {nodes[Below(nodes.size())]};
  Recover(std::move(nodes), discard);
}

void Simulation::Recover(std::vector<NodeName> nodes, bool discard) {
  world_->Note(discard ? "ranks are discarded" : "jobs are recovered");
  world_->CountFault(discard ? "discards" : "recoveries");
  coordinator_.Request(core::RecoverJobs{coordinator_.NewRequest(), std::move(nodes), discard},
                       [this](const core::Reply& reply) {
                         for (int i = 0; i < reply.recovered.job_ids_size(); ++i) {
                           world_->CountFault("recovered jobs");
                         }
                       });
}

}  // namespace muster::simulation
