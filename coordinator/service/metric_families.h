// The metrics that muster-coordinator exports.
#ifndef MUSTER_COORDINATOR_SERVICE_METRIC_FAMILIES_H_
#define MUSTER_COORDINATOR_SERVICE_METRIC_FAMILIES_H_

#include "absl/strings/string_view.h"
#include "common/metrics/family.h"

namespace muster::service {

using metrics::MetricType;

inline constexpr metrics::Family kCoordinatorFamilies[] = {
    {"muster_build_info",
     MetricType::Gauge,
     {"version", "protocol_version"},
     "Version of this coordinator."},
    {"muster_event_loop_lag_seconds",
     MetricType::Histogram,
     {},
     "Delay of the core in handling events and deadlines."},
    {"grpc_server_handled_total",
     MetricType::Counter,
     {"grpc_service", "grpc_method", "grpc_code"},
     "Completed calls by status."},
    {"grpc_server_handling_seconds",
     MetricType::Histogram,
     {"grpc_service", "grpc_method"},
     "Time from the arrival of a call to its end, streams included."},

    {"muster_jobs", MetricType::Gauge, {"state"}, "Unfinished jobs by state."},
    {"muster_jobs_submitted_total", MetricType::Counter, {}, "Jobs accepted."},
    {"muster_jobs_finished_total",
     MetricType::Counter,
     {"state", "reason"},
     "Jobs that reached a terminal state."},
    {"muster_job_restarts_total",
     MetricType::Counter,
     {"cause"},
     "Restarts of jobs after a failed generation, by cause."},
    {"muster_job_hangs_total",
     MetricType::Counter,
     {},
     "Hangs of jobs: no rank was active for hang_timeout."},
    {"muster_job_info", MetricType::Gauge, {"job_id", "name", "kind"}, "Name and kind of a job."},
    {"muster_queue_wait_seconds",
     MetricType::Histogram,
     {},
     "Time from submission or requeueing of a job to its placement."},
    {"muster_rendezvous_duration_seconds",
     MetricType::Histogram,
     {"phase"},
     "Duration of each phase from placement to running."},
    {"muster_barrier_wait_seconds",
     MetricType::Histogram,
     {},
     "Time from the first arrival at a barrier to its release."},
    {"muster_failure_detection_seconds",
     MetricType::Histogram,
     {},
     "Time from the last sign of life to the detection of a failure."},
    {"muster_recovery_duration_seconds",
     MetricType::Histogram,
     {},
     "Time from the detection of a failure until the next generation is running."},
    {"muster_wait_seconds",
     MetricType::Gauge,
     {"job_id", "what"},
     "Time that ranks have been waiting for other ranks, for waits of 2 s or more."},
    {"muster_wait_missing_ranks",
     MetricType::Gauge,
     {"job_id", "what"},
     "Missing ranks, for waits of 2 s or more."},

    {"muster_nodes", MetricType::Gauge, {"state"}, "Nodes by state."},
    {"muster_node_heartbeat_age_seconds",
     MetricType::Gauge,
     {"node"},
     "Time since the last heartbeat of the node."},
    {"muster_slots", MetricType::Gauge, {}, "Slots on nodes that are not lost."},
    {"muster_slots_allocated", MetricType::Gauge, {}, "Slots occupied by ranks."},
    {"muster_slots_unhealthy",
     MetricType::Gauge,
     {},
     "Unhealthy slots on nodes that are not lost; no ranks are placed on them."},

    {"muster_train_step",
     MetricType::Gauge,
     {"job_id"},
     "Training steps completed by the lowest rank."},
    {"muster_train_loss", MetricType::Gauge, {"job_id"}, "Training loss of the last step."},
    {"muster_train_accuracy_ratio",
     MetricType::Gauge,
     {"job_id"},
     "Accuracy on the batch of the last step, 0 to 1."},
    {"muster_test_accuracy_ratio",
     MetricType::Gauge,
     {"job_id"},
     "Accuracy on the test set in the last evaluation, 0 to 1."},
    {"muster_train_learning_rate",
     MetricType::Gauge,
     {"job_id"},
     "Learning rate of the last step."},
    {"muster_train_samples_total",
     MetricType::Counter,
     {"job_id"},
     "Samples trained on by all ranks."},
    {"muster_train_step_duration_seconds",
     MetricType::Gauge,
     {"job_id", "phase"},
     "Recent median step time of the lowest rank, and its waiting times within a step, by phase."},
};

consteval const metrics::Family& CoordinatorFamily(absl::string_view name) {
  return metrics::Find(kCoordinatorFamilies, name);
}

}  // namespace muster::service

#endif  // MUSTER_COORDINATOR_SERVICE_METRIC_FAMILIES_H_
