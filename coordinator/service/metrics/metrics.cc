#include "coordinator/service/metrics/metrics.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "coordinator/metric_families.h"
#include "coordinator/service/loop/job_watchers.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"

namespace muster::service {
namespace {

// Short waits come and go; a series for each would be useless.
constexpr absl::Duration kMinReportedWait = absl::Seconds(2);

const prometheus::Histogram::BucketBoundaries& SecondsBuckets() {
  static const auto& buckets = *new prometheus::Histogram::BucketBoundaries{
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800};
  return buckets;
}

prometheus::Family<prometheus::Histogram>& HistogramFamily(prometheus::Registry& registry,
                                                           const metrics::Family& family) {
  return prometheus::BuildHistogram()
      .Name(std::string(family.name))
      .Help(family.help)
      .Register(registry);
}

std::string StateLabel(v1::JobState state) {
  return absl::AsciiStrToLower(v1::JobState_Name(state));
}

void GatherNodes(const Snapshot& snapshot, absl::Duration age, metrics::Collection& out) {
  std::map<std::string, int> states = {{"ready", 0}, {"suspect", 0}, {"lost", 0}};
  double slots = 0;
  double allocated = 0;
  double unhealthy = 0;
  double cooling_down = 0;
  double conflicts = 0;
  for (const v1::Node& node : snapshot.nodes) {
    if (node.has_cool_down()) ++cooling_down;
    if (!node.conflict().empty()) ++conflicts;
    ++states[absl::AsciiStrToLower(v1::NodeState_Name(node.state()))];
    for (const v1::Slot& slot : node.slots()) {
      if (node.state() != v1::LOST) ++slots;
      if (!slot.job_id().empty()) ++allocated;
      const bool is_unhealthy = !slot.unavailable().empty() && !slot.returning();
      if (node.state() != v1::LOST && is_unhealthy) ++unhealthy;
    }
  }
  for (const auto& [state, count] : states) {
    out.Add(CoordinatorFamily("muster_nodes"), {state}, count);
  }
  for (const v1::Node& node : snapshot.nodes) {
    out.Add(CoordinatorFamily("muster_node_up"), {node.name()}, node.state() == v1::LOST ? 0 : 1);
  }
  for (const v1::Node& node : snapshot.nodes) {
    out.Add(CoordinatorFamily("muster_node_heartbeat_age_seconds"), {node.name()},
            absl::ToDoubleSeconds(FromProto(node.heartbeat_age()) + age));
  }
  for (const v1::Node& node : snapshot.nodes) {
    out.Add(CoordinatorFamily("muster_node_failed_launches"), {node.name()},
            node.failed_launches());
  }
  for (const v1::Node& node : snapshot.nodes) {
    const auto lost = snapshot.totals.lost_slot_seconds_by_node.find(node.name());
    if (lost == snapshot.totals.lost_slot_seconds_by_node.end()) continue;
    out.Add(CoordinatorFamily("muster_node_lost_slot_seconds_total"), {node.name()}, lost->second);
  }
  out.Add(CoordinatorFamily("muster_nodes_cooling_down"), {}, cooling_down);
  out.Add(CoordinatorFamily("muster_nodes_in_conflict"), {}, conflicts);
  out.Add(CoordinatorFamily("muster_store_info"), {snapshot.store.cluster_id}, 1);
  out.Add(CoordinatorFamily("muster_store_commit_index"), {},
          static_cast<double>(snapshot.store.commit_index));
  out.Add(CoordinatorFamily("muster_slots"), {}, slots);
  out.Add(CoordinatorFamily("muster_slots_allocated"), {}, allocated);
  out.Add(CoordinatorFamily("muster_slots_unhealthy"), {}, unhealthy);
}

void GatherJobStates(const Snapshot& snapshot, metrics::Collection& out) {
  std::map<v1::JobState, int> states = {
      {v1::QUEUED, 0}, {v1::HELD, 0}, {v1::STARTING, 0}, {v1::RUNNING, 0}, {v1::STOPPING, 0}};
  for (const auto& job : snapshot.jobs) {
    if (!IsTerminal(job->state())) ++states[job->state()];
  }
  for (const auto& [state, count] : states) {
    out.Add(CoordinatorFamily("muster_jobs"), {StateLabel(state)}, count);
  }
}

void GatherWaits(const Snapshot& snapshot, SteadyTime now, metrics::Collection& out) {
  std::map<std::pair<JobId, std::string>, core::LiveWait> oldest;
  for (const core::LiveWait& wait : snapshot.waits) {
    // Without the names of barriers: programs choose them, and anyone can read the metrics.
    const bool is_barrier = absl::StartsWith(wait.what, "barrier ");
    const auto [at, first] =
        oldest.try_emplace({wait.job, is_barrier ? "barrier" : wait.what}, wait);
    if (wait.since < at->second.since) at->second = wait;
  }
  for (const auto& [name, wait] : oldest) {
    const absl::Duration duration = now - wait.since;
    if (duration < kMinReportedWait) continue;
    const std::vector<std::string> labels = {name.first.value(), name.second};
    out.Add(CoordinatorFamily("muster_wait_seconds"), labels, absl::ToDoubleSeconds(duration));
    out.Add(CoordinatorFamily("muster_wait_missing_ranks"), labels, wait.missing);
  }
}

void GatherCheckpoints(const Snapshot& snapshot, SteadyTime now, metrics::Collection& out) {
  for (const auto& job : snapshot.jobs) {
    const auto last = snapshot.checkpointed.find(job->job_id());
    const v1::CheckpointSpec& spec = job->spec().train().checkpoint();
    const absl::Duration interval = FromProto(spec.every());
    const bool writes = interval > absl::ZeroDuration() && (!spec.has_keep() || spec.keep() > 0);
    if (last == snapshot.checkpointed.end() || !writes) continue;
    out.Add(CoordinatorFamily("muster_job_checkpoint_age_seconds"), {job->job_id()},
            absl::ToDoubleSeconds(now - last->second));
    out.Add(CoordinatorFamily("muster_job_checkpoint_interval_seconds"), {job->job_id()},
            absl::ToDoubleSeconds(interval));
  }
}

struct ProgressMetric {
  const metrics::Family& family;
  double (*value)(const v1::Progress&);
  // Whether a train job has the value, too, if it is zero. A command's zero is a value that it has
  // not reported.
  bool (*has)(const v1::Progress&);
};

bool HasStepped(const v1::Progress& progress) { return progress.step() > 0; }

bool WasEvaluated(const v1::Progress& progress) { return progress.test_loss() != 0; }

constexpr ProgressMetric kProgressMetrics[] = {
    {CoordinatorFamily("muster_train_step"),
     [](const v1::Progress& p) -> double { return p.step(); },
     [](const v1::Progress&) { return true; }},
    {CoordinatorFamily("muster_train_loss"),
     [](const v1::Progress& p) -> double { return p.loss(); }, HasStepped},
    {CoordinatorFamily("muster_train_accuracy_ratio"),
     [](const v1::Progress& p) -> double { return p.train_accuracy(); }, HasStepped},
    {CoordinatorFamily("muster_test_accuracy_ratio"),
     [](const v1::Progress& p) -> double { return p.test_accuracy(); }, WasEvaluated},
    {CoordinatorFamily("muster_train_learning_rate"),
     [](const v1::Progress& p) -> double { return p.learning_rate(); }, HasStepped},
    {CoordinatorFamily("muster_train_samples_total"),
     [](const v1::Progress& p) -> double { return p.samples(); }, HasStepped},
};

void GatherProgress(const v1::Job& job, metrics::Collection& out) {
  const v1::Progress& progress = job.progress();
  const bool trains = job.spec().has_train();
  for (const ProgressMetric& metric : kProgressMetrics) {
    const double value = metric.value(progress);
    if (value == 0 && !(trains && metric.has(progress))) continue;
    out.Add(metric.family, {job.job_id()}, value);
  }
  if (!trains || !HasStepped(progress)) return;
  const std::pair<const char*, double> phases[] = {
      {"step", progress.step_seconds()},
      {"data_wait", progress.data_wait_seconds()},
      {"exposed_communication", progress.exposed_communication_seconds()}};
  for (const auto& [phase, seconds] : phases) {
    out.Add(CoordinatorFamily("muster_train_step_duration_seconds"), {job.job_id(), phase},
            seconds);
  }
}

void GatherJobs(const Snapshot& snapshot, absl::Time now, metrics::Collection& out) {
  for (const auto& job : snapshot.jobs) {
    if (IsTerminal(job->state()) && now - FromProto(job->finish_time()) >= kEndedJobsStay) continue;
    const bool trains = job->spec().has_train();
    out.Add(CoordinatorFamily("muster_job_info"),
            {job->job_id(), job->spec().name(), trains ? "train" : "command"}, 1);
    if (job->has_progress()) GatherProgress(*job, out);
    if (job->state() == v1::RUNNING) {
      out.Add(CoordinatorFamily("muster_job_hung"), {job->job_id()}, job->has_hang() ? 1 : 0);
    }
    if (job->slowdown() > 0) {
      out.Add(CoordinatorFamily("muster_straggler_score_ratio"), {job->job_id()}, job->slowdown());
    }
  }
}

}  // namespace

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      lag_(HistogramFamily(*registry_, CoordinatorFamily("muster_event_loop_lag_seconds"))
               .Add({}, SecondsBuckets())) {
  // Histograms without labels are exported before their first sample, so that rates are right.
  for (const metrics::Family& family : kCoreFamilies) {
    if (family.type != MetricType::Histogram || family.labels[0] != nullptr) continue;
    HistogramFamily(*registry_, family).Add({}, SecondsBuckets());
  }
  constexpr const metrics::Family& kBuild = CoordinatorFamily("muster_build_info");
  prometheus::BuildGauge()
      .Name(std::string(kBuild.name))
      .Help(kBuild.help)
      .Register(*registry_)
      .Add({{"version", kSoftwareVersion}, {"protocol_version", std::to_string(kProtocolVersion)}})
      .Set(1);
}

void Metrics::Observe(const core::Stats& stats) {
  for (const auto& [series, samples] : stats.seconds) {
    prometheus::Labels labels;
    for (size_t i = 0; i < series.labels.size(); ++i) {
      labels[series.family->labels[i]] = series.labels[i];
    }
    prometheus::Histogram& histogram =
        HistogramFamily(*registry_, *series.family).Add(labels, SecondsBuckets());
    for (const double sample : samples) histogram.Observe(sample);
  }
}

void Metrics::ObserveLag(absl::Duration lag) { lag_.Observe(absl::ToDoubleSeconds(lag)); }

std::vector<prometheus::MetricFamily> SnapshotMetrics::Collect() const {
  const std::shared_ptr<const Snapshot> snapshot = snapshot_();
  const Time now = clock_();
  metrics::Collection out;
  for (const auto& [series, total] : snapshot->totals.totals) {
    out.Add(*series.family, series.labels, total);
  }
  GatherJobStates(*snapshot, out);
  GatherNodes(*snapshot, std::max(now.steady - snapshot->taken.steady, absl::ZeroDuration()), out);
  GatherWaits(*snapshot, now.steady, out);
  GatherCheckpoints(*snapshot, now.steady, out);
  GatherJobs(*snapshot, now.wall, out);
  return out.Take();
}

}  // namespace muster::service
