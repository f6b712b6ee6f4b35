// Where kernels run: their functions, their memory, and the order in which things happen.
#ifndef MUSTER_KERNELS_DEVICE_H_
#define MUSTER_KERNELS_DEVICE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/device_stream.h"
#include "kernels/kernel_table.h"

namespace muster::kernels {

class DeviceMemory;
class HostMemory;

// A place in a device's order of calls. It does not outlive its device.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  // Here is the place: behind all calls so far. For the device's thread.
  virtual void Record() = 0;
  // Whether all before the place recorded last has happened; true before the first Record. Like
  // Wait for any thread, other than at the same time as Record.
  virtual bool Done() = 0;
  // Until it is done. INTERNAL where the device failed before.
  virtual absl::Status Wait() = 0;
};

// Calls that were recorded: made again in their order, with the arguments that they had, on what
// the memory holds by then. The device outlives it.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // In order, like any call.
  virtual void Launch() = 0;
};

// Calls, of kernels too, happen in the order in which they are made, but not necessarily before
// they return. Only CopyToHost and Synchronize wait, and events. Kernels take addresses in the
// device's memory, and so does what is called `to` and `from` here unless it says host; whoever
// hands the device other memory must know that they are the same. For one thread.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;  // for people
  // Its memory is the process's own: whoever likes may read and write it, between calls.
  virtual bool host_memory() const = 0;
  virtual const KernelTable& kernels() const = 0;
  // Whether it has instructions for products of this type. Otherwise convolutions round operands
  // to it and multiply float32.
  virtual bool multiplies(DataType type) const { return true; }
  // INVALID_ARGUMENT for an impossible shape; a GPU adds errors of its libraries.
  virtual absl::StatusOr<std::unique_ptr<Convolution>> MakeConvolution(
      const ConvolutionShape& shape, const ConvolutionOptions& options) = 0;

  // Zeroed, and no page of it is missing; aligned as kernels want it. RESOURCE_EXHAUSTED. The
  // device outlives its memory.
  absl::StatusOr<DeviceMemory> Allocate(size_t bytes);
  // Of the process, at the same addresses for the device, in whose calls it may stand wherever the
  // device's own may: what it holds stays as it is until an event recorded after the call is done,
  // CopyToDevice included. Content unspecified. RESOURCE_EXHAUSTED. The device outlives it.
  absl::StatusOr<HostMemory> AllocateHost(size_t bytes);
  // About what can still be allocated; 0 where that is not known.
  virtual size_t free_bytes() { return 0; }
  virtual std::unique_ptr<DeviceEvent> MakeEvent();
  // UNIMPLEMENTED where the device has no such thing, INTERNAL with its own words.
  virtual absl::StatusOr<std::unique_ptr<DeviceStream>> MakeStream();

  virtual void CopyToDevice(void* to, const void* host, size_t bytes) = 0;
  virtual void CopyToHost(void* host, const void* from, size_t bytes) = 0;
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  virtual void Zero(void* to, size_t bytes) = 0;
  // The first error of anything since the device was made; kernels report theirs here alone.
  virtual absl::Status Synchronize() = 0;

  // Whether calls can be recorded; where they cannot, neither of the two below may be called.
  virtual bool captures() const { return false; }
  // From here to FinishCapture kernels, convolutions, Copy and Zero only record what they would do.
  // Kernels that allocate at a first call must have had it. What takes memory, moves something from
  // or to the host's own or waits does nothing, and FinishCapture says so: FAILED_PRECONDITION;
  // INTERNAL with the device's words otherwise.
  virtual absl::Status StartCapture();
  virtual absl::StatusOr<std::unique_ptr<DeviceGraph>> FinishCapture();

 protected:
  // Plain memory of the process, for devices that have no better.
  virtual absl::StatusOr<void*> AllocateHostBytes(size_t bytes);
  virtual void FreeHost(void* data);

 private:
  friend class DeviceMemory;
  virtual absl::StatusOr<void*> AllocateBytes(size_t bytes) = 0;
  virtual void Free(void* data, size_t bytes) = 0;
  friend class HostMemory;
};

// An array in a device's memory, given back with the object.
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

// An array that AllocateHost gave, given back with the object.
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

inline absl::StatusOr<DeviceMemory> Device::Allocate(size_t bytes) {
  absl::StatusOr<void*> data = AllocateBytes(bytes);
  if (!data.ok()) return data.status();
  return DeviceMemory(this, *data, bytes);
}

inline absl::StatusOr<HostMemory> Device::AllocateHost(size_t bytes) {
  absl::StatusOr<void*> data = AllocateHostBytes(bytes);
  if (!data.ok()) return data.status();
  return HostMemory(this, *data, bytes);
}

// The device's name for people; says so where products of `compute` take longer than float32's.
std::string NameFor(const Device& device, DataType compute);

// The x86-64 processor, with its best kernels; its memory is the process's. Any thread.
Device& CpuDevice();

// The same with kernels/reference.
Device& ReferenceDevice();

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_DEVICE_H_
