// Measures the scheduler.
//
//   scheduler_bench         10,000 queued jobs of 20 owners on 1,000 nodes of 8 slots: the core's
//                           part of a submission, a decision after the end of a job, a listing,
//                           a restart with the nodes' Hellos, and memory; the start with 100,000
//                           queued jobs, and the loss and return of a node that all of them need.
//   scheduler_bench --day   replays a synthetic day (20 owners, 500 jobs, 32 nodes of 8 slots) in
//                           simulated time, under FIFO, EASY backfill and this scheduler.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/time/now.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "coordinator/core/core.h"
#include "coordinator/core/jobs/job_record.h"
#include "coordinator/core/records.h"
#include "coordinator/core/scheduler/plan/plan_world.h"

namespace muster::core {
namespace {

constexpr uint32_t kNodes = 1'000;
constexpr uint32_t kSlots = 8;
constexpr uint32_t kOwners = 20;
constexpr int kQueued = 10'000;
constexpr int kStored = 100'000 - 1;
constexpr int kRepeats = 200;
constexpr uint32_t kPerTurn = 16;  // Hellos in one turn

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

template <typename Work>
absl::Duration Measure(Work work) {
  const absl::Time start = absl::Now();
  work();
  return absl::Now() - start;
}

// Prints the median, the 99th percentile and the maximum.
void Print(const char* what, std::vector<absl::Duration> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) {
    return Milliseconds(samples[static_cast<size_t>(part * (samples.size() - 1))]);
  };
  printf("%-36s median %8.3f ms, p99 %8.3f ms, max %8.3f ms\n", what, at(0.5), at(0.99), at(1));
}

double ResidentMegabytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// 8 node counts, 8 rank counts and 6 time limits: 384 distinct requests.
v1::JobSpec MakeSpec(std::mt19937& random) {
  v1::JobSpec spec;
  spec.set_name("bench");
  spec.add_command("true");
  const uint32_t nodes = 1 + random() % 8;
  spec.mutable_resources()->mutable_nodes()->set_min(nodes);
  spec.mutable_resources()->mutable_nodes()->set_max(nodes);
  spec.mutable_resources()->set_ranks_per_node(1 + random() % kSlots);
  spec.mutable_resources()->set_device("cpu");
  const uint32_t hours = random() % 6;
  if (hours > 0) *spec.mutable_time_limit() = ToProto(hours * absl::Hours(1));
  return spec;
}

Actor ActorOf(uint32_t number) {
  return {absl::StrCat("owner-", number % kOwners), /*is_admin=*/false};
}

v1::Hello HelloOf(uint32_t node) {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_node_name(absl::StrCat("node-", node));
  hello.set_incarnation(node + 1);
  for (uint32_t slot = 0; slot < kSlots; ++slot) hello.add_slots()->set_index(slot);
  return hello;
}

class Bench {
 public:
  Bench() : core_(std::make_unique<Core>(Options())) { Apply(*core_->Load({}, Now())); }

  void Run() {
    const double before = ResidentMegabytes();
    for (uint32_t node = 0; node < kNodes; ++node) Join(node);
    // Fills the cluster with jobs of whole nodes.
    for (uint32_t i = 0; i < kNodes; ++i) {
      v1::JobSpec spec = MakeSpec(random_);
      spec.mutable_resources()->mutable_nodes()->set_min(1);
      spec.mutable_resources()->mutable_nodes()->set_max(1);
      spec.mutable_resources()->set_ranks_per_node(kSlots);
      Submit(i, spec);
    }
    std::vector<absl::Duration> submissions;
    for (int i = 0; i < kQueued; ++i) {
      submissions.push_back(
          Measure([&] { Submit(kNodes + static_cast<uint32_t>(i), MakeSpec(random_)); }));
    }
    Print("submission", submissions);
    std::vector<absl::Duration> ends;
    for (int i = 0; i < kRepeats; ++i) ends.push_back(Measure([&] { EndOne(); }));
    Print("end of a job, decision and starts", ends);
    printf("%-36s %8.3f ms\n", "list of 10,000 jobs",
           Milliseconds(Measure([&] { core_->ListJobs({}, Now()); })));
    printf("%-36s %8.3f ms\n", "queue of 10,000 jobs",
           Milliseconds(Measure([&] { core_->GetQueue(0, Now()); })));
    v1::Forecast forecast;
    printf("%-36s %8.3f ms\n", "forecast", Milliseconds(Measure([&] {
             forecast = core_->ForecastJob(MakeSpec(random_), ActorOf(0), Now());
           })));
    printf("%-36s %8.1f MB\n", "memory of 1,000 nodes and 11,000 jobs",
           ResidentMegabytes() - before);
    Restart();
  }

 private:
  // Loads a new core from the records, with which all nodes connect again.
  void Restart() {
    std::vector<store::Record> records;
    for (const auto& [key, value] : records_) records.push_back({key, value});
    std::map<SessionId, std::vector<v1::GenerationReport>> inventories;
    for (const auto& [session, launch] : launched_) {
      v1::GenerationReport& report = inventories[session].emplace_back();
      report.set_job_id(launch.job_id());
      report.set_generation(launch.generation());
      for (const v1::RankPlacement& rank : launch.ranks()) {
        v1::RankReport& running = *report.add_ranks();
        running.set_rank(rank.rank());
        running.set_phase(v1::CONNECTED);
      }
    }
    core_ = std::make_unique<Core>(Options());
    printf("%-36s %8.3f ms\n", "restart: load",
           Milliseconds(Measure([&] { Apply(*core_->Load(records, Now())); })));
    std::vector<absl::Duration> steps;
    absl::Duration sum;
    for (uint32_t node = 0; node < kNodes; ++node) {
      SessionOpened event{SessionId(node + 1), HelloOf(node), "10.0.0.1"};
      for (v1::GenerationReport& report : inventories[event.session]) {
        *event.hello.add_inventory() = std::move(report);
      }
      steps.push_back(Measure([&] { Step(event, /*more=*/(node + 1) % kPerTurn != 0); }));
      sum += steps.back();
    }
    Print("restart: Hello", steps);
    printf("%-36s %8.3f ms\n", "restart: Hellos of 1,000 nodes", Milliseconds(sum));
  }

  void Apply(const Effects& effects) {
    for (const Send& send : effects.sends) {
      if (send.message.has_launch()) launched_.emplace_back(send.session, send.message.launch());
    }
    for (const store::Mutation& write : effects.writes) {
      records_.erase(write.key);
      if (write.value.has_value()) records_[write.key] = *write.value;
    }
  }
  void Step(const Event& event, bool more = false) { Apply(core_->Step(event, Now(), more)); }
  void Join(uint32_t node) { Step(SessionOpened{SessionId(node + 1), HelloOf(node), "10.0.0.1"}); }
  void Submit(uint32_t number, const v1::JobSpec& spec) {
    SubmitJob event{RequestId(1), JobId(absl::StrCat("job-", number)), spec, ""};
    event.actor = ActorOf(number);
    Step(event);
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
  std::mt19937 random_{1};
  std::vector<std::pair<SessionId, v1::Launch>> launched_;
  std::map<std::string, std::string> records_;
};

// Loads a core with 99,999 queued jobs.
std::unique_ptr<Core> LoadQueued(absl::FunctionRef<v1::JobSpec()> make_spec) {
  std::vector<store::Mutation> writes;
  {
    Core core{Options()};
    writes = core.Load({}, Now())->writes;
  }
  for (int i = 0; i < kStored; ++i) {
    Job job;
    job.status.set_job_id(absl::StrCat("job-", i));
    job.SetSpec(make_spec());
    job.status.set_state(v1::QUEUED);
    job.status.set_owner(ActorOf(static_cast<uint32_t>(i)).name);
    *job.status.mutable_submit_time() = ToProto(Now().wall);
    job.queue_sequence = static_cast<uint64_t>(i) + 1;
    WriteSpec(job, writes);
    writes.push_back(Put(ToRecord(job)));
  }
  std::map<std::string, std::string> stored;
  for (store::Mutation& write : writes) stored[write.key] = write.value.value_or("");
  std::vector<store::Record> records;
  for (auto& [key, value] : stored) records.push_back({key, std::move(value)});
  auto loaded = std::make_unique<Core>(Options());
  const absl::Duration took = Measure([&] {
    if (!loaded->Load(records, Now()).ok()) exit(1);
  });
  printf("%-36s %8.3f ms\n", "start with 99,999 queued jobs", Milliseconds(took));
  return loaded;
}

void MeasureLoad() {
  std::mt19937 random(2);
  LoadQueued([&random] { return MakeSpec(random); });
}

// The last node that the jobs of a long queue need leaves and comes back.
void MeasureReturn() {
  constexpr uint32_t kNeeded = 8;
  const std::unique_ptr<Core> core = LoadQueued([] {
    v1::JobSpec spec;
    spec.set_name("bench");
    spec.add_command("true");
    spec.mutable_resources()->mutable_nodes()->set_min(kNeeded);
    spec.mutable_resources()->mutable_nodes()->set_max(kNeeded);
    spec.mutable_resources()->set_ranks_per_node(kSlots);
    spec.mutable_resources()->set_device("cpu");
    return spec;
  });
  Time now = Now();
  absl::Duration longest;
  size_t changed = 0;
  const auto step = [&](const Event& event) {
    longest =
        std::max(longest, Measure([&] { changed += core->Step(event, now).changed_jobs.size(); }));
  };
  const auto settle = [&](const char* what) {
    while (core->NextDeadline() <= now.steady) step(Tick{});
    printf("%-36s %8.3f ms at most in a step, %zu jobs changed\n", what, Milliseconds(longest),
           changed);
    longest = absl::ZeroDuration();
    changed = 0;
  };
  step(Listening{"machine", "address"});
  for (uint32_t node = 0; node < kNeeded; ++node) {
    step(SessionOpened{SessionId(node + 1), HelloOf(node), "10.0.0.1"});
  }
  settle("100,000 jobs: all nodes connected");
  step(RemoveNode{RequestId(1), NodeName("node-0"), {"admin", true}, /*force=*/true});
  now = {now.steady + absl::Minutes(1), now.wall + absl::Minutes(1)};
  settle("100,000 jobs: a needed node is lost");
  for (uint32_t node = 0; node < kNeeded; ++node) {
    v1::Hello hello = HelloOf(node);
    hello.set_incarnation(node + 101);
    step(SessionOpened{SessionId(node + 101), hello, "10.0.0.1"});
  }
  settle("100,000 jobs: it returns");
}

// ------------------------------------------------------------------------------------------------
// the synthetic day

using testing::PlanWorld;

struct Arrival {
  absl::Duration at;
  PlanWorld::Spec spec;
};

// Jobs arrive mostly in working hours. Most are small and short, some are large; people ask for
// one to four times the time that their jobs need. A few owners submit most jobs.
std::vector<Arrival> MakeDay() {
  std::mt19937 random(7);
  const auto uniform = [&random] { return static_cast<double>(random()) / 4294967296.0; };
  std::vector<Arrival> day;
  for (int i = 0; i < 500; ++i) {
    Arrival arrival;
    const double hour = uniform() < 0.8 ? 8 + 10 * uniform() : 24 * uniform();
    arrival.at = absl::Minutes(60 * hour);
    PlanWorld::Spec& spec = arrival.spec;
    spec.owner = absl::StrCat("owner-", static_cast<int>(kOwners * uniform() * uniform()));
    const double kind = uniform();
    spec.job_class = kind < 0.15   ? JobClass::kLow
                     : kind < 0.95 ? JobClass::kNormal
                                   : JobClass::kHigh;
    const double size = uniform();
    spec.nodes = size < 0.7 ? 1 : size < 0.9 ? 2 + random() % 3 : 8 + random() % 9;
    spec.slots = spec.nodes > 1 ? 8 : 1 + random() % 8;
    spec.length = absl::Minutes(size < 0.5 ? 2 + 28 * uniform() : 30 + 210 * uniform());
    spec.limit = spec.length * (1 + 3 * uniform());
    day.push_back(std::move(arrival));
  }
  std::sort(day.begin(), day.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return day;
}

struct Policy {
  const char* name;
  bool shares = false;  // owners, classes and preemption
  uint32_t depth = 256;
};

void Replay(const Policy& policy, const std::vector<Arrival>& day) {
  SchedulerOptions options;
  options.backfill_depth = policy.depth;
  options.preemption = policy.shares;
  if (!policy.shares) options.ageing = absl::Hours(1'000'000);
  PlanWorld world(options);
  constexpr uint32_t kDayNodes = 32;
  for (uint32_t i = 0; i < kDayNodes; ++i) world.AddNode(absl::StrCat("node-", i), kSlots);
  const SteadyTime start = world.now();
  std::vector<JobId> ids;
  for (const Arrival& arrival : day) {
    world.AdvanceTo(start + arrival.at);
    PlanWorld::Spec spec = arrival.spec;
    if (!policy.shares) {
      spec.owner = "all";
      spec.job_class = JobClass::kNormal;
    }
    ids.push_back(world.Submit(spec));
    world.Decide();
  }
  while (world.SlotsInUse() > 0) world.AdvanceTo(world.NextEvent());
  std::vector<double> waits;
  std::map<std::string, double> by_owner;
  std::map<std::string, int> jobs_of;
  double used = 0, high_wait = 0;
  int high = 0, preemptions = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const PlanWorld::Job& job = world.job(ids[i]);
    const double wait = absl::ToDoubleMinutes(job.first_start - job.submitted);
    waits.push_back(wait);
    by_owner[day[i].spec.owner] += wait;
    ++jobs_of[day[i].spec.owner];
    preemptions += static_cast<int>(job.preemptions);
    used += absl::ToDoubleHours(job.run_time) * job.spec.nodes * job.spec.slots;
    if (day[i].spec.job_class != JobClass::kHigh) continue;
    high_wait += wait;
    ++high;
  }
  double worst_owner = 0;
  for (const auto& [owner, wait] : by_owner) {
    worst_owner = std::max(worst_owner, wait / jobs_of[owner]);
  }
  std::sort(waits.begin(), waits.end());
  const double hours = absl::ToDoubleHours(world.now() - start);
  double mean = 0;
  for (const double wait : waits) mean += wait / static_cast<double>(waits.size());
  printf("%-14s %9.1f%% %9.1f h %9.1f %9.1f %9.1f %9.1f %9.1f %9.1f %6d\n", policy.name,
         100 * used / (hours * kDayNodes * kSlots), hours, mean, waits[waits.size() / 2],
         waits[waits.size() * 95 / 100], waits.back(), worst_owner, high_wait / std::max(1, high),
         preemptions);
}

void ReplayDay() {
  const std::vector<Arrival> day = MakeDay();
  printf("waits in minutes\n%-14s %10s %11s %9s %9s %9s %9s %9s %9s %6s\n", "policy", "use",
         "all done", "mean", "median", "p95", "longest", "by owner", "high", "preempted");
  Replay({"FIFO", false, 1}, day);
  Replay({"EASY backfill", false, 256}, day);
  Replay({"muster", true, 256}, day);
}

}  // namespace
}  // namespace muster::core

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--day") {
    muster::core::ReplayDay();
    return 0;
  }
  if (argc > 1) {
    fprintf(stderr, "usage: scheduler_bench [--day]\n");
    return 2;
  }
  muster::core::Bench().Run();
  muster::core::MeasureLoad();
  muster::core::MeasureReturn();
  return 0;
}
