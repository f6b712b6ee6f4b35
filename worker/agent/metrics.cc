#include "worker/agent/metrics.h"

#include <map>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/version.h"
#include "worker/metric_families.h"

namespace muster::agent {
namespace {

constexpr absl::Duration kStuckAfter = absl::Seconds(10);

void AddRank(const std::string& job_id, const std::string& rank, const v1::Progress& progress,
             metrics::Collection& out) {
  const std::vector<std::string> labels = {job_id, rank};
  const auto with = [&labels](const std::vector<std::string>& more) {
    std::vector<std::string> all = labels;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  // The trainer reports its precision when it starts; a command reports only some of the values,
  // and those that it has not reported are zero.
  const bool trains = progress.has_precision();
  const bool stepped = trains && progress.step() > 0;
  const bool evaluated = trains && progress.test_loss() != 0;
  const auto add = [&](const metrics::Family& family, double value, bool known) {
    if (known || value != 0) out.Add(family, labels, value);
  };
  add(WorkerFamily("muster_train_step"), static_cast<double>(progress.step()), trains);
  add(WorkerFamily("muster_train_loss"), progress.loss(), stepped);
  add(WorkerFamily("muster_train_accuracy_ratio"), progress.train_accuracy(), stepped);
  add(WorkerFamily("muster_test_accuracy_ratio"), progress.test_accuracy(), evaluated);
  add(WorkerFamily("muster_test_loss"), progress.test_loss(), evaluated);
  add(WorkerFamily("muster_train_learning_rate"), progress.learning_rate(), stepped);
  add(WorkerFamily("muster_train_samples_total"), static_cast<double>(progress.samples()), stepped);
  if (!trains) return;
  const std::pair<const char*, double> phases[] = {
      {"step", progress.step_seconds()},
      {"data_wait", progress.data_wait_seconds()},
      {"communication", progress.exposed_communication_seconds()}};
  for (const auto& [phase, seconds] : phases) {
    if (stepped) {
      out.Add(WorkerFamily("muster_train_step_duration_seconds"), with({phase}), seconds);
    }
  }
  if (progress.loss_scale() > 0) {
    out.Add(WorkerFamily("muster_train_loss_scale"), labels, progress.loss_scale());
    out.Add(WorkerFamily("muster_train_skipped_steps_total"), labels,
            static_cast<double>(progress.skipped_steps()));
  }
  const auto& precision = progress.precision();
  out.Add(WorkerFamily("muster_train_precision_info"),
          with({precision.level(), precision.dtype(), precision.gradient_dtype()}), 1);
  out.Add(WorkerFamily("muster_loader_stall_seconds_total"), labels, progress.stall_seconds());
  out.Add(WorkerFamily("muster_collective_bytes_total"), with({"all_reduce"}),
          static_cast<double>(progress.collective_bytes()));
}

}  // namespace

Metrics::Metrics(ProgressBoard& board, const WorkerStatus& status, Slots slots)
    : board_(board), status_(status), slots_(std::move(slots)) {}

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  metrics::Collection out;
  std::map<std::string, int> ranks_by_phase;
  for (const v1::RankPhase phase : {v1::PLACED, v1::STARTED, v1::JOINED, v1::CONNECTED}) {
    ranks_by_phase[v1::RankPhase_Name(phase)] = 0;
  }
  for (const auto& [key, entry] : board_.Snapshot(Now().steady)) {
    const v1::RankReport& report = entry.report;
    if (report.has_progress()) {
      AddRank(key.first, absl::StrCat(key.second), report.progress(), out);
    }
    if (report.memory_bytes() > 0) {
      out.Add(WorkerFamily("muster_rank_memory_bytes"), {key.first, absl::StrCat(key.second)},
              static_cast<double>(report.memory_bytes()));
    }
    const auto it = ranks_by_phase.find(v1::RankPhase_Name(report.phase()));
    if (it != ranks_by_phase.end()) ++it->second;
  }
  for (const auto& [phase, count] : ranks_by_phase) {
    out.Add(WorkerFamily("muster_worker_ranks"), {phase}, count);
  }
  Slots in_use = board_.SlotsInUse();
  for (const auto& [kind, count] : slots_) {
    out.Add(WorkerFamily("muster_worker_slots"), {kind}, count);
    out.Add(WorkerFamily("muster_worker_slots_allocated"), {kind}, in_use[kind]);
  }
  out.Add(WorkerFamily("muster_build_info"), {kSoftwareVersion, absl::StrCat(kProtocolVersion)}, 1);
  out.Add(WorkerFamily("muster_worker_session_up"), {}, status_.session_up.load() ? 1 : 0);
  out.Add(WorkerFamily("muster_worker_sessions_total"), {},
          static_cast<double>(status_.sessions_total.load()));
  out.Add(WorkerFamily("muster_worker_conflict"), {}, status_.in_conflict.load() ? 1 : 0);
  out.Add(WorkerFamily("muster_event_loop_lag_seconds"), {}, status_.loop_lag_seconds.load());
  return out.Take();
}

absl::StatusOr<std::unique_ptr<StatusServer>> StatusServer::Start(
    const std::string& listen, const WorkerStatus& status, std::shared_ptr<Metrics> metrics,
    std::shared_ptr<prometheus::Collectable> gpus, http::HealthCheck session,
    http::HealthCheck cluster) {
  auto server = absl::WrapUnique(new StatusServer());
  ASSIGN_OR_RETURN(server->http_, http::HttpServer::Start(listen));
  server->metrics_ = std::move(metrics);
  server->gpus_ = std::move(gpus);
  http::HandleMetrics(*server->http_, {server->metrics_, server->gpus_});
  const http::HealthCheck loop = {"event-loop", [&status] {
                                    const absl::Duration stuck =
                                        Now().steady.since_start() -
                                        absl::Milliseconds(status.loop_tick_ms.load());
                                    if (stuck < kStuckAfter) return absl::OkStatus();
                                    return absl::UnavailableError(absl::StrCat(
                                        "event loop stuck for ", absl::FormatDuration(stuck)));
                                  }};
  http::HandleHealth(*server->http_, {loop}, {loop, std::move(session), std::move(cluster)});
  http::HandleVersion(*server->http_);
  return server;
}

}  // namespace muster::agent
