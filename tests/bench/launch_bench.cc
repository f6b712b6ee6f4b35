// Measures the time from submission of a command job to main() on every rank.
//
//   bazel build //tests/bench:launch_bench    (also builds the programs that it starts)
//   bazel-bin/tests/bench/launch_bench [--nodes=2] [--ranks-per-node=2] [--jobs=50] [--json]
//
// A real coordinator and real workers on this machine run one job after the other; each rank runs a
// small program that records when its main() started. The clock starts just before SubmitJob is
// called over an open connection; in a second series, just before `muster submit` is started. It
// stops in main() of the last rank and, for `finished`, when a watcher of the job sees SUCCEEDED.
// The first job is reported as `cold` and excluded from the others.
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "proto/muster/v1/job.pb.h"
#include "tests/bench/cluster_client.h"
#include "tests/bench/daemon_process.h"
#include "tests/bench/percentile.h"

namespace muster::bench {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);

struct Flags {
  uint32_t nodes = 2;
  uint32_t ranks_per_node = 2;
  uint32_t jobs = 50;
  bool json = false;
};

// Times of one job, in milliseconds from its start.
struct Sample {
  double first_main_ms = 0;
  double last_main_ms = 0;
  double submitted_ms = 0;  // the coordinator has responded, or the CLI has exited
  double finished_ms = 0;
};

struct Series {
  const char* name;
  std::vector<Sample> samples;
};

// Members are destroyed in reverse order, workers before the coordinator.
struct Cluster {
  std::unique_ptr<TemporaryDirectory> directory;
  std::unique_ptr<DaemonProcess> coordinator;
  std::vector<std::unique_ptr<DaemonProcess>> workers;
  std::unique_ptr<ClusterClient> client;
  uint32_t jobs = 0;  // run so far
};

absl::StatusOr<Cluster> StartCluster(const Flags& flags) {
  Cluster cluster;
  ASSIGN_OR_RETURN(cluster.directory, TemporaryDirectory::Make());
  const std::string& path = cluster.directory->path();
  ASSIGN_OR_RETURN(cluster.coordinator,
                   StartCoordinator(BuiltProgram("coordinator/muster-coordinator"), path));
  const std::string& address = cluster.coordinator->address("grpc");
  for (uint32_t i = 0; i < flags.nodes; ++i) {
    const std::string name = absl::StrCat("node-", i);
    ASSIGN_OR_RETURN(
        cluster.workers.emplace_back(),
        DaemonProcess::Start(
            {BuiltProgram("worker/muster-worker"), absl::StrCat("--coordinator=", address),
             absl::StrCat("--name=", name), absl::StrCat("--data-dir=", path, "/", name),
             "--http=127.0.0.1:0", absl::StrCat("--slots=", flags.ranks_per_node)},
            absl::StrCat(path, "/", name, ".log")));
  }
  cluster.client = std::make_unique<ClusterClient>(address);
  RETURN_IF_ERROR(cluster.client->AwaitNodes(static_cast<int>(flags.nodes), kPatience));
  return cluster;
}

double Milliseconds(SteadyTime from, SteadyTime to) {
  return absl::ToDoubleMilliseconds(to - from);
}

// Creates the output directory of the next job's ranks.
absl::StatusOr<std::string> NextOutput(Cluster& cluster) {
  const std::string path = absl::StrCat(cluster.directory->path(), "/job-", cluster.jobs++);
  if (mkdir(path.c_str(), 0700) != 0) return absl::ErrnoToStatus(errno, path);
  return path;
}

absl::Status ReadMains(const Flags& flags, const std::string& output, SteadyTime start,
                       Sample& sample) {
  for (uint32_t rank = 0; rank < flags.nodes * flags.ranks_per_node; ++rank) {
    std::ifstream file(absl::StrCat(output, "/", rank));
    int64_t nanoseconds = 0;
    if (!(file >> nanoseconds)) {
      return absl::InternalError(absl::StrCat("rank ", rank, " wrote no time to ", output));
    }
    const double main_ms = Milliseconds(start, SteadyTime(absl::Nanoseconds(nanoseconds)));
    if (rank == 0 || main_ms < sample.first_main_ms) sample.first_main_ms = main_ms;
    sample.last_main_ms = std::max(sample.last_main_ms, main_ms);
  }
  return absl::OkStatus();
}

absl::StatusOr<Sample> RunByCall(const Flags& flags, Cluster& cluster) {
  ASSIGN_OR_RETURN(const std::string output, NextOutput(cluster));
  v1::JobSpec spec;
  spec.set_name("launch-bench");
  spec.add_command(BuiltProgram("tests/bench/start_time"));
  spec.add_command(output);
  spec.mutable_resources()->mutable_nodes()->set_min(flags.nodes);
  spec.mutable_resources()->mutable_nodes()->set_max(flags.nodes);
  spec.mutable_resources()->set_ranks_per_node(flags.ranks_per_node);
  Sample sample;
  const SteadyTime start = Now().steady;
  ASSIGN_OR_RETURN(const std::string job, cluster.client->Submit(spec));
  sample.submitted_ms = Milliseconds(start, Now().steady);
  RETURN_IF_ERROR(cluster.client->AwaitState(job, v1::SUCCEEDED, kPatience));
  sample.finished_ms = Milliseconds(start, Now().steady);
  RETURN_IF_ERROR(ReadMains(flags, output, start, sample));
  return sample;
}

// Returns the output of `muster submit`; its stderr is inherited.
absl::StatusOr<std::string> RunCli(std::vector<std::string> argv) {
  std::vector<char*> pointers;
  for (std::string& argument : argv) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, pointers[0], &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(output[1]);
  std::string text;
  char buffer[4096];
  ssize_t count = 0;
  while (error == 0 && (count = read(output[0], buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(count));
  }
  close(output[0]);
  if (error != 0) return absl::ErrnoToStatus(error, argv[0]);
  int status = 0;
  waitpid(pid, &status, 0);
  if (status != 0) return absl::InternalError(absl::StrCat(argv[0], " failed: ", text));
  return text;
}

absl::StatusOr<Sample> RunByCli(const Flags& flags, Cluster& cluster) {
  ASSIGN_OR_RETURN(const std::string output, NextOutput(cluster));
  const std::string spec_path = output + "/spec.json";
  const nlohmann::json spec = {
      {"name", "launch-bench"},
      {"command", {BuiltProgram("tests/bench/start_time"), output}},
      {"resources", {{"nodes", flags.nodes}, {"ranks_per_node", flags.ranks_per_node}}}};
  std::ofstream(spec_path) << spec;
  Sample sample;
  const SteadyTime start = Now().steady;
  ASSIGN_OR_RETURN(const std::string printed,
                   RunCli({BuiltProgram("cli/muster"), "submit", spec_path, "-o", "name",
                           "--coordinator", cluster.coordinator->address("grpc")}));
  sample.submitted_ms = Milliseconds(start, Now().steady);
  const std::string job(absl::StripSuffix(printed, "\n"));
  RETURN_IF_ERROR(cluster.client->AwaitState(job, v1::SUCCEEDED, kPatience));
  sample.finished_ms = Milliseconds(start, Now().steady);
  RETURN_IF_ERROR(ReadMains(flags, output, start, sample));
  return sample;
}

// ---------------------------------------------------------------------------------------------------------------
// output

struct Column {
  const char* name;
  double Sample::*value;
};
constexpr Column kColumns[] = {{"submitted_ms", &Sample::submitted_ms},
                               {"first_main_ms", &Sample::first_main_ms},
                               {"last_main_ms", &Sample::last_main_ms},
                               {"finished_ms", &Sample::finished_ms}};

std::vector<double> ValuesOf(const Series& series, const Column& column) {
  std::vector<double> values;
  for (const Sample& sample : series.samples) values.push_back(sample.*column.value);
  return values;
}

void PrintTable(const Flags& flags, const std::vector<Series>& all) {
  std::printf("no-op command, %u nodes x %u ranks, milliseconds from submission\n", flags.nodes,
              flags.ranks_per_node);
  std::printf("%-20s %6s  %-14s %9s %9s %9s\n", "", "JOBS", "UNTIL", "MEDIAN", "P95", "MOST");
  for (const Series& series : all) {
    for (const Column& column : kColumns) {
      const std::vector<double> values = ValuesOf(series, column);
      std::printf("%-20s %6zu  %-14s %9.1f %9.1f %9.1f\n", series.name, values.size(), column.name,
                  Percentile(values, 0.5), Percentile(values, 0.95), Percentile(values, 1));
    }
  }
}

void PrintJson(const Flags& flags, const std::vector<Series>& all) {
  nlohmann::ordered_json json = {{"nodes", flags.nodes}, {"ranks_per_node", flags.ranks_per_node}};
  for (const Series& series : all) {
    for (const Column& column : kColumns) {
      const std::vector<double> values = ValuesOf(series, column);
      json[series.name][column.name] = {{"median", Percentile(values, 0.5)},
                                        {"p95", Percentile(values, 0.95)},
                                        {"samples", values}};
    }
  }
  std::printf("%s\n", json.dump(2).c_str());
}

absl::Status Run(const Flags& flags) {
  ASSIGN_OR_RETURN(Cluster cluster, StartCluster(flags));
  std::vector<Series> all = {{"cold", {}}, {"SubmitJob", {}}, {"muster submit", {}}};
  ASSIGN_OR_RETURN(all[0].samples.emplace_back(), RunByCall(flags, cluster));
  for (uint32_t i = 0; i < flags.jobs; ++i) {
    ASSIGN_OR_RETURN(all[1].samples.emplace_back(), RunByCall(flags, cluster));
    ASSIGN_OR_RETURN(all[2].samples.emplace_back(), RunByCli(flags, cluster));
  }
  (flags.json ? PrintJson : PrintTable)(flags, all);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Measure the time from submission to main() of a no-op command");
  app.add_option("--nodes", flags.nodes)->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--ranks-per-node", flags.ranks_per_node)
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--jobs", flags.jobs, "number of jobs in each of the two series")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_flag("--json", flags.json);
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = Run(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "launch_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) { return muster::bench::Main(argc, argv); }
