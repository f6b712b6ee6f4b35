#include "worker/gpu/monitor.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/time/now.h"
#include "glog/logging.h"
#include "worker/gpu/xid.h"
#include "worker/metric_families.h"

namespace muster::gpu {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);
// Poll interval while memory is being freed.
constexpr absl::Duration kShortInterval = absl::Milliseconds(100);
// Time-out of a wait for events, which bounds the destructor's wait for the listener.
constexpr absl::Duration kXidWait = absl::Milliseconds(200);
// A poll normally takes milliseconds.
constexpr absl::Duration kStuckAfter = absl::Seconds(30);
constexpr size_t kRankXids = 8;

constexpr std::pair<uint64_t, const char*> kClockReasons[] = {
    {NVML_CLOCKS_SW_POWER_CAP, "sw_power_cap"},     {NVML_CLOCKS_HW_SLOWDOWN, "hw_slowdown"},
    {NVML_CLOCKS_SW_THERMAL, "sw_thermal"},         {NVML_CLOCKS_HW_THERMAL, "hw_thermal"},
    {NVML_CLOCKS_HW_POWER_BRAKE, "hw_power_brake"},
};

}  // namespace

Monitor::Monitor(std::unique_ptr<Nvml> nvml, std::vector<Gpu> gpus, std::string driver_problem,
                 std::function<void()> on_change)
    : nvml_(std::move(nvml)),
      gpus_(std::move(gpus)),
      driver_version_(nvml_->DriverVersion()),
      driver_problem_(std::move(driver_problem)),
      on_change_(std::move(on_change)),
      watched_(gpus_.size()) {
  PollDevices();
  std::vector<NvmlDevice> devices;
  for (const Gpu& gpu : gpus_) devices.push_back(gpu.handle);
  const absl::Status listening = nvml_->ListenForXids(devices);
  if (listening.ok()) {
    listener_ = std::thread([this] { ListenForXids(); });
  } else {
    LOG(WARNING) << "Xid errors of the GPUs are not monitored: " << listening.message();
  }
  poll_thread_ = std::thread([this] { PollLoop(); });
}

Monitor::~Monitor() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
    changed_.SignalAll();
  }
  poll_thread_.join();
  if (listener_.joinable()) listener_.join();
}

std::vector<DeviceState> Monitor::States() const {
  absl::MutexLock lock(&mutex_);
  const bool stuck = polling_since_.has_value() && Now().steady - *polling_since_ > kStuckAfter;
  std::vector<DeviceState> states;
  for (const Watched& watched : watched_) {
    DeviceState& state = states.emplace_back();
    state.reading = watched.reading;
    state.problem = watched.health.Problem();
    if (state.problem.empty() && stuck) state.problem = "the driver does not respond";
    if (state.problem.empty()) state.problem = driver_problem_;
    state.memory = watched.memory.state();
    state.memory_text = watched.memory.text();
    state.xids = watched.health.xids();
    state.rank_xids = watched.rank_xids;
  }
  return states;
}

void Monitor::Occupy(size_t position, bool fresh) {
  absl::MutexLock lock(&mutex_);
  watched_[position].memory.Occupy(fresh);
  watched_[position].rank_xids.clear();
}

void Monitor::Release(const std::vector<size_t>& positions, std::function<void()> done) {
  absl::MutexLock lock(&mutex_);
  for (const size_t position : positions) watched_[position].memory.Release(Now().steady);
  release_callbacks_.push_back(std::move(done));
  changed_.SignalAll();
}

void Monitor::PollDevices() {
  std::vector<std::function<void()>> callbacks;
  {
    absl::MutexLock lock(&mutex_);
    callbacks = std::exchange(release_callbacks_, {});
    polling_since_ = Now().steady;
  }
  std::vector<Reading> readings;
  for (const Gpu& gpu : gpus_) readings.push_back(Read(*nvml_, gpu.handle));
  bool changed = false;
  {
    absl::MutexLock lock(&mutex_);
    polling_since_.reset();
    for (size_t i = 0; i < gpus_.size(); ++i) {
      Watched& watched = watched_[i];
      const std::string problem = watched.health.Problem();
      const std::string memory = watched.memory.text();
      const SteadyTime now = Now().steady;
      watched.health.OnReading(readings[i], now);
      watched.memory.OnReading(readings[i], now);
      watched.reading = std::move(readings[i]);
      const std::string name = absl::StrCat("GPU ", gpus_[i].index, " (", gpus_[i].uuid, ")");
      const std::string problem_now = watched.health.Problem();
      if (problem_now != problem) {
        changed = true;
        if (problem_now.empty()) {
          LOG(INFO) << name << " is healthy again";
        } else {
          LOG(ERROR) << name << " is unhealthy and not used: " << problem_now;
        }
      }
      if (watched.memory.text() != memory) {
        changed = true;
        if (watched.memory.state() == MemoryWatch::State::kHeld) {
          LOG(ERROR) << name << " cannot be used: " << watched.memory.text();
        } else {
          LOG_IF(INFO, watched.memory.state() == MemoryWatch::State::kFree)
              << "the memory of " << name << " has been freed";
        }
      }
    }
  }
  for (const std::function<void()>& done : callbacks) done();
  if (changed) on_change_();
}

void Monitor::PollLoop() {
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      bool returning = false;
      for (const Watched& watched : watched_) {
        returning = returning || watched.memory.state() == MemoryWatch::State::kReturning;
      }
      changed_.WaitFor(&mutex_, returning ? kShortInterval : kInterval, [this] {
        mutex_.AssertHeld();
        return ending_ || !release_callbacks_.empty();
      });
      if (ending_) return;
    }
    PollDevices();
  }
}

void Monitor::ListenForXids() {
  while (true) {
    absl::StatusOr<std::optional<XidEvent>> event = nvml_->WaitForXid(kXidWait);
    if (event.ok() && event->has_value()) OnXid(**event);
    absl::MutexLock lock(&mutex_);
    // With a lost device, every wait fails at once.
    const absl::Duration pause = event.ok() ? absl::ZeroDuration() : kInterval;
    const bool ended = changed_.WaitFor(&mutex_, pause, [this] {
      mutex_.AssertHeld();
      return ending_;
    });
    if (ended) return;
  }
}

void Monitor::OnXid(const XidEvent& event) {
  bool changed = false;
  {
    absl::MutexLock lock(&mutex_);
    for (size_t i = 0; i < gpus_.size(); ++i) {
      if (gpus_[i].handle != event.device) continue;
      Watched& watched = watched_[i];
      const std::string problem = watched.health.Problem();
      watched.health.OnXid(event.xid);
      if (watched.rank_xids.size() < kRankXids) watched.rank_xids.push_back(event.xid);
      changed = watched.health.Problem() != problem;
      const std::string text = absl::StrCat("GPU ", gpus_[i].index, " (", gpus_[i].uuid,
                                            ") reports ", XidText(event.xid));
      if (LookUpXid(event.xid).kind == XidKind::kFatal) {
        LOG(ERROR) << text << ": not using it until this worker is restarted";
      } else {
        LOG(WARNING) << text;
      }
    }
  }
  if (changed) on_change_();
}

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
