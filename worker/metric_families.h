// The metrics that muster-worker exports.
#ifndef MUSTER_WORKER_METRIC_FAMILIES_H_
#define MUSTER_WORKER_METRIC_FAMILIES_H_

#include "absl/strings/string_view.h"
#include "common/metrics/family.h"

namespace muster {

using metrics::MetricType;

// Metrics of the worker and its ranks; see worker/agent/metrics.h.
inline constexpr metrics::Family kWorkerFamilies[] = {
    {"muster_build_info",
     MetricType::Gauge,
     {"version", "protocol_version"},
     "Version of the running build; always 1."},
    {"muster_event_loop_lag_seconds",
     MetricType::Gauge,
     {},
     "Delay of the last timer of the worker's event loop."},
    {"muster_worker_session_up",
     MetricType::Gauge,
     {},
     "1 while the worker has a session with the coordinator."},
    {"muster_worker_sessions_total",
     MetricType::Counter,
     {},
     "Sessions with the coordinator since the worker started."},
    {"muster_worker_conflict",
     MetricType::Gauge,
     {},
     "1 while the worker ignores the coordinator because its ranks belong to another cluster or "
     "the store is older."},
    {"muster_worker_slots", MetricType::Gauge, {"kind"}, "Slots of this worker."},
    {"muster_worker_slots_allocated",
     MetricType::Gauge,
     {"kind"},
     "Slots of this worker that are occupied by a rank."},
    {"muster_worker_ranks", MetricType::Gauge, {"phase"}, "Ranks on this worker, by phase."},

    {"muster_rank_memory_bytes",
     MetricType::Gauge,
     {"job_id", "rank"},
     "Memory of the rank's processes: of its control group without inactive page cache, else the "
     "sum of their resident memory."},
    {"muster_train_step",
     MetricType::Gauge,
     {"job_id", "rank"},
     "Steps completed since the job's first start."},
    {"muster_train_loss",
     MetricType::Gauge,
     {"job_id", "rank"},
     "Training loss of the latest step."},
    {"muster_train_accuracy_ratio",
     MetricType::Gauge,
     {"job_id", "rank"},
     "Accuracy on the batch of the latest step, over all ranks, 0 to 1."},
    {"muster_test_accuracy_ratio",
     MetricType::Gauge,
     {"job_id", "rank"},
     "Accuracy on the test set, 0 to 1."},
    {"muster_test_loss", MetricType::Gauge, {"job_id", "rank"}, "Mean loss on the test set."},
    {"muster_train_learning_rate",
     MetricType::Gauge,
     {"job_id", "rank"},
     "Learning rate of the latest step."},
    {"muster_train_samples_total",
     MetricType::Counter,
     {"job_id", "rank"},
     "Samples processed in training by all ranks of the job."},
    {"muster_train_step_duration_seconds",
     MetricType::Gauge,
     {"job_id", "rank", "phase"},
     "Median over the last seconds: the whole step, the wait for data, and exposed "
     "communication."},
    {"muster_train_loss_scale",
     MetricType::Gauge,
     {"job_id", "rank"},
     "Loss scale of mixed precision training."},
    {"muster_train_skipped_steps_total",
     MetricType::Counter,
     {"job_id", "rank"},
     "Steps skipped because of gradient overflow, since the job's first start."},
    {"muster_train_precision_info",
     MetricType::Gauge,
     {"job_id", "rank", "precision", "dtype", "gradient_dtype"},
     "Precision of a rank's computation and of the gradient reduction; always 1."},
    {"muster_loader_stall_seconds_total",
     MetricType::Counter,
     {"job_id", "rank"},
     "Time that the rank waited for its data loader in this generation."},
    {"muster_collective_bytes_total",
     MetricType::Counter,
     {"job_id", "rank", "op"},
     "Bytes that the rank sent into collectives in this generation."},
};

// Metrics of the worker's GPUs; see worker/gpu/gpu_metrics.h.
inline constexpr metrics::Family kGpuFamilies[] = {
    {"muster_gpu_info",
     MetricType::Gauge,
     {"gpu", "uuid", "name", "pci_bus_id", "driver_version"},
     "Name and ids of a GPU; always 1."},
    {"muster_gpu_healthy",
     MetricType::Gauge,
     {"gpu", "uuid"},
     "1 if ranks can be placed on the GPU, else 0."},
    {"muster_gpu_utilization_ratio",
     MetricType::Gauge,
     {"gpu", "uuid"},
     "Fraction of the last sample period in which a kernel ran, 0 to 1."},
    {"muster_gpu_memory_used_bytes",
     MetricType::Gauge,
     {"gpu", "uuid"},
     "GPU memory in use by all processes."},
    {"muster_gpu_memory_total_bytes", MetricType::Gauge, {"gpu", "uuid"}, "Total GPU memory."},
    {"muster_gpu_temperature_celsius",
     MetricType::Gauge,
     {"gpu", "uuid"},
     "Temperature of the GPU."},
    {"muster_gpu_power_watts", MetricType::Gauge, {"gpu", "uuid"}, "Power draw of the board."},
    {"muster_gpu_throttled",
     MetricType::Gauge,
     {"gpu", "uuid", "reason"},
     "1 while the clocks are throttled for this reason."},
    {"muster_gpu_ecc_errors_total",
     MetricType::Counter,
     {"gpu", "uuid"},
     "Uncorrected ECC errors since the driver was loaded."},
    {"muster_gpu_xid_errors_total",
     MetricType::Counter,
     {"gpu", "uuid", "xid"},
     "Xid errors since the worker started, by number."},
};

consteval const metrics::Family& WorkerFamily(absl::string_view name) {
  return metrics::Find(kWorkerFamilies, name);
}

consteval const metrics::Family& GpuFamily(absl::string_view name) {
  return metrics::Find(kGpuFamilies, name);
}

}  // namespace muster

#endif  // MUSTER_WORKER_METRIC_FAMILIES_H_
