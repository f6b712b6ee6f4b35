#include "cli/experiment/metrics.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/output/words.h"
#include "common/time/proto_time.h"

namespace muster::cli {
namespace {

constexpr Metric kMetrics[] = {
    {"images_per_second", Unit::kPerSecond, "images/s"},
    {"median_step_seconds", Unit::kSeconds, "step time"},
    {"seconds_per_20_steps", Unit::kSeconds, nullptr},
    {"job_seconds", Unit::kSeconds, "job time"},
    {"training_seconds", Unit::kSeconds, nullptr},
    {"seconds_to_first_step", Unit::kSeconds, nullptr},
    {"evaluation_seconds", Unit::kSeconds, "inference"},
    {"test_accuracy", Unit::kRatio, "accuracy"},
    {"test_loss", Unit::kNumber, nullptr},
    {"final_loss", Unit::kNumber, "loss"},
    {"peak_memory_bytes", Unit::kBytes, "memory"},
    {"largest_device_bytes", Unit::kBytes, nullptr},
    {"smallest_device_bytes", Unit::kBytes, nullptr},
    {"exposed_communication_seconds", Unit::kSeconds, nullptr},
    {"data_wait_seconds", Unit::kSeconds, nullptr},
    {"kernel_seconds", Unit::kSeconds, nullptr},
    {"bubble_ratio", Unit::kRatio, nullptr},
    {"steps", Unit::kNumber, "steps"},
    {kSpeedup, Unit::kNumber, "speed-up"},
    {kScalingEfficiency, Unit::kRatio, "efficiency"},
};

uint64_t BytesOf(const v1::DeviceUse& device) {
  return device.parameter_bytes() + device.gradient_bytes() + device.optimizer_bytes() +
         device.activation_bytes() + device.gathered_bytes();
}

void AddDevices(const v1::TrainSummary& summary, Measurements& values) {
  if (summary.devices().empty()) return;
  uint64_t largest = 0, smallest = UINT64_MAX;
  for (const v1::DeviceUse& device : summary.devices()) {
    largest = std::max(largest, BytesOf(device));
    smallest = std::min(smallest, BytesOf(device));
  }
  values["largest_device_bytes"] = static_cast<double>(largest);
  values["smallest_device_bytes"] = static_cast<double>(smallest);
}

// Seconds of 20 consecutive steps without evaluations: the median over the training, without the
// first 20 steps, if the job recorded when its steps ended; otherwise 20 times the median step.
double SecondsOf20Steps(const v1::TrainSummary& summary) {
  constexpr int kSteps = 20;
  const auto& ends = summary.step_end_seconds();
  std::vector<double> times;
  for (int end = 2 * kSteps; end <= ends.size(); end += kSteps) {
    times.push_back(ends[end - 1] - ends[end - 1 - kSteps]);
  }
  if (times.empty()) return kSteps * summary.median_step_seconds();
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void AddSummary(const v1::TrainSummary& summary, Measurements& values) {
  // For these metrics, zero means that there is no measurement.
  const auto add_above_zero = [&values](const char* name, double value) {
    if (value > 0) values[name] = value;
  };
  add_above_zero("images_per_second", summary.images_per_second());
  add_above_zero("median_step_seconds", summary.median_step_seconds());
  add_above_zero("seconds_per_20_steps", SecondsOf20Steps(summary));
  add_above_zero("evaluation_seconds", summary.evaluation_seconds());
  add_above_zero("peak_memory_bytes", static_cast<double>(summary.peak_memory_bytes()));
  add_above_zero("kernel_seconds", summary.kernel_seconds());
  if (!summary.evaluations().empty()) {
    add_above_zero("training_seconds", summary.evaluations().rbegin()->training_seconds());
    values["test_accuracy"] = summary.test_accuracy();
    values["test_loss"] = summary.test_loss();
  }
  values["final_loss"] = summary.final_loss();
  values["exposed_communication_seconds"] = summary.exposed_communication_seconds();
  values["data_wait_seconds"] = summary.data_wait_seconds();
  values["steps"] = static_cast<double>(summary.steps());
  if (!summary.stages().empty()) values["bubble_ratio"] = summary.bubble_ratio();
  AddDevices(summary, values);
}

// The last values that a command has written to MUSTER_PROGRESS; zero for those that it has not.
void AddProgress(const v1::Progress& progress, Measurements& values) {
  const auto add = [&values](const char* name, double value) {
    if (value != 0) values[name] = value;
  };
  add("images_per_second", progress.images_per_second());
  add("test_accuracy", progress.test_accuracy());
  add("test_loss", progress.test_loss());
  add("final_loss", progress.loss());
  add("steps", static_cast<double>(progress.step()));
}

}  // namespace

absl::Span<const Metric> Metrics() { return kMetrics; }

Measurements MeasurementsOf(const v1::Job& job) {
  Measurements values;
  if (job.has_start_time() && job.has_finish_time()) {
    values["job_seconds"] =
        absl::ToDoubleSeconds(FromProto(job.finish_time()) - FromProto(job.start_time()));
  }
  if (job.has_summary()) {
    AddSummary(job.summary(), values);
    // Without the time in the queue, where the tasks of an array wait for each other.
    if (job.has_start_time() && job.summary().has_first_step_time()) {
      values["seconds_to_first_step"] = absl::ToDoubleSeconds(
          FromProto(job.summary().first_step_time()) - FromProto(job.start_time()));
    }
  } else if (!job.spec().has_train()) {
    AddProgress(job.progress(), values);
  }
  for (auto entry = values.begin(); entry != values.end();) {
    entry = std::isfinite(entry->second) ? std::next(entry) : values.erase(entry);
  }
  return values;
}

Measurements Medians(const std::vector<Measurements>& runs) {
  std::map<std::string, std::vector<double>> by_name;
  for (const Measurements& run : runs) {
    for (const auto& [name, value] : run) by_name[name].push_back(value);
  }
  Measurements medians;
  for (auto& [name, values] : by_name) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    medians[name] =
        values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  }
  return medians;
}

std::string MetricText(Unit unit, double value) {
  switch (unit) {
    case Unit::kBytes:
      return Bytes(static_cast<uint64_t>(value));
    case Unit::kPerSecond:
      if (value >= 100) return Grouped(static_cast<uint64_t>(std::llround(value)));
      return absl::StrFormat("%.4g", value);
    case Unit::kRatio:
      return absl::StrFormat("%.4g %%", 100 * value);
    case Unit::kSeconds:
      return absl::StrFormat("%.4g s", value);
    case Unit::kNumber:
      break;
  }
  return absl::StrFormat("%.4g", value);
}

}  // namespace muster::cli
