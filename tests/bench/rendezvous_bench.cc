// Measures how fast a coordinator runs the rendezvous of a job's ranks, and how fast it names a
// missing rank.
//
//   bazel build //tests/bench:rendezvous_bench //coordinator:muster-coordinator
//   bazel-bin/tests/bench/rendezvous_bench --nodes=250 --ranks-per-node=8
//
// A real muster-coordinator with SQLite runs in a separate process; this process simulates all
// workers, each with its own gRPC session (simulated_nodes.h), and the user. Both share the
// machine. Each round starts from scratch:
//
//   register    every node connects, sends Hello and receives Welcome
//   launch      a job of all ranks is submitted, and every node has received Launch
//   rendezvous  every rank has joined, and every node has received World
//   unique id   rank 0's node has put 128 bytes under a key, and every node has received them
//   running     every rank is connected, and a watcher of the job sees RUNNING
//
// then runs barriers, then lets all nodes request the unique ids of NCCL communicators of all ranks
// at once (128 bytes per 256 ranks, put by the root ranks), then leaves all nodes idle for a
// moment. With --silent=K, K more jobs follow, each with one rank that never joins (or never
// arrives at a barrier): measures the time until GetJob, and the notices at every node, name
// exactly that rank.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "tests/bench/cluster_client.h"
#include "tests/bench/daemon_process.h"
#include "tests/bench/percentile.h"
#include "tests/bench/simulated_nodes.h"

namespace muster::bench {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr absl::Duration kNamedWithin = absl::Seconds(8);
constexpr absl::Duration kPollInterval = absl::Milliseconds(50);

struct Flags {
  std::string coordinator;
  uint32_t nodes = 250;
  uint32_t ranks_per_node = 8;
  uint32_t connections = 0;
  bool unfolded = false;
  uint32_t rounds = 5;
  uint32_t barriers = 200;
  uint32_t id_exchanges = 20;
  absl::Duration idle = absl::Seconds(5);
  uint32_t silent = 0;
  uint64_t seed = 1;
  bool json = false;

  uint32_t ranks() const { return nodes * ranks_per_node; }
};

struct Round {
  double register_ms = 0;
  double launch_ms = 0;
  double rendezvous_ms = 0;
  double unique_id_ms = 0;
  double running_ms = 0;
  double total_ms = 0;  // from start until every node has the unique id
  std::vector<double> barrier_ms;
  std::vector<double> lone_barrier_ms;
  std::vector<double> nccl_ids_ms;
  double start_cpu_ms = 0;      // CPU time of the coordinator, from start to RUNNING
  double barrier_cpu_ms = 0;    // CPU time of the coordinator, per barrier
  double idle_cpu_percent = 0;  // percentage of one core
  double resident_mib = 0;
};

struct Silence {
  uint64_t seed = 0;
  uint32_t rank = 0;
  bool at_barrier = false;
  bool right = false;
  double job_seconds = 0;     // until GetJob named exactly this rank
  double notice_seconds = 0;  // until every node had received a notice
  std::string problem;
};

double Milliseconds(SteadyTime from, SteadyTime to) {
  return absl::ToDoubleMilliseconds(to - from);
}

v1::JobSpec SpecOf(const Flags& flags) {
  v1::JobSpec spec;
  spec.set_name("bench");
  v1::TrainSpec& train = *spec.mutable_train();
  train.mutable_model()->set_name("mlp");
  train.mutable_dataset()->set_name("fashion_mnist");
  train.mutable_dataset()->set_path("/never/read");
  train.set_global_batch(flags.ranks());
  train.set_max_steps(1);
  train.mutable_optimizer()->set_learning_rate(0.1);
  v1::Resources& resources = *spec.mutable_resources();
  resources.mutable_nodes()->set_min(flags.nodes);
  resources.mutable_nodes()->set_max(flags.nodes);
  resources.set_ranks_per_node(flags.ranks_per_node);
  resources.set_device("cpu");
  spec.mutable_restart()->set_max(0);
  return spec;
}

// A coordinator with simulated nodes and a client.
struct Cluster {
  std::unique_ptr<TemporaryDirectory> directory;
  std::unique_ptr<DaemonProcess> coordinator;
  std::unique_ptr<SimulatedNodes> nodes;
  std::unique_ptr<ClusterClient> client;
};

absl::StatusOr<Cluster> StartCluster(const Flags& flags) {
  Cluster cluster;
  ASSIGN_OR_RETURN(cluster.directory, TemporaryDirectory::Make());
  ASSIGN_OR_RETURN(cluster.coordinator,
                   StartCoordinator(flags.coordinator, cluster.directory->path()));
  const std::string& address = cluster.coordinator->address("grpc");
  cluster.client = std::make_unique<ClusterClient>(address);
  SimulatedNodesOptions options;
  options.coordinator = address;
  options.nodes = flags.nodes;
  options.ranks_per_node = flags.ranks_per_node;
  options.connections = flags.connections;
  options.unfolded = flags.unfolded;
  cluster.nodes = std::make_unique<SimulatedNodes>(options);
  return cluster;
}

absl::StatusOr<Round> RunRound(const Flags& flags) {
  ASSIGN_OR_RETURN(Cluster cluster, StartCluster(flags));
  DaemonProcess& coordinator = *cluster.coordinator;
  SimulatedNodes& nodes = *cluster.nodes;
  Round round;
  const absl::Duration cpu_before = coordinator.CpuTime();
  const SteadyTime start = Now().steady;
  nodes.Connect();
  ASSIGN_OR_RETURN(const SteadyTime welcomed, nodes.Await(Milestone::kWelcomed, kPatience));
  nodes.ExpectJob(std::nullopt);
  ASSIGN_OR_RETURN(const std::string job, cluster.client->Submit(SpecOf(flags)));
  ASSIGN_OR_RETURN(const SteadyTime launched, nodes.Await(Milestone::kLaunched, kPatience));
  ASSIGN_OR_RETURN(const SteadyTime world, nodes.Await(Milestone::kWorld, kPatience));
  ASSIGN_OR_RETURN(const SteadyTime unique_id, nodes.Await(Milestone::kUniqueId, kPatience));
  RETURN_IF_ERROR(cluster.client->AwaitState(job, v1::RUNNING, kPatience));
  const SteadyTime running = Now().steady;
  const absl::Duration cpu_started = coordinator.CpuTime();
  round.register_ms = Milliseconds(start, welcomed);
  round.launch_ms = Milliseconds(welcomed, launched);
  round.rendezvous_ms = Milliseconds(launched, world);
  round.unique_id_ms = Milliseconds(world, unique_id);
  round.running_ms = Milliseconds(unique_id, running);
  round.total_ms = Milliseconds(start, unique_id);
  round.start_cpu_ms = absl::ToDoubleMilliseconds(cpu_started - cpu_before);

  ASSIGN_OR_RETURN(round.barrier_ms, nodes.RunBarriers(flags.barriers, kPatience));
  for (double& value : round.barrier_ms) value *= 1e3;
  const absl::Duration cpu_barriers = coordinator.CpuTime() - cpu_started;
  round.barrier_cpu_ms = absl::ToDoubleMilliseconds(cpu_barriers) / flags.barriers;

  for (uint32_t i = 0; i < flags.id_exchanges; ++i) {
    const SteadyTime all_arrive = Now().steady;
    RETURN_IF_ERROR(nodes.RunBarriers(1, kPatience).status());
    round.lone_barrier_ms.push_back(Milliseconds(all_arrive, Now().steady));
  }
  ASSIGN_OR_RETURN(round.nccl_ids_ms, nodes.ExchangeNcclIds(flags.id_exchanges, kPatience));
  for (double& value : round.nccl_ids_ms) value *= 1e3;

  const absl::Duration cpu_idle = coordinator.CpuTime();
  const SteadyTime idle = Now().steady;
  absl::SleepFor(flags.idle);
  round.idle_cpu_percent =
      100 * absl::FDivDuration(coordinator.CpuTime() - cpu_idle, Now().steady - idle);
  round.resident_mib = static_cast<double>(coordinator.ResidentBytes()) / (1 << 20);
  RETURN_IF_ERROR(cluster.client->End(job, kPatience));
  return round;
}

// Returns "" if the wait names exactly the silent rank, else a description of the problem.
std::string FindProblem(const v1::Wait& wait, const Silence& silence, const std::string& node) {
  const bool alone = wait.missing_size() == 1 && wait.missing(0).has_rank();
  if (alone && wait.missing(0).rank() == silence.rank && wait.missing(0).node() == node) return "";
  std::string names;
  for (const v1::WaitedFor& missing : wait.missing()) {
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    missing.has_rank() ? absl::StrCat(missing.rank()) : missing.reason());
    if (names.size() > 100) break;
  }
  return absl::StrCat("rank ", silence.rank, " is silent, but the wait names: ", names);
}

// Waits until GetJob and all notices have named the silent rank, or until the time limit.
absl::Status AwaitNames(const Flags& flags, Cluster& cluster, const std::string& job,
                        SteadyTime since, Silence& silence) {
  uint32_t notified = 0;
  bool named = false;
  std::string node;
  while (Now().steady - since < kNamedWithin && (!named || notified < flags.nodes)) {
    ASSIGN_OR_RETURN(const v1::Job view, cluster.client->Get(job));
    node = view.ranks(static_cast<int>(silence.rank)).node();
    if (!named && view.waits_size() == 1 && FindProblem(view.waits(0), silence, node).empty()) {
      named = true;
      silence.job_seconds = absl::ToDoubleSeconds(Now().steady - since);
    }
    for (const SimulatedNodes::Notice& notice : cluster.nodes->TakeNotices()) {
      const std::string wrong = FindProblem(notice.notice.wait(), silence, node);
      if (!wrong.empty()) silence.problem = absl::StrCat("a notice: ", wrong);
      silence.notice_seconds = absl::ToDoubleSeconds(notice.time - since);
      if (++notified == flags.nodes) break;
    }
    absl::SleepFor(kPollInterval);
  }
  if (!named) silence.problem = "GetJob did not name exactly the silent rank";
  if (notified < flags.nodes && silence.problem.empty()) {
    silence.problem = absl::StrCat(notified, " of ", flags.nodes, " nodes received a notice");
  }
  silence.right = silence.problem.empty();
  return absl::OkStatus();
}

absl::StatusOr<Silence> RunSilence(const Flags& flags, Cluster& cluster, uint32_t trial) {
  Silence silence;
  silence.seed = flags.seed + trial;
  std::mt19937_64 random(silence.seed);
  silence.rank = std::uniform_int_distribution<uint32_t>(0, flags.ranks() - 1)(random);
  silence.at_barrier = trial % 2 == 1;
  cluster.nodes->ExpectJob(silence.at_barrier ? std::nullopt : std::optional(silence.rank));
  ASSIGN_OR_RETURN(const std::string job, cluster.client->Submit(SpecOf(flags)));
  ASSIGN_OR_RETURN(SteadyTime since, cluster.nodes->Await(Milestone::kLaunched, kPatience));
  if (silence.at_barrier) {
    RETURN_IF_ERROR(cluster.client->AwaitState(job, v1::RUNNING, kPatience));
    since = Now().steady;
    cluster.nodes->ArriveWithout(silence.rank);
  }
  RETURN_IF_ERROR(AwaitNames(flags, cluster, job, since, silence));
  RETURN_IF_ERROR(cluster.client->End(job, kPatience));
  return silence;
}

absl::StatusOr<std::vector<Silence>> RunSilences(const Flags& flags) {
  ASSIGN_OR_RETURN(Cluster cluster, StartCluster(flags));
  cluster.nodes->Connect();
  RETURN_IF_ERROR(cluster.nodes->Await(Milestone::kWelcomed, kPatience).status());
  std::vector<Silence> silences;
  for (uint32_t trial = 0; trial < flags.silent; ++trial) {
    ASSIGN_OR_RETURN(silences.emplace_back(), RunSilence(flags, cluster, trial));
  }
  return silences;
}

// ---------------------------------------------------------------------------------------------------------------
// output

struct Figure {
  const char* name;
  const char* unit;
  std::vector<double> values;  // one per round
  const char* meaning;
};

std::vector<Figure> Figures(const Flags& flags, const std::vector<Round>& rounds) {
  std::vector<Figure> figures = {
      {"register_ms", "ms", {}, "every node connected and welcomed"},
      {"launch_ms", "ms", {}, "from submission until every node has Launch"},
      {"rendezvous_ms", "ms", {}, "until every rank has joined and every node has World"},
      {"unique_id_ms", "ms", {}, "until every node has rank 0's 128 bytes"},
      {"running_ms", "ms", {}, "until a watcher sees RUNNING"},
      {"total_ms", "ms", {}, "TOTAL: START UNTIL EVERY NODE HAS WORLD AND UNIQUE ID"},
      {"barrier_p50_ms", "ms", {}, "barrier, from a node's arrival to its release"},
      {"barrier_p99_ms", "ms", {}, ""},
      {"barrier_max_ms", "ms", {}, ""},
      {"lone_barrier_p50_ms", "ms", {}, "single barrier, from arrival of all to release of all"},
      {"nccl_ids_p50_ms",
       "ms",
       {},
       "NCCL unique ids, from the requests until every node has all ids"},
      {"nccl_ids_max_ms", "ms", {}, ""},
      {"start_cpu_us_per_node", "us", {}, "coordinator CPU time until RUNNING, per node"},
      {"barrier_cpu_us_per_node", "us", {}, "coordinator CPU time per barrier and node"},
      {"idle_cpu_percent", "%", {}, "of a core: coordinator with heartbeats of all nodes only"},
      {"idle_cpu_us_per_node_second", "us", {}, "same, per node and second"},
      {"resident_mib", "MiB", {}, "coordinator memory"},
  };
  for (const Round& round : rounds) {
    const double values[] = {round.register_ms,
                             round.launch_ms,
                             round.rendezvous_ms,
                             round.unique_id_ms,
                             round.running_ms,
                             round.total_ms,
                             Percentile(round.barrier_ms, 0.5),
                             Percentile(round.barrier_ms, 0.99),
                             Percentile(round.barrier_ms, 1),
                             Percentile(round.lone_barrier_ms, 0.5),
                             Percentile(round.nccl_ids_ms, 0.5),
                             Percentile(round.nccl_ids_ms, 1),
                             round.start_cpu_ms * 1e3 / flags.nodes,
                             round.barrier_cpu_ms * 1e3 / flags.nodes,
                             round.idle_cpu_percent,
                             round.idle_cpu_percent * 1e4 / flags.nodes,
                             round.resident_mib};
    for (size_t i = 0; i < figures.size(); ++i) figures[i].values.push_back(values[i]);
  }
  return figures;
}

void PrintTable(const Flags& flags, const std::vector<Figure>& figures,
                const std::vector<Silence>& silences) {
  std::printf("%u nodes x %u ranks = %u ranks, %s, %s reports\n", flags.nodes, flags.ranks_per_node,
              flags.ranks(),
              flags.connections == 0 ? "one connection per node"
                                     : absl::StrCat(flags.connections, " connections").c_str(),
              flags.unfolded ? "unfolded" : "folded");
  if (!figures.empty()) {
    std::printf("%u rounds with %u barriers each\n%-28s %10s %10s %10s\n", flags.rounds,
                flags.barriers, "", "MEDIAN", "LEAST", "MOST");
  }
  for (const Figure& figure : figures) {
    std::printf("%-28s %10.2f %10.2f %10.2f %-4s %s\n", figure.name, Percentile(figure.values, 0.5),
                Percentile(figure.values, 0), Percentile(figure.values, 1), figure.unit,
                figure.meaning);
  }
  if (silences.empty()) return;
  uint32_t right = 0;
  double worst_job = 0;
  double worst_notice = 0;
  for (const Silence& silence : silences) {
    right += silence.right ? 1 : 0;
    worst_job = std::max(worst_job, silence.job_seconds);
    worst_notice = std::max(worst_notice, silence.notice_seconds);
    if (silence.right) continue;
    std::printf("seed %lu, %s: %s\n", silence.seed, silence.at_barrier ? "barrier" : "rendezvous",
                silence.problem.c_str());
  }
  std::printf(
      "silent rank identified: %u of %zu; at the latest by GetJob after %.2f s, by notices at all"
      " nodes after %.2f s\n",
      right, silences.size(), worst_job, worst_notice);
}

void PrintJson(const Flags& flags, const std::vector<Figure>& figures,
               const std::vector<Silence>& silences) {
  nlohmann::ordered_json json = {
      {"nodes", flags.nodes},
      {"ranks_per_node", flags.ranks_per_node},
      {"connections", flags.connections == 0 ? flags.nodes : flags.connections},
      {"folded", !flags.unfolded}};
  for (const Figure& figure : figures) {
    json["median"][figure.name] = Percentile(figure.values, 0.5);
    json["rounds"][figure.name] = figure.values;
  }
  for (const Silence& silence : silences) {
    json["silent"].push_back({{"seed", silence.seed},
                              {"rank", silence.rank},
                              {"at", silence.at_barrier ? "barrier" : "rendezvous"},
                              {"right", silence.right},
                              {"job_seconds", silence.job_seconds},
                              {"notice_seconds", silence.notice_seconds},
                              {"problem", silence.problem}});
  }
  std::printf("%s\n", json.dump(2).c_str());
}

absl::Status Run(const Flags& flags) {
  std::vector<Round> rounds;
  for (uint32_t i = 0; i < flags.rounds; ++i) {
    ASSIGN_OR_RETURN(rounds.emplace_back(), RunRound(flags));
  }
  std::vector<Silence> silences;
  if (flags.silent > 0) {
    ASSIGN_OR_RETURN(silences, RunSilences(flags));
  }
  const std::vector<Figure> figures =
      rounds.empty() ? std::vector<Figure>() : Figures(flags, rounds);
  (flags.json ? PrintJson : PrintTable)(flags, figures, silences);
  for (const Silence& silence : silences) {
    if (!silence.right) return absl::InternalError("a silent rank was not identified correctly");
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  flags.coordinator = BuiltProgram("coordinator/muster-coordinator");
  CLI::App app(
      "Measure rendezvous, barriers and missing-rank reports of a coordinator with simulated "
      "workers");
  app.add_option("--coordinator", flags.coordinator, "muster-coordinator binary to run")
      ->capture_default_str();
  app.add_option("--nodes", flags.nodes)->check(CLI::Range(1, 16384))->capture_default_str();
  app.add_option("--ranks-per-node", flags.ranks_per_node)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--connections", flags.connections,
                 "number of connections shared by the nodes; 0: one per node")
      ->capture_default_str();
  app.add_flag("--unfolded", flags.unfolded, "send a report per rank instead of per node");
  app.add_option("--rounds", flags.rounds, "number of rounds, each with a new coordinator")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  app.add_option("--barriers", flags.barriers, "number of barriers per round")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--id-exchanges", flags.id_exchanges,
                 "number of NCCL unique id exchanges, and of single barriers, per round")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option_function<double>(
         "--idle-seconds", [&](double seconds) { flags.idle = absl::Seconds(seconds); },
         "idle time per round, to measure the cost of heartbeats")
      ->default_str("5");
  app.add_option("--silent", flags.silent, "number of jobs with a rank that never joins or arrives")
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "seed for choosing the first silent rank")
      ->capture_default_str();
  app.add_flag("--json", flags.json);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "rendezvous_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  // As in the coordinator: Abseil's deadlock detection costs time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return muster::bench::Main(argc, argv);
}
