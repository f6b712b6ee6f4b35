#include "kernels/testing/guarded_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/testing/kernel_members.h"

namespace muster::kernels {
namespace {

constexpr size_t kPageBytes = 4096;

// All memory of the device: sizes in bytes by address.
struct Memory {
  void Protect(int protection) const {
    for (const auto& [data, bytes] : pieces) mprotect(data, bytes, protection);
  }

  std::mutex mutex;
  std::map<void*, size_t> pieces;
  int accesses = 0;
};

Memory& TheMemory() {
  static Memory& memory = *new Memory;
  return memory;
}

// Calls the kernel of CpuKernels() at `member` with the memory accessible.
template <typename Function>
struct Guarded;

template <typename... Arguments>
struct Guarded<void(Arguments...)> {
  template <auto kMember>
  static void Call(Arguments... arguments) {
    const GuardedAccess access;
    (CpuKernels().*kMember)(std::forward<Arguments>(arguments)...);
  }
};

KernelTable MakeTable() {
  KernelTable table = CpuKernels();
#define MUSTER_GUARD(member) \
  table.member =             \
      &Guarded<std::remove_pointer_t<decltype(table.member)>>::Call<&KernelTable::member>;
  MUSTER_KERNEL_MEMBERS(MUSTER_GUARD)
#undef MUSTER_GUARD
  return table;
}

class GuardedConvolution final : public Convolution {
 public:
  explicit GuardedConvolution(std::unique_ptr<Convolution> convolution)
      : convolution_(std::move(convolution)) {}

  int64_t weights_elements() const override { return convolution_->weights_elements(); }
  std::string weights_layout() const override { return convolution_->weights_layout(); }
  DataType weights_type() const override { return convolution_->weights_type(); }
  DataType dweights_type() const override { return convolution_->dweights_type(); }
  std::string description() const override { return convolution_->description(); }
  size_t workspace_bytes() const override { return convolution_->workspace_bytes(); }
  // Between arrays in host memory.
  void ImportWeights(const float* canonical, float* weights) const override {
    convolution_->ImportWeights(canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    convolution_->ExportWeights(weights, canonical);
  }

  void Forward(int64_t samples, const void* x, const void* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    const GuardedAccess access;
    convolution_->Forward(samples, x, weights, epilogue, y, workspace);
  }
  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void* workspace) override {
    const GuardedAccess access;
    convolution_->BackwardData(samples, dy, weights, dx, workspace);
  }
  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights, float* dbias,
                       void* workspace) override {
    const GuardedAccess access;
    convolution_->BackwardWeights(samples, x, dy, dweights, dbias, workspace);
  }

 private:
  const std::unique_ptr<Convolution> convolution_;
};

class GuardedDeviceImpl final : public Device {
 public:
  std::string name() const override { return "guarded"; }
  bool host_memory() const override { return false; }
  const KernelTable& kernels() const override { return kernels_; }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override {
    absl::StatusOr<std::unique_ptr<Convolution>> made = CpuDevice().MakeConvolution(shape, options);
    if (!made.ok()) return made.status();
    return std::make_unique<GuardedConvolution>(*std::move(made));
  }

  void CopyToDevice(void* to, const void* host, size_t bytes) override { Copy(to, host, bytes); }
  void CopyToHost(void* host, const void* from, size_t bytes) override { Copy(host, from, bytes); }
  void Copy(void* to, const void* from, size_t bytes) override {
    const GuardedAccess access;
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void Zero(void* to, size_t bytes) override {
    const GuardedAccess access;
    if (bytes > 0) std::memset(to, 0, bytes);
  }
  size_t free_bytes() override { return size_t{1} << 30; }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  absl::StatusOr<void*> AllocateBytes(size_t bytes) override {
    const size_t pages = (std::max<size_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
    void* const data =
        mmap(nullptr, pages, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return absl::ResourceExhaustedError("out of memory");
    Memory& memory = TheMemory();
    const std::lock_guard<std::mutex> lock(memory.mutex);
    memory.pieces[data] = pages;
    if (memory.accesses > 0) memory.Protect(PROT_READ | PROT_WRITE);
    return data;
  }
  void Free(void* data, size_t) override {
    Memory& memory = TheMemory();
    const std::lock_guard<std::mutex> lock(memory.mutex);
    munmap(data, memory.pieces.at(data));
    memory.pieces.erase(data);
  }

  const KernelTable kernels_ = MakeTable();
};

}  // namespace

GuardedAccess::GuardedAccess() {
  Memory& memory = TheMemory();
  const std::lock_guard<std::mutex> lock(memory.mutex);
  if (memory.accesses++ == 0) memory.Protect(PROT_READ | PROT_WRITE);
}

GuardedAccess::~GuardedAccess() {
  Memory& memory = TheMemory();
  const std::lock_guard<std::mutex> lock(memory.mutex);
  if (--memory.accesses == 0) memory.Protect(PROT_NONE);
}

Device& GuardedDevice() {
  static Device& device = *new GuardedDeviceImpl;
  return device;
}

}  // namespace muster::kernels
