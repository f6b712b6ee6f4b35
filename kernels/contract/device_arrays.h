// Test arrays of a GPU: each is in host memory, where the test accesses it, and has a copy in
// device memory of exactly its size, which kernels access. Thus tools such as compute-sanitizer
// detect an access outside of an array.
#ifndef MUSTER_KERNELS_CONTRACT_DEVICE_ARRAYS_H_
#define MUSTER_KERNELS_CONTRACT_DEVICE_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <type_traits>

#include "kernels/cuda/plugin/plugin.h"

namespace muster::kernels {

// Errors of the device end the process. Not thread-safe.
class DeviceArrays {
 public:
  DeviceArrays(const MusterCudaApi& api, MusterCudaContext* context)
      : api_(api), context_(context) {}

  // Returns the host memory, 64-byte aligned.
  void* Allocate(size_t bytes);
  void Release(void* host);

  // Copies all arrays to the device, and back.
  void Upload();
  void Download();

  // Returns a kernel's argument with all addresses within arrays, also those in a struct's members,
  // replaced by the addresses of the copies.
  template <typename T>
  T OnDevice(T argument) const {
    static_assert(std::is_trivially_copyable_v<T>);
    unsigned char bytes[sizeof(T)];
    std::memcpy(bytes, &argument, sizeof(T));
    for (size_t i = 0; i + sizeof(uintptr_t) <= sizeof(T); i += alignof(uintptr_t)) {
      uintptr_t word;
      std::memcpy(&word, bytes + i, sizeof(word));
      word = AddressOnDevice(word);
      std::memcpy(bytes + i, &word, sizeof(word));
    }
    std::memcpy(&argument, bytes, sizeof(T));
    return argument;
  }

 private:
  struct Array {
    size_t bytes;
    void* device;
  };

  // Returns other values unchanged.
  uintptr_t AddressOnDevice(uintptr_t value) const;

  const MusterCudaApi& api_;
  MusterCudaContext* const context_;
  std::map<uintptr_t, Array> arrays_;  // by address in host memory
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CONTRACT_DEVICE_ARRAYS_H_
