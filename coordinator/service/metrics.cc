#include "coordinator/service/metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "common/proto_time.h"
#include "common/version.h"
#include "coordinator/service/job_watchers.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"

namespace muster::service {
namespace {

using ::prometheus::ClientMetric;
using ::prometheus::MetricFamily;
using ::prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;

// Short waits come and go; a series for each would be useless.
constexpr absl::Duration kMinReportedWait = absl::Seconds(2);

const prometheus::Histogram::BucketBoundaries& SecondsBuckets() {
  static const auto& buckets = *new prometheus::Histogram::BucketBoundaries{
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800};
  return buckets;
}

prometheus::Family<prometheus::Histogram>& HistogramFamily(prometheus::Registry& registry,
                                                           const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

prometheus::Histogram& Histogram(prometheus::Registry& registry, const char* name,
                                 const char* help) {
  return HistogramFamily(registry, name, help).Add({}, SecondsBuckets());
}

void ObserveAll(prometheus::Histogram& histogram, const std::vector<double>& samples) {
  for (const double sample : samples) histogram.Observe(sample);
}

class Gatherer {
 public:
  // The reference is valid until the next call.
  MetricFamily& Family(absl::string_view name, absl::string_view help, MetricType type) {
    families_.push_back({std::string(name), std::string(help), type, {}});
    return families_.back();
  }
  static void Add(MetricFamily& family, Labels labels, double value) {
    ClientMetric metric;
    metric.label = std::move(labels);
    (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
    family.metric.push_back(std::move(metric));
  }
  std::vector<MetricFamily> Take() {
    families_.erase(std::remove_if(families_.begin(), families_.end(),
                                   [](const MetricFamily& f) { return f.metric.empty(); }),
                    families_.end());
    return std::move(families_);
  }

 private:
  std::vector<MetricFamily> families_;
};

std::string StateLabel(v1::JobState state) {
  return absl::AsciiStrToLower(v1::JobState_Name(state));
}

void GatherTotals(const core::Stats& totals, Gatherer& gather) {
  MetricFamily& submitted =
      gather.Family("muster_jobs_submitted_total", "Jobs accepted.", MetricType::Counter);
  Gatherer::Add(submitted, {}, totals.jobs_submitted);
  MetricFamily& finished = gather.Family(
      "muster_jobs_finished_total", "Jobs that reached a terminal state.", MetricType::Counter);
  for (const core::Stats::Finished& f : totals.jobs_finished) {
    Gatherer::Add(finished, {{"state", StateLabel(f.state)}, {"reason", f.reason}}, f.count);
  }
  MetricFamily& restarts =
      gather.Family("muster_job_restarts_total",
                    "Restarts of jobs after a failed generation, by cause.", MetricType::Counter);
  for (const auto& [cause, count] : totals.restarts_by_cause) {
    Gatherer::Add(restarts, {{"cause", cause}}, count);
  }
}

void GatherNodes(const Snapshot& snapshot, absl::Duration age, Gatherer& gather) {
  std::map<std::string, int> states = {{"ready", 0}, {"suspect", 0}, {"lost", 0}};
  double slots = 0;
  double allocated = 0;
  double unhealthy = 0;
  for (const v1::Node& node : snapshot.nodes) {
    ++states[absl::AsciiStrToLower(v1::NodeState_Name(node.state()))];
    for (const v1::Slot& slot : node.slots()) {
      if (node.state() != v1::LOST) ++slots;
      if (!slot.job_id().empty()) ++allocated;
      const bool is_unhealthy = !slot.unavailable().empty() && !slot.returning();
      if (node.state() != v1::LOST && is_unhealthy) ++unhealthy;
    }
  }
  MetricFamily& nodes = gather.Family("muster_nodes", "Nodes by state.", MetricType::Gauge);
  for (const auto& [state, count] : states) Gatherer::Add(nodes, {{"state", state}}, count);
  MetricFamily& ages =
      gather.Family("muster_node_heartbeat_age_seconds",
                    "Time since the last heartbeat of the node.", MetricType::Gauge);
  for (const v1::Node& node : snapshot.nodes) {
    Gatherer::Add(ages, {{"node", node.name()}},
                  absl::ToDoubleSeconds(FromProto(node.heartbeat_age()) + age));
  }
  Gatherer::Add(
      gather.Family("muster_slots", "Slots on nodes that are not lost.", MetricType::Gauge), {},
      slots);
  Gatherer::Add(
      gather.Family("muster_slots_allocated", "Slots occupied by ranks.", MetricType::Gauge), {},
      allocated);
  Gatherer::Add(
      gather.Family("muster_slots_unhealthy",
                    "Unhealthy slots on nodes that are not lost; no ranks are placed on them.",
                    MetricType::Gauge),
      {}, unhealthy);
}

void GatherJobStates(const Snapshot& snapshot, Gatherer& gather) {
  std::map<v1::JobState, int> states = {
      {v1::QUEUED, 0}, {v1::HELD, 0}, {v1::STARTING, 0}, {v1::RUNNING, 0}, {v1::STOPPING, 0}};
  for (const auto& job : snapshot.jobs) {
    if (!IsTerminal(job->state())) ++states[job->state()];
  }
  MetricFamily& jobs = gather.Family("muster_jobs", "Unfinished jobs by state.", MetricType::Gauge);
  for (const auto& [state, count] : states) {
    Gatherer::Add(jobs, {{"state", StateLabel(state)}}, count);
  }
}

void GatherWaits(const Snapshot& snapshot, SteadyTime now, Gatherer& gather) {
  const auto gather_all = [&](const char* name, const char* help, auto value) {
    MetricFamily& family = gather.Family(name, help, MetricType::Gauge);
    for (const core::LiveWait& wait : snapshot.waits) {
      if (now - wait.since < kMinReportedWait) continue;
      Gatherer::Add(family, {{"job_id", wait.job.value()}, {"what", wait.what}}, value(wait));
    }
  };
  gather_all("muster_wait_seconds",
             "Time that ranks have been waiting for other ranks, for waits of 2 s or more.",
             [now](const core::LiveWait& wait) { return absl::ToDoubleSeconds(now - wait.since); });
  gather_all("muster_wait_missing_ranks", "Missing ranks, for waits of 2 s or more.",
             [](const core::LiveWait& wait) { return wait.missing; });
}

struct ProgressMetric {
  const char* name;
  const char* help;
  MetricType type;
  double (*value)(const v1::Progress&);
};

constexpr ProgressMetric kProgressMetrics[] = {
    {"muster_train_step", "Training steps completed by the lowest rank.", MetricType::Gauge,
     [](const v1::Progress& p) -> double { return p.step(); }},
    {"muster_train_loss", "Training loss of the last step.", MetricType::Gauge,
     [](const v1::Progress& p) -> double { return p.loss(); }},
    {"muster_train_accuracy_ratio", "Test accuracy of the last evaluation.", MetricType::Gauge,
     [](const v1::Progress& p) -> double { return p.test_accuracy(); }},
    {"muster_train_learning_rate", "Learning rate of the last step.", MetricType::Gauge,
     [](const v1::Progress& p) -> double { return p.learning_rate(); }},
    {"muster_train_samples_total", "Samples trained on by all ranks.", MetricType::Counter,
     [](const v1::Progress& p) -> double { return p.samples(); }},
};

void GatherJobs(const Snapshot& snapshot, absl::Time now, Gatherer& gather) {
  std::vector<const v1::Job*> shown;
  for (const auto& job : snapshot.jobs) {
    if (!IsTerminal(job->state()) || now - FromProto(job->finish_time()) < kEndedJobsStay) {
      shown.push_back(job.get());
    }
  }
  MetricFamily& info =
      gather.Family("muster_job_info", "Name and kind of a job.", MetricType::Gauge);
  for (const v1::Job* job : shown) {
    Gatherer::Add(info,
                  {{"job_id", job->job_id()},
                   {"name", job->spec().name()},
                   {"kind", job->spec().has_train() ? "train" : "command"}},
                  1);
  }
  const auto trains = [](const v1::Job& job) {
    return job.spec().has_train() && job.has_progress();
  };
  for (const ProgressMetric& metric : kProgressMetrics) {
    MetricFamily& family = gather.Family(metric.name, metric.help, metric.type);
    for (const v1::Job* job : shown) {
      if (!trains(*job)) continue;
      Gatherer::Add(family, {{"job_id", job->job_id()}}, metric.value(job->progress()));
    }
  }
  MetricFamily& durations = gather.Family(
      "muster_train_step_duration_seconds",
      "Recent median step time of the lowest rank, and its waiting times within a step, by phase.",
      MetricType::Gauge);
  for (const v1::Job* job : shown) {
    if (!trains(*job)) continue;
    const v1::Progress& progress = job->progress();
    const std::pair<const char*, double> phases[] = {
        {"step", progress.step_seconds()},
        {"data_wait", progress.data_wait_seconds()},
        {"exposed_communication", progress.exposed_communication_seconds()}};
    for (const auto& [phase, seconds] : phases) {
      Gatherer::Add(durations, {{"job_id", job->job_id()}, {"phase", phase}}, seconds);
    }
  }
}

}  // namespace

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      queue_wait_(Histogram(*registry_, "muster_queue_wait_seconds",
                            "Time from submission or requeueing of a job to its placement.")),
      barrier_wait_(Histogram(*registry_, "muster_barrier_wait_seconds",
                              "Time from the first arrival at a barrier to its release.")),
      failure_detection_(
          Histogram(*registry_, "muster_failure_detection_seconds",
                    "Time from the last sign of life to the detection of a failure.")),
      recovery_(
          Histogram(*registry_, "muster_recovery_duration_seconds",
                    "Time from the detection of a failure until the next generation is running.")),
      lag_(Histogram(*registry_, "muster_event_loop_lag_seconds",
                     "Delay of the core in handling events and deadlines.")),
      rendezvous_(HistogramFamily(*registry_, "muster_rendezvous_duration_seconds",
                                  "Duration of each phase from placement to running.")) {
  prometheus::BuildGauge()
      .Name("muster_build_info")
      .Help("Version of this coordinator.")
      .Register(*registry_)
      .Add({{"version", kSoftwareVersion}, {"protocol_version", std::to_string(kProtocolVersion)}})
      .Set(1);
}

void Metrics::Observe(const core::Stats& stats) {
  ObserveAll(queue_wait_, stats.queue_wait_seconds);
  ObserveAll(barrier_wait_, stats.barrier_wait_seconds);
  ObserveAll(failure_detection_, stats.failure_detection_seconds);
  ObserveAll(recovery_, stats.recovery_seconds);
  for (const core::Stats::Seconds& phase : stats.rendezvous_seconds) {
    ObserveAll(rendezvous_.Add({{"phase", phase.label}}, SecondsBuckets()), phase.samples);
  }
}

void Metrics::ObserveLag(absl::Duration lag) { lag_.Observe(absl::ToDoubleSeconds(lag)); }

std::vector<MetricFamily> SnapshotMetrics::Collect() const {
  const std::shared_ptr<const Snapshot> snapshot = snapshot_();
  const Time now = clock_();
  Gatherer gather;
  GatherTotals(snapshot->totals, gather);
  GatherJobStates(*snapshot, gather);
  GatherNodes(*snapshot, std::max(now.steady - snapshot->taken.steady, absl::ZeroDuration()),
              gather);
  GatherWaits(*snapshot, now.steady, gather);
  GatherJobs(*snapshot, now.wall, gather);
  return gather.Take();
}

}  // namespace muster::service
