#include "worker/agent/generation/devices.h"

#include <sched.h>

#include <algorithm>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/limits.h"
#include "common/status.h"
#include "common/text/utf8.h"
#include "glog/logging.h"
#include "worker/gpu/discovery.h"
#include "worker/gpu/monitor.h"
#include "worker/gpu/xid.h"

namespace muster::agent {
namespace {

// Maximum delay of a rank's exit report while its GPUs are polled, which normally takes
// milliseconds.
constexpr absl::Duration kPollPatience = absl::Milliseconds(500);

std::vector<int> OwnCpus() {
  cpu_set_t set;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// The machine's GPUs, or why NVML or the driver is not available.
absl::StatusOr<std::vector<gpu::Gpu>> FindGpus(const std::string& library,
                                               std::unique_ptr<gpu::Nvml>& nvml) {
  ASSIGN_OR_RETURN(nvml, gpu::Nvml::Open(library));
  for (const std::string& name : nvml->missing()) {
    LOG(WARNING) << library << " lacks " << name << ": its values are not available";
  }
  return gpu::Discover(*nvml);
}

}  // namespace

std::vector<std::vector<int>> Divide(const std::vector<int>& cpus, size_t shares) {
  if (cpus.size() < shares) return {};
  std::vector<std::vector<int>> divided(shares);
  for (size_t i = 0; i < shares; ++i) {
    divided[i].assign(cpus.begin() + static_cast<ptrdiff_t>(i * cpus.size() / shares),
                      cpus.begin() + static_cast<ptrdiff_t>((i + 1) * cpus.size() / shares));
  }
  return divided;
}

absl::StatusOr<std::unique_ptr<Devices>> Devices::Open(const DeviceOptions& options) {
  std::unique_ptr<Devices> devices(new Devices);
  ASSIGN_OR_RETURN(const int required_cuda, gpu::ParseRequiredCuda(options.required_cuda));
  if (options.devices != "cpu") {
    absl::StatusOr<std::vector<gpu::Gpu>> gpus = FindGpus(options.nvml_library, devices->nvml_);
    if (options.devices == "auto") {
      // A missing library is normal on machines without GPUs.
      if (absl::IsNotFound(gpus.status())) {
        VLOG(1) << "not using GPUs: " << gpus.status().message();
      } else if (!gpus.ok()) {
        LOG(WARNING) << "not using GPUs: " << gpus.status().message();
      }
      if (gpus.ok() && options.visible.has_value()) {
        const size_t count = gpus->size();
        gpus = gpu::Visible(*options.visible, *gpus);
        if (!gpus.ok()) {
          return absl::InvalidArgumentError(absl::StrCat("CUDA_VISIBLE_DEVICES=", *options.visible,
                                                         ": ", gpus.status().message()));
        }
        LOG(INFO) << "CUDA_VISIBLE_DEVICES=" << *options.visible << ": using " << gpus->size()
                  << " of " << count << " GPUs";
      }
      devices->gpus_ = std::move(gpus).value_or(std::vector<gpu::Gpu>());
    } else {
      if (gpus.ok()) gpus = gpu::Select(options.devices, *gpus);
      if (!gpus.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--devices=", options.devices, ": ", gpus.status().message()));
      }
      devices->gpus_ = *std::move(gpus);
    }
  }
  if (devices->gpus_.empty()) devices->nvml_.reset();
  const std::string driver = devices->nvml_ == nullptr ? "" : devices->nvml_->DriverVersion();
  for (const gpu::Gpu& gpu : devices->gpus_) devices->AddGpu(gpu, driver);
  if (devices->nvml_ != nullptr) {
    const absl::StatusOr<int> supported = devices->nvml_->CudaVersion();
    devices->driver_problem_ = gpu::DriverProblem(
        required_cuda, supported.ok() ? std::optional(*supported) : std::nullopt, driver);
    LOG_IF(WARNING, !devices->driver_problem_.empty())
        << "no ranks will run on the GPUs: " << devices->driver_problem_;
  }
  const uint32_t cpus =
      devices->gpus_.empty() ? std::max(1u, std::thread::hardware_concurrency()) : 0;
  devices->AddCpuSlots(options.slots.value_or(cpus));
  if (devices->slots_.size() > limits::kSlotsPerNode) {
    return absl::InvalidArgumentError(absl::StrCat("--slots: a node can have at most ",
                                                   limits::kSlotsPerNode, " slots, not ",
                                                   devices->slots_.size()));
  }
  return devices;
}

Devices::~Devices() {
  if (self_ != nullptr) *self_ = nullptr;
}

void Devices::AddGpu(const gpu::Gpu& gpu, const std::string& driver_version) {
  v1::Slot& slot = slots_.emplace_back();
  slot.set_index(static_cast<uint32_t>(slots_.size()) - 1);
  slot.set_kind("gpu");
  slot.set_uuid(gpu.uuid);
  v1::Device& device = *slot.mutable_device();
  device.set_index(gpu.index);
  device.set_name(gpu.name);
  device.set_memory_bytes(gpu.memory_bytes);
  device.set_pci_bus_id(gpu.pci_bus_id);
  if (gpu.numa_node >= 0) device.set_numa_node(static_cast<uint32_t>(gpu.numa_node));
  device.set_cpus(gpu.cpu_list);
  device.set_driver_version(driver_version);
  device.set_nvswitch_links(gpu.nvswitch_links);
  std::set<uint32_t> others;
  for (const auto& [index, path] : gpu.paths) others.insert(index);
  for (const auto& [index, links] : gpu.nvlinks) others.insert(index);
  for (const uint32_t index : others) {
    v1::DeviceLink& link = *device.add_links();
    link.set_index(index);
    const auto path = gpu.paths.find(index);
    if (path != gpu.paths.end()) link.set_path(path->second);
    const auto nvlinks = gpu.nvlinks.find(index);
    if (nvlinks != gpu.nvlinks.end()) link.set_nvlinks(nvlinks->second);
  }
  LOG(INFO) << "slot " << slot.index() << " is GPU " << gpu.index << ": " << gpu.name << ", "
            << gpu.uuid << ", at " << gpu.pci_bus_id;
}

void Devices::AddCpuSlots(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    v1::Slot& slot = slots_.emplace_back();
    slot.set_index(static_cast<uint32_t>(slots_.size()) - 1);
    slot.set_kind("cpu");
  }
}

std::vector<std::vector<int>> Devices::CpusOfSlots() const {
  const std::vector<int> own = OwnCpus();
  // GPUs near the same CPUs share them.
  std::map<std::vector<int>, std::vector<size_t>> near;
  for (size_t i = 0; i < gpus_.size(); ++i) {
    std::vector<int> cpus;
    std::set_intersection(own.begin(), own.end(), gpus_[i].cpus.begin(), gpus_[i].cpus.end(),
                          std::back_inserter(cpus));
    near[cpus.empty() ? own : cpus].push_back(i);
  }
  std::vector<std::vector<int>> of_slots(slots_.size());
  const auto share = [&of_slots](const std::vector<int>& cpus, const std::vector<size_t>& slots) {
    const std::vector<std::vector<int>> shares = Divide(cpus, slots.size());
    for (size_t i = 0; i < shares.size(); ++i) of_slots[slots[i]] = shares[i];
    return !shares.empty();
  };
  bool enough = true;
  for (const auto& [cpus, slots] : near) enough = share(cpus, slots) && enough;
  std::vector<size_t> rest;
  for (size_t slot = gpus_.size(); slot < slots_.size(); ++slot) rest.push_back(slot);
  if (!rest.empty()) enough = share(own, rest) && enough;
  return enough ? of_slots : std::vector<std::vector<int>>();
}

void Devices::Start(EventLoop& loop, std::function<void(v1::SlotReport)> report) {
  loop_ = &loop;
  report_ = std::move(report);
  if (gpus_.empty()) return;
  self_ = std::make_shared<Devices*>(this);
  monitor_ = std::make_unique<gpu::Monitor>(std::move(nvml_), gpus_, driver_problem_,
                                            [&loop, self = self_] {
                                              loop.Post([self] {
                                                if (*self != nullptr) (*self)->ReportIfChanged();
                                              });
                                            });
}

std::shared_ptr<prometheus::Collectable> Devices::Metrics() const {
  if (monitor_ == nullptr) return nullptr;
  return std::make_shared<gpu::GpuMetrics>(*monitor_);
}

std::vector<size_t> Devices::GpusOf(const std::vector<uint32_t>& slots) const {
  std::vector<size_t> positions;
  for (const uint32_t slot : slots) {
    if (slot < gpus_.size()) positions.push_back(slot);
  }
  return positions;
}

void Devices::Occupy(const std::vector<uint32_t>& slots, bool adopted) {
  for (const size_t position : GpusOf(slots)) monitor_->Occupy(position, /*fresh=*/!adopted);
}

void Devices::Release(const std::vector<uint32_t>& slots, std::function<void()> done) {
  const std::vector<size_t> positions = GpusOf(slots);
  if (positions.empty()) return done();
  // Runs after the poll or after the time limit, whichever is first.
  const auto once = std::make_shared<std::function<void()>>(std::move(done));
  const auto finish = [self = self_, once] {
    if (*self == nullptr || *once == nullptr) return;
    (*self)->ReportIfChanged();
    std::exchange(*once, nullptr)();
  };
  monitor_->Release(positions, [loop = loop_, finish] { loop->Post(finish); });
  loop_->RunAfter(kPollPatience, finish);
}

std::string Devices::Evidence(const std::vector<uint32_t>& slots) const {
  std::vector<std::string> evidence;
  const std::vector<size_t> positions = GpusOf(slots);
  if (positions.empty()) return "";
  const std::vector<gpu::DeviceState> states = monitor_->States();
  for (const size_t position : positions) {
    const gpu::DeviceState& state = states[position];
    std::vector<std::string> parts;
    if (!state.problem.empty()) {
      parts.push_back(state.problem);
    } else {
      for (const uint64_t xid : state.rank_xids) parts.push_back(gpu::XidText(xid));
    }
    if (parts.empty()) continue;
    evidence.push_back(absl::StrCat("GPU ", gpus_[position].index, " (", gpus_[position].uuid,
                                    "): ", absl::StrJoin(parts, "; ")));
  }
  return absl::StrJoin(evidence, "; ");
}

v1::SlotReport Devices::Conditions() const {
  v1::SlotReport report;
  if (monitor_ == nullptr) return report;
  const std::vector<gpu::DeviceState> states = monitor_->States();
  for (size_t i = 0; i < states.size(); ++i) {
    if (states[i].problem.empty() && states[i].memory_text.empty()) continue;
    v1::SlotCondition& condition = *report.add_conditions();
    condition.set_index(static_cast<uint32_t>(i));
    // A process name can contain any bytes.
    const std::string& text = states[i].problem.empty() ? states[i].memory_text : states[i].problem;
    condition.set_unavailable(ToUtf8(absl::string_view(text).substr(0, limits::kSlotReasonBytes)));
    condition.set_returning(states[i].problem.empty() &&
                            states[i].memory == gpu::MemoryWatch::State::kReturning);
  }
  return report;
}

std::vector<v1::Slot> Devices::ReportSlots() {
  const v1::SlotReport report = Conditions();
  reported_ = report.SerializeAsString();
  std::vector<v1::Slot> slots = slots_;
  for (const v1::SlotCondition& condition : report.conditions()) {
    v1::Slot& slot = slots[condition.index()];
    slot.set_unavailable(condition.unavailable());
    slot.set_returning(condition.returning());
  }
  return slots;
}

std::vector<v1::SelfTest::Check> Devices::CheckGpus() const {
  std::vector<v1::SelfTest::Check> checks(gpus_.size());
  for (size_t i = 0; i < gpus_.size(); ++i)
    checks[i].set_name(absl::StrCat("gpu ", gpus_[i].index));
  const v1::SlotReport report = Conditions();
  for (const v1::SlotCondition& condition : report.conditions()) {
    if (!condition.returning()) checks[condition.index()].set_failure(condition.unavailable());
  }
  return checks;
}

void Devices::ReportIfChanged() {
  v1::SlotReport report = Conditions();
  std::string text = report.SerializeAsString();
  if (text == reported_) return;
  reported_ = std::move(text);
  report_(std::move(report));
}

}  // namespace muster::agent
