#include "worker/gpu/gpu_metrics.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/metric_families.h"

namespace muster::gpu {
namespace {

constexpr std::pair<uint64_t, const char*> kClockReasons[] = {
    {NVML_CLOCKS_SW_POWER_CAP, "sw_power_cap"},     {NVML_CLOCKS_HW_SLOWDOWN, "hw_slowdown"},
    {NVML_CLOCKS_SW_THERMAL, "sw_thermal"},         {NVML_CLOCKS_HW_THERMAL, "hw_thermal"},
    {NVML_CLOCKS_HW_POWER_BRAKE, "hw_power_brake"},
};

}  // namespace

std::vector<prometheus::MetricFamily> GpuMetrics::Collect() const {
  metrics::Collection out;
  const std::vector<DeviceState> states = monitor_.States();
  for (size_t i = 0; i < states.size(); ++i) {
    const Gpu& gpu = monitor_.gpus()[i];
    const Reading& reading = states[i].reading;
    const std::string index = absl::StrCat(gpu.index);
    const std::vector<std::string> labels = {index, gpu.uuid};
    out.Add(GpuFamily("muster_gpu_info"),
            {index, gpu.uuid, gpu.name, gpu.pci_bus_id, monitor_.driver_version()}, 1);
    const bool held = states[i].memory == MemoryWatch::State::kHeld;
    out.Add(GpuFamily("muster_gpu_healthy"), labels, states[i].problem.empty() && !held ? 1 : 0);
    out.Add(GpuFamily("muster_gpu_memory_total_bytes"), labels,
            static_cast<double>(gpu.memory_bytes));
    for (const auto& [number, count] : states[i].xids) {
      out.Add(GpuFamily("muster_gpu_xid_errors_total"), {index, gpu.uuid, absl::StrCat(number)},
              static_cast<double>(count));
    }
    // Do not export old readings of a lost device.
    if (!reading.status.ok()) continue;
    out.Add(GpuFamily("muster_gpu_memory_used_bytes"), labels,
            static_cast<double>(reading.memory_used_bytes));
    const auto add_if_known = [&](const metrics::Family& family, const auto& value) {
      if (value.has_value()) out.Add(family, labels, static_cast<double>(*value));
    };
    add_if_known(GpuFamily("muster_gpu_utilization_ratio"), reading.utilization_ratio);
    add_if_known(GpuFamily("muster_gpu_temperature_celsius"), reading.temperature_celsius);
    add_if_known(GpuFamily("muster_gpu_power_watts"), reading.power_watts);
    add_if_known(GpuFamily("muster_gpu_ecc_errors_total"), reading.ecc_errors);
    if (!reading.clock_reasons) continue;
    for (const auto& [bit, reason] : kClockReasons) {
      const bool holds = (*reading.clock_reasons & bit) != 0;
      out.Add(GpuFamily("muster_gpu_throttled"), {index, gpu.uuid, reason}, holds ? 1 : 0);
    }
  }
  return out.Take();
}

}  // namespace muster::gpu
