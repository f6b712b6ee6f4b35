#include "worker/agent/metrics.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/now.h"
#include "common/version.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"

namespace muster::agent {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string, std::string>>;

MetricFamily Family(std::string name, std::string help, MetricType type = MetricType::Gauge) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return family;
}

void Add(MetricFamily& family, double value, const Labels& labels = {}) {
  prometheus::ClientMetric metric;
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  if (family.type == MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family.metric.push_back(std::move(metric));
}

std::vector<MetricFamily> RankFamilies(
    const std::map<ProgressBoard::Key, ProgressBoard::Entry>& ranks) {
  MetricFamily step = Family("muster_train_step", "Steps completed since the job's first start.");
  MetricFamily loss = Family("muster_train_loss", "Training loss of the latest step.");
  MetricFamily accuracy =
      Family("muster_train_accuracy_ratio", "Accuracy on the test set, 0 to 1.");
  MetricFamily test_loss = Family("muster_test_loss", "Mean loss on the test set.");
  MetricFamily rate = Family("muster_train_learning_rate", "Learning rate of the latest step.");
  MetricFamily samples =
      Family("muster_train_samples_total", "Samples processed in training by all ranks of the job.",
             MetricType::Counter);
  MetricFamily duration = Family("muster_train_step_duration_seconds",
                                 "Median over the last seconds: the whole step, the wait for data, "
                                 "and exposed communication.");
  MetricFamily loss_scale =
      Family("muster_train_loss_scale", "Loss scale of mixed precision training.");
  MetricFamily skipped =
      Family("muster_train_skipped_steps_total",
             "Steps skipped because of gradient overflow, since the job's first start.",
             MetricType::Counter);
  MetricFamily precision =
      Family("muster_train_precision_info",
             "Precision of a rank's computation and of the gradient reduction; always 1.");
  MetricFamily stall = Family("muster_loader_stall_seconds_total",
                              "Time that the rank waited for its data loader in this generation.",
                              MetricType::Counter);
  MetricFamily bytes =
      Family("muster_collective_bytes_total",
             "Bytes that the rank sent into collectives in this generation.", MetricType::Counter);
  for (const auto& [key, entry] : ranks) {
    const v1::RankReport& report = entry.report;
    if (!report.has_progress()) continue;
    const v1::Progress& progress = report.progress();
    const Labels labels = {{"job_id", key.first}, {"rank", absl::StrCat(key.second)}};
    const auto with = [&labels](const char* name, const std::string& value) {
      Labels all = labels;
      all.emplace_back(name, value);
      return all;
    };
    Add(step, static_cast<double>(progress.step()), labels);
    Add(loss, progress.loss(), labels);
    Add(accuracy, progress.test_accuracy(), labels);
    Add(test_loss, progress.test_loss(), labels);
    Add(rate, progress.learning_rate(), labels);
    Add(samples, static_cast<double>(progress.samples()), labels);
    Add(duration, progress.step_seconds(), with("phase", "step"));
    Add(duration, progress.data_wait_seconds(), with("phase", "data_wait"));
    Add(duration, progress.exposed_communication_seconds(), with("phase", "communication"));
    if (progress.loss_scale() > 0) {
      Add(loss_scale, progress.loss_scale(), labels);
      Add(skipped, static_cast<double>(progress.skipped_steps()), labels);
    }
    if (progress.has_precision()) {
      Labels types = with("precision", progress.precision().level());
      types.emplace_back("dtype", progress.precision().dtype());
      types.emplace_back("gradient_dtype", progress.precision().gradient_dtype());
      Add(precision, 1, types);
    }
    Add(stall, progress.stall_seconds(), labels);
    Add(bytes, static_cast<double>(progress.collective_bytes()), with("op", "all_reduce"));
  }
  std::vector<MetricFamily> families;
  for (MetricFamily* family : {&step, &loss, &accuracy, &test_loss, &rate, &samples, &duration,
                               &loss_scale, &skipped, &precision, &stall, &bytes}) {
    if (!family->metric.empty()) families.push_back(std::move(*family));
  }
  return families;
}

}  // namespace

Metrics::Metrics(ProgressBoard& board, const WorkerStatus& status, Slots slots,
                 std::function<Slots()> slots_in_use)
    : board_(board),
      status_(status),
      slots_(std::move(slots)),
      slots_in_use_(std::move(slots_in_use)) {}

std::vector<MetricFamily> Metrics::Collect() const {
  const auto ranks = board_.Snapshot(Now().steady);
  std::vector<MetricFamily> families = RankFamilies(ranks);

  MetricFamily build = Family("muster_build_info", "Version of the running build; always 1.");
  Add(build, 1,
      {{"version", kSoftwareVersion}, {"protocol_version", absl::StrCat(kProtocolVersion)}});
  families.push_back(std::move(build));

  MetricFamily slots = Family("muster_worker_slots", "Slots of this worker.");
  MetricFamily allocated =
      Family("muster_worker_slots_allocated", "Slots of this worker that are occupied by a rank.");
  Slots in_use = slots_in_use_();
  for (const auto& [kind, count] : slots_) {
    Add(slots, count, {{"kind", kind}});
    Add(allocated, in_use[kind], {{"kind", kind}});
  }
  families.push_back(std::move(slots));
  families.push_back(std::move(allocated));

  MetricFamily by_phase = Family("muster_worker_ranks", "Ranks on this worker, by phase.");
  std::map<std::string, int> counts;
  for (const v1::RankPhase phase : {v1::PLACED, v1::STARTED, v1::JOINED, v1::CONNECTED}) {
    counts[v1::RankPhase_Name(phase)] = 0;
  }
  for (const auto& [key, entry] : ranks) {
    const auto it = counts.find(v1::RankPhase_Name(entry.report.phase()));
    if (it != counts.end()) ++it->second;
  }
  for (const auto& [phase, count] : counts) Add(by_phase, count, {{"phase", phase}});
  families.push_back(std::move(by_phase));

  MetricFamily up =
      Family("muster_worker_session_up", "1 while the worker has a session with the coordinator.");
  Add(up, status_.session_up.load() ? 1 : 0);
  families.push_back(std::move(up));

  MetricFamily sessions =
      Family("muster_worker_sessions_total",
             "Sessions with the coordinator since the worker started.", MetricType::Counter);
  Add(sessions, static_cast<double>(status_.sessions_total.load()));
  families.push_back(std::move(sessions));

  MetricFamily lag = Family("muster_event_loop_lag_seconds",
                            "Delay of the last timer of the worker's event loop.");
  Add(lag, status_.loop_lag_seconds.load());
  families.push_back(std::move(lag));
  return families;
}

}  // namespace muster::agent
