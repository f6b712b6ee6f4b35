// A device whose memory is host memory, and whose kernels have finished when they return.
#ifndef MUSTER_KERNELS_HOST_MEMORY_DEVICE_H_
#define MUSTER_KERNELS_HOST_MEMORY_DEVICE_H_

#include "kernels/device.h"

namespace muster::kernels {

class HostMemoryDevice : public Device {
 public:
  bool host_memory() const override { return true; }
  void CopyToDevice(void* to, const void* host, size_t bytes) override;
  void CopyToHost(void* host, const void* from, size_t bytes) override;
  void Copy(void* to, const void* from, size_t bytes) override;
  void Zero(void* to, size_t bytes) override;
  absl::Status Synchronize() override { return absl::OkStatus(); }

 protected:
  absl::StatusOr<void*> AllocateBytes(size_t bytes) override;
  void Free(void* data, size_t bytes) override;
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_HOST_MEMORY_DEVICE_H_
