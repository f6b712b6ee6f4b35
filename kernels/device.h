// A device that kernels run on: its kernels, its memory, and the order of its calls.
#ifndef MUSTER_KERNELS_DEVICE_H_
#define MUSTER_KERNELS_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/convolution.h"
#include "kernels/device_stream.h"
#include "kernels/kernel_table.h"
#include "kernels/nt_xent_loss.h"

namespace muster::kernels {

class DeviceMemory;
class HostMemory;

// A point in a device's order of calls. Must not outlive its device.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Records the point after all calls so far. Called on the device's thread.
  virtual void Record() = 0;
  // Whether all calls before the last recorded point have finished; true before the first Record.
  // Like Wait callable from any thread, but not concurrently with Record.
  virtual bool Done() = 0;
  // Blocks until Done. INTERNAL if the device failed before.
  virtual absl::Status Wait() = 0;
};

// A captured sequence of calls: each launch repeats them in order with the captured arguments, on
// the current content of memory. Must not outlive its device.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Queues the calls, in order with other calls.
  virtual void Launch() = 0;
};

// Calls, including kernels, are executed in the order in which they are made, but may return before
// they have finished. Only CopyToHost, Synchronize and events wait. Most calls return nothing:
// after an error, theirs or an earlier one's, they may have no effect, and error() reports it.
// Kernels take addresses in device memory, and so do the parameters `to` and `from`, unless they
// are called host; a caller that passes other memory must ensure that the device can access it. Not
// thread-safe.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  // for display
  // Whether device memory is host memory, which any code may access between calls.
  virtual bool host_memory() const = 0;
  virtual const KernelTable& kernels() const = 0;
  // Whether the device has instructions for products of this type. If not, convolutions round the
  // operands to it and multiply in float32.
  virtual bool multiplies(DataType type) const { return true; }
  // INVALID_ARGUMENT for an invalid shape; GPUs also return errors of their libraries.
  virtual absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) = 0;
  // `largest`: the largest group and share of it; its width is that of all calls.
  // RESOURCE_EXHAUSTED; GPUs also return errors of their libraries.
  virtual absl::StatusOr<std::unique_ptr<NtXentLoss>> MakeNtXentLoss(const NtXentShape& largest) {
    return MakeKernelNtXentLoss(*this, largest);
  }

  // Allocates zeroed memory with all pages present, aligned as kernels require. Returns
  // OutOfMemoryError, which names the `use`. The device must outlive its memory.
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view use = "temporary arrays");
  // Allocates host memory that the device can access at the same address, so that its calls accept
  // it like device memory. Until an event recorded after a call (including CopyToDevice) is done,
  // the caller must not change the content. Initially unspecified. Returns
  // OutOfMemoryError. The device
  // must outlive it.
  absl::StatusOr<HostMemory> AllocateHost(size_t bytes, absl::string_view use = "temporary arrays");
  // Approximate number of bytes that can still be allocated; 0 if unknown.
  virtual size_t free_bytes() { return 0; }
  virtual std::unique_ptr<DeviceEvent> MakeEvent();
  // UNIMPLEMENTED if the device has no streams; INTERNAL with the driver's message.
  virtual absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream();

  virtual void CopyToDevice(void* to, const void* host, size_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* from, size_t bytes) = 0;
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  virtual void Zero(void* to, size_t bytes) = 0;
  // Waits for all calls. Returns the first error since the device was created.
  virtual absl::Status Synchronize() = 0;
  // Returns the first error since the device was created, without waiting: calls that have not
  // finished may still fail. INTERNAL, or OutOfMemoryError if a kernel's own allocation failed.
  // After an error the content of device memory is undefined.
  virtual absl::Status error() { return absl::OkStatus(); }

  // Whether calls can be captured; if not, the two methods below must not be called.
  virtual bool supports_graph_capture() const { return false; }
  // From this call to FinishCapture, kernels, convolutions, Copy and Zero are captured instead of
  // executed. Kernels that allocate in their first call must have been called before. Calls that
  // allocate, copy from or to host memory or wait do nothing, and FinishCapture then returns
  // FAILED_PRECONDITION; other errors are INTERNAL with the driver's message.
  virtual absl::Status StartCapture();
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> FinishCapture();

 protected:
  // By default plain host memory. RESOURCE_EXHAUSTED with the driver's message.
  virtual absl::StatusOr<void*> AllocateHostBytes(size_t bytes);
  virtual void FreeHost(void* data);

 private:
  // Completes the error of an allocation.
  absl::Status AllocationError(const absl::Status& status, size_t bytes, absl::string_view use,
                               size_t free_bytes) const;
  friend class DeviceMemory;
  // RESOURCE_EXHAUSTED with the driver's message.
  virtual absl::StatusOr<void*> AllocateBytes(size_t bytes) = 0;
  virtual void Free(void* data, size_t bytes) = 0;
  friend class HostMemory;
};

// An array in device memory, released with the object.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (device_ != nullptr) device_->Free(data_, bytes_);
  }

  // Refers to memory that another object owns.
  static DeviceMemory Refer(void* data, size_t bytes) { return DeviceMemory(nullptr, data, bytes); }

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  friend class Device;
  DeviceMemory(Device* device, void* data, size_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}

  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// An array allocated by AllocateHost, released with the object.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(HostMemory&& other) noexcept { *this = std::move(other); }
  HostMemory& operator=(HostMemory&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~HostMemory() {
    if (device_ != nullptr) device_->FreeHost(data_);
  }

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  friend class Device;
  HostMemory(Device* device, void* data, size_t bytes)
      : device_(device), data_(data), bytes_(bytes) {}

  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// The device's name for display, with a note if products of `compute` are slower than in float32.
std::string NameFor(const Device& device, DataType compute);

// The x86-64 CPU with the best supported kernels; its memory is host memory. Thread-safe.
Device& CpuDevice();

// The CPU with the kernels of kernels/reference.
Device& ReferenceDevice();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DEVICE_H_
