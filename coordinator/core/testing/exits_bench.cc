// Measures what the end of a large job costs the coordinator with SQLite when every rank exits with
// code 0 and when every rank fails: with each exit in a step and commit of its own, then with one
// report per node.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/time/now.h"
#include "common/version.h"
#include "coordinator/core/core.h"
#include "coordinator/store/sqlite_store.h"

namespace muster::core {
namespace {

constexpr uint32_t kNodes = 250;
constexpr uint32_t kRanksPerNode = 8;
constexpr size_t kStderrBytes = 4096;  // per failed rank

class Cluster {
 public:
  explicit Cluster(const std::string& directory)
      : store_(*store::SqliteStore::Open(directory + "/bench.sqlite")), core_(Options()) {
    Commit(*core_.Load({}, Now()));
  }

  void Step(const Event& event) {
    const absl::Time start = absl::Now();
    const Effects effects = core_.Step(event, Now());
    stepping_ += absl::Now() - start;
    Commit(effects);
  }

  void Join(uint32_t node) {
    v1::Hello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_node_name(absl::StrCat("node-", node));
    hello.set_incarnation(node + 1);
    for (uint32_t i = 0; i < kRanksPerNode; ++i) hello.add_slots()->set_index(i);
    Step(SessionOpened{SessionId(node + 1), hello, "10.0.0.1"});
  }

  // Reports `count` ranks of one node, starting at `first`.
  void Report(uint32_t first, uint32_t count, v1::RankPhase phase, int exit_code = 0) {
    v1::WorkerMessage message;
    v1::GenerationReport& report = *message.mutable_report();
    report.set_job_id("bench");
    report.set_generation(1);
    for (uint32_t rank = first; rank < first + count; ++rank) {
      v1::RankReport& of_rank = *report.add_ranks();
      of_rank.set_rank(rank);
      of_rank.set_phase(phase);
      of_rank.set_pid(1000 + rank);
      if (phase != v1::EXITED) continue;
      v1::ExitInfo& exit = *of_rank.mutable_exit();
      exit.mutable_time()->set_seconds(1'700'000'000);
      exit.set_exit_code(exit_code);
      if (exit_code != 0) exit.set_stderr_tail(std::string(kStderrBytes, 'x'));
    }
    Step(SessionMessage{SessionId(first / kRanksPerNode + 1), message});
  }

  void Run(uint32_t ranks_per_report, int exit_code) {
    v1::JobSpec spec;
    spec.set_name("bench");
    spec.add_command("true");
    spec.mutable_resources()->mutable_nodes()->set_min(kNodes);
    spec.mutable_resources()->mutable_nodes()->set_max(kNodes);
    spec.mutable_resources()->set_ranks_per_node(kRanksPerNode);
    for (uint32_t node = 0; node < kNodes; ++node) Join(node);
    Step(SubmitJob{RequestId(1), JobId("bench"), spec, ""});
    for (uint32_t node = 0; node < kNodes; ++node) {
      Report(node * kRanksPerNode, kRanksPerNode, v1::STARTED);
    }
    stepping_ = committing_ = absl::ZeroDuration();
    commits_ = bytes_ = 0;
    for (uint32_t rank = 0; rank < kNodes * kRanksPerNode; rank += ranks_per_report) {
      Report(rank, ranks_per_report, v1::EXITED, exit_code);
    }
    const v1::JobState state = core_.GetJob(JobId("bench"), false, Now())->state();
    printf(
        "%u exits, %u per report: %s after %.2f s (%.2f s of it in Step), %zu commits, %.1f MB\n",
        kNodes * kRanksPerNode, ranks_per_report, v1::JobState_Name(state).c_str(),
        absl::ToDoubleSeconds(stepping_ + committing_), absl::ToDoubleSeconds(stepping_), commits_,
        static_cast<double>(bytes_) / 1e6);
  }

 private:
  void Commit(const Effects& effects) {
    if (effects.writes.empty()) return;
    for (const store::Mutation& write : effects.writes) {
      bytes_ += write.key.size() + write.value.value_or("").size();
    }
    ++commits_;
    const absl::Time start = absl::Now();
    const absl::Status status = store_->Commit(effects.writes);
    committing_ += absl::Now() - start;
    if (!status.ok()) {
      fprintf(stderr, "%s\n", status.ToString().c_str());
      exit(1);
    }
  }

  std::unique_ptr<store::SqliteStore> store_;
  Core core_;
  absl::Duration stepping_;
  absl::Duration committing_;
  size_t commits_ = 0;
  size_t bytes_ = 0;
};

void Bench(uint32_t ranks_per_report, int exit_code) {
  std::string directory = (std::filesystem::temp_directory_path() / "exits_bench.XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) return perror(directory.c_str());
  Cluster(directory).Run(ranks_per_report, exit_code);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace muster::core

int main() {
  for (const int exit_code : {0, 1}) {
    for (const uint32_t ranks_per_report : {1u, muster::core::kRanksPerNode}) {
      muster::core::Bench(ranks_per_report, exit_code);
    }
  }
  return 0;
}
