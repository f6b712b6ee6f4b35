// Measures what a step costs the coordinator's core with a long queue, without a store: submission,
// the end of a job whose slot the next one takes, a report, a listing, and the start of a
// coordinator.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/now.h"
#include "common/version.h"
#include "coordinator/core/core.h"

namespace muster::core {
namespace {

constexpr uint32_t kNodes = 200;
constexpr int kRepeats = 200;

class Bench {
 public:
  Bench() : core_(std::make_unique<Core>(Options())) { Apply(*core_->Load({}, Now())); }

  void Run(int jobs) {
    for (uint32_t node = 0; node < kNodes; ++node) Join(node);
    Print("submit", jobs, Measure([&] {
                            for (int i = 0; i < jobs; ++i)
                              Submit(absl::StrCat("job-", i), 1 + i % 4);
                          }) / jobs);
    Print("exit, start of the next", jobs, Measure([&] {
                                             for (int i = 0; i < kRepeats; ++i) EndOne();
                                           }) / kRepeats);
    Print("list", jobs, Measure([&] { core_->ListJobs({}, Now()); }));
    std::vector<store::Record> records;
    for (const auto& [key, value] : records_) records.push_back({key, value});
    Print("load", jobs, Measure([&] {
            Core loaded{Options()};
            if (!loaded.Load(records, Now()).ok()) exit(1);
            loaded.ListJobs({}, Now());
          }));
  }

 private:
  template <typename Work>
  static absl::Duration Measure(Work work) {
    const absl::Time start = absl::Now();
    work();
    return absl::Now() - start;
  }
  static void Print(const char* what, int jobs, absl::Duration took) {
    printf("%-24s %6d jobs queued: %10.3f ms\n", what, jobs, absl::ToDoubleMilliseconds(took));
  }
  void Apply(const Effects& effects) {
    for (const store::Mutation& write : effects.writes) {
      if (write.value.has_value()) {
        records_[write.key] = *write.value;
      } else {
        records_.erase(write.key);
      }
    }
    for (const Send& send : effects.sends) {
      if (send.message.has_launch()) launched_.emplace_back(send.session, send.message.launch());
    }
  }
  void Step(const Event& event) { Apply(core_->Step(event, Now())); }
  void Join(uint32_t node) {
    v1::Hello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_node_name(absl::StrCat("node-", node));
    hello.set_incarnation(node + 1);
    hello.add_slots();
    Step(SessionOpened{SessionId(node + 1), hello, "10.0.0.1"});
  }
  void Submit(const std::string& id, int nodes) {
    v1::JobSpec spec;
    spec.set_name("bench");
    spec.add_command("true");
    spec.mutable_resources()->mutable_nodes()->set_min(nodes);
    spec.mutable_resources()->mutable_nodes()->set_max(nodes);
    Step(SubmitJob{RequestId(1), JobId(id), spec, ""});
  }
  // The ranks of the oldest launch exit with code 0.
  void EndOne() {
    const auto [session, launch] = launched_.front();
    launched_.erase(launched_.begin());
    v1::WorkerMessage message;
    message.mutable_report()->set_job_id(launch.job_id());
    message.mutable_report()->set_generation(launch.generation());
    for (const v1::RankPlacement& rank : launch.ranks()) {
      message.mutable_report()->add_ranks()->set_rank(rank.rank());
      message.mutable_report()->mutable_ranks()->rbegin()->set_phase(v1::EXITED);
    }
    Step(SessionMessage{session, message});
  }

  std::unique_ptr<Core> core_;
  std::map<std::string, std::string> records_;
  std::vector<std::pair<SessionId, v1::Launch>> launched_;
};

}  // namespace
}  // namespace muster::core

int main() {
  for (const int jobs : {1'000, 10'000}) muster::core::Bench().Run(jobs);
  return 0;
}
