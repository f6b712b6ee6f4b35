#include "kernels/cuda/counting/counting_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/counting/counted_convolution.h"
#include "kernels/cuda/counting/counted_kernels.h"
#include "kernels/launch_log.h"

namespace muster::kernels {
namespace {

void RecordTransfer(const char* kind, size_t bytes, int arrays) {
  if (bytes == 0) return;
  LaunchLog::State({.bytes = arrays * static_cast<double>(bytes)});
  LaunchLog::Record(kind);
}

class CountingDevice final : public Device {
 public:
  explicit CountingDevice(const GpuModel& model) : name_(model.name) {}

  std::string name() const override { return name_; }
  bool host_memory() const override { return false; }
  const KernelTable& kernels() const override { return CountedKernels(); }
  absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) override {
    return MakeCountedConvolution(shape, options);
  }
  void CopyToDevice(void*, const void*, size_t) override {}
  void CopyToHost(void*, const void*, size_t) override {}
  void Copy(void*, const void*, size_t bytes) override { RecordTransfer("memcpy", bytes, 2); }
  void Zero(void*, size_t bytes) override { RecordTransfer("memset", bytes, 1); }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  // Plans make the same calls in every step, as those of a GPU do.
  bool supports_graph_capture() const override { return true; }

 private:
  absl::StatusOr<void*> AllocateBytes(size_t bytes) override {
    void* const data = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data != MAP_FAILED) return data;
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot reserve addresses for ", bytes, " bytes"));
  }
  void Free(void* data, size_t bytes) override { munmap(data, std::max<size_t>(bytes, 1)); }

  const std::string name_;
};

}  // namespace

std::unique_ptr<Device> MakeCountingDevice(const GpuModel& model) {
  return std::make_unique<CountingDevice>(model);
}

}  // namespace muster::kernels
