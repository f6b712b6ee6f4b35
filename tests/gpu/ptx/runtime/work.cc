#include "tests/gpu/ptx/runtime/work.h"

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "common/status.h"

namespace muster::ptx {
namespace {

class KernelWork final : public Work {
 public:
  KernelWork(std::shared_ptr<const Kernel> kernel, const LaunchConfig& config, void** arguments,
             DeviceMemory& memory, Counters& counters)
      : kernel_(std::move(kernel)), config_(config), memory_(memory), counters_(counters) {
    for (size_t i = 0; i < kernel_->parameters.size(); ++i) {
      const auto* const bytes = static_cast<const uint8_t*>(arguments[i]);
      values_.emplace_back(bytes, bytes + kernel_->parameters[i].bytes);
    }
  }
  absl::StatusOr<Progress> Step() override {
    std::vector<const void*> arguments;
    for (const std::vector<uint8_t>& value : values_) arguments.push_back(value.data());
    RETURN_IF_ERROR(Run(*kernel_, config_, arguments, memory_, &counters_));
    return Progress::kFinished;
  }

 private:
  const std::shared_ptr<const Kernel> kernel_;
  const LaunchConfig config_;
  DeviceMemory& memory_;
  Counters& counters_;
  std::vector<std::vector<uint8_t>> values_;
};

class CopyWork final : public Work {
 public:
  CopyWork(GlobalMemory& memory, void* to, const void* from, size_t bytes)
      : memory_(memory), to_(to), from_(from), bytes_(bytes) {}
  absl::StatusOr<Progress> Step() override {
    RETURN_IF_ERROR(memory_.CheckRead(from_, bytes_));
    RETURN_IF_ERROR(memory_.CheckWrite(to_, bytes_));
    std::memmove(to_, from_, bytes_);
    memory_.MarkInitialized(to_, bytes_);
    return Progress::kFinished;
  }

 private:
  GlobalMemory& memory_;
  void* const to_;
  const void* const from_;
  const size_t bytes_;
};

class StagedCopyWork final : public Work {
 public:
  StagedCopyWork(GlobalMemory& memory, void* to, const void* from, size_t bytes)
      : staged_(static_cast<const uint8_t*>(from), static_cast<const uint8_t*>(from) + bytes),
        copy_(memory, to, staged_.data(), bytes) {}
  absl::StatusOr<Progress> Step() override { return copy_.Step(); }

 private:
  const std::vector<uint8_t> staged_;
  CopyWork copy_;
};

class SetWork final : public Work {
 public:
  SetWork(GlobalMemory& memory, void* to, int value, size_t bytes)
      : memory_(memory), to_(to), value_(value), bytes_(bytes) {}
  absl::StatusOr<Progress> Step() override {
    RETURN_IF_ERROR(memory_.CheckWrite(to_, bytes_));
    std::memset(to_, value_, bytes_);
    memory_.MarkInitialized(to_, bytes_);
    return Progress::kFinished;
  }

 private:
  GlobalMemory& memory_;
  void* const to_;
  const int value_;
  const size_t bytes_;
};

class HostWork final : public Work {
 public:
  HostWork(GlobalMemory& memory, const HostStreamTask& task)
      : memory_(memory),
        step_(task.step),
        data_(task.data, task.release),
        accesses_(task.accesses, task.accesses + task.access_count) {}
  absl::StatusOr<Progress> Step() override {
    // The task may run for several steps; its operands are checked before the first.
    if (!started_) {
      for (const HostStreamAccess& access : accesses_) {
        RETURN_IF_ERROR(access.writes ? memory_.CheckDeviceWrite(access.data, access.bytes)
                                      : memory_.CheckDeviceRead(access.data, access.bytes));
      }
    }
    started_ = true;
    if (step_(data_.get()) == 0) return Progress::kBlocked;
    started_ = false;
    for (const HostStreamAccess& access : accesses_) {
      if (access.writes) memory_.MarkInitialized(access.data, access.bytes);
    }
    return Progress::kFinished;
  }

 private:
  GlobalMemory& memory_;
  int (*const step_)(void* data);
  const std::shared_ptr<void> data_;
  const std::vector<HostStreamAccess> accesses_;
  bool started_ = false;
};

class FreeWork final : public Work {
 public:
  FreeWork(DeviceMemory& memory, void* data) : memory_(memory), data_(data) {}
  absl::StatusOr<Progress> Step() override {
    RETURN_IF_ERROR(memory_.Free(data_));
    return Progress::kFinished;
  }

 private:
  DeviceMemory& memory_;
  void* const data_;
};

}  // namespace

std::shared_ptr<Work> MakeKernelWork(std::shared_ptr<const Kernel> kernel,
                                     const LaunchConfig& config, void** arguments,
                                     DeviceMemory& memory, Counters& counters) {
  return std::make_shared<KernelWork>(std::move(kernel), config, arguments, memory, counters);
}

std::shared_ptr<Work> MakeCopyWork(GlobalMemory& memory, void* to, const void* from, size_t bytes) {
  return std::make_shared<CopyWork>(memory, to, from, bytes);
}

std::shared_ptr<Work> MakeStagedCopyWork(GlobalMemory& memory, void* to, const void* from,
                                         size_t bytes) {
  return std::make_shared<StagedCopyWork>(memory, to, from, bytes);
}

std::shared_ptr<Work> MakeSetWork(GlobalMemory& memory, void* to, int value, size_t bytes) {
  return std::make_shared<SetWork>(memory, to, value, bytes);
}

std::shared_ptr<Work> MakeHostWork(GlobalMemory& memory, const HostStreamTask& task) {
  return std::make_shared<HostWork>(memory, task);
}

std::shared_ptr<Work> MakeFreeWork(DeviceMemory& memory, void* data) {
  return std::make_shared<FreeWork>(memory, data);
}

}  // namespace muster::ptx
