#include "worker/gpu/gpu_metrics.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "prometheus/client_metric.h"
#include "prometheus/metric_family.h"

namespace muster::gpu {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<std::pair<std::string, std::string>>;

constexpr std::pair<uint64_t, const char*> kClockReasons[] = {
    {NVML_CLOCKS_SW_POWER_CAP, "sw_power_cap"},     {NVML_CLOCKS_HW_SLOWDOWN, "hw_slowdown"},
    {NVML_CLOCKS_SW_THERMAL, "sw_thermal"},         {NVML_CLOCKS_HW_THERMAL, "hw_thermal"},
    {NVML_CLOCKS_HW_POWER_BRAKE, "hw_power_brake"},
};

MetricFamily Family(const char* name, const char* help, MetricType type = MetricType::Gauge) {
  MetricFamily family;
  family.name = name;
  family.help = help;
  family.type = type;
  return family;
}

void Add(MetricFamily& family, double value, const Labels& labels) {
  prometheus::ClientMetric metric;
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  (family.type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  family.metric.push_back(std::move(metric));
}

Labels With(Labels labels, const char* name, std::string value) {
  labels.emplace_back(name, std::move(value));
  return labels;
}

}  // namespace

std::vector<MetricFamily> GpuMetrics::Collect() const {
  MetricFamily info = Family("muster_gpu_info", "Name and ids of a GPU; always 1.");
  MetricFamily healthy =
      Family("muster_gpu_healthy", "1 if ranks can be placed on the GPU, else 0.");
  MetricFamily utilization =
      Family("muster_gpu_utilization_ratio",
             "Fraction of the last sample period in which a kernel ran, 0 to 1.");
  MetricFamily used = Family("muster_gpu_memory_used_bytes", "GPU memory in use by all processes.");
  MetricFamily total = Family("muster_gpu_memory_total_bytes", "Total GPU memory.");
  MetricFamily temperature = Family("muster_gpu_temperature_celsius", "Temperature of the GPU.");
  MetricFamily power = Family("muster_gpu_power_watts", "Power draw of the board.");
  MetricFamily throttled =
      Family("muster_gpu_throttled", "1 while the clocks are throttled for this reason.");
  MetricFamily ecc =
      Family("muster_gpu_ecc_errors_total", "Uncorrected ECC errors since the driver was loaded.",
             MetricType::Counter);
  MetricFamily xids =
      Family("muster_gpu_xid_errors_total", "Xid errors since the worker started, by number.",
             MetricType::Counter);
  const std::vector<DeviceState> states = monitor_.States();
  for (size_t i = 0; i < states.size(); ++i) {
    const Gpu& gpu = monitor_.gpus()[i];
    const Reading& reading = states[i].reading;
    const Labels labels = {{"gpu", absl::StrCat(gpu.index)}, {"uuid", gpu.uuid}};
    Labels about = With(With(labels, "name", gpu.name), "pci_bus_id", gpu.pci_bus_id);
    Add(info, 1, With(std::move(about), "driver_version", monitor_.driver_version()));
    const bool held = states[i].memory == MemoryWatch::State::kHeld;
    Add(healthy, states[i].problem.empty() && !held ? 1 : 0, labels);
    Add(total, static_cast<double>(gpu.memory_bytes), labels);
    for (const auto& [number, count] : states[i].xids) {
      Add(xids, static_cast<double>(count), With(labels, "xid", absl::StrCat(number)));
    }
    // Do not export old readings of a lost device.
    if (!reading.status.ok()) continue;
    Add(used, static_cast<double>(reading.memory_used_bytes), labels);
    if (reading.utilization_ratio) Add(utilization, *reading.utilization_ratio, labels);
    if (reading.temperature_celsius) Add(temperature, *reading.temperature_celsius, labels);
    if (reading.power_watts) Add(power, *reading.power_watts, labels);
    if (reading.ecc_errors) Add(ecc, static_cast<double>(*reading.ecc_errors), labels);
    if (!reading.clock_reasons) continue;
    for (const auto& [bit, reason] : kClockReasons) {
      const bool holds = (*reading.clock_reasons & bit) != 0;
      Add(throttled, holds ? 1 : 0, With(labels, "reason", reason));
    }
  }
  std::vector<MetricFamily> families;
  for (MetricFamily* family : {&info, &healthy, &utilization, &used, &total, &temperature, &power,
                               &throttled, &ecc, &xids}) {
    if (!family->metric.empty()) families.push_back(std::move(*family));
  }
  return families;
}

}  // namespace muster::gpu
