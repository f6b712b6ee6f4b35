#include "kernels/contract/device_arrays.h"

#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace muster::kernels {
namespace {

constexpr size_t kAlignment = 64;

void DieOf(const char* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "CUDA: %s\n", error);
  std::abort();
}

uintptr_t AddressOf(const void* data) { return reinterpret_cast<uintptr_t>(data); }

}  // namespace

void* DeviceArrays::Allocate(size_t bytes) {
  void* const host = std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  void* device = nullptr;
  DieOf(api_.allocate_uninitialized(bytes, &device));
  arrays_[AddressOf(host)] = {bytes, device};
  return host;
}

void DeviceArrays::Release(void* host) {
  const auto found = arrays_.find(AddressOf(host));
  if (found == arrays_.end()) return;
  api_.release_uninitialized(found->second.device);
  arrays_.erase(found);
  std::free(host);
}

void DeviceArrays::Upload() {
  for (const auto& [host, array] : arrays_) {
    api_.copy_to_device(context_, array.device, reinterpret_cast<const void*>(host), array.bytes);
  }
}

void DeviceArrays::Download() {
  for (const auto& [host, array] : arrays_) {
    api_.copy_to_host(context_, reinterpret_cast<void*>(host), array.device, array.bytes);
  }
  DieOf(api_.synchronize(context_));
}

uintptr_t DeviceArrays::AddressOnDevice(uintptr_t value) const {
  const auto after = arrays_.upper_bound(value);
  if (after == arrays_.begin()) return value;
  const auto& [host, array] = *std::prev(after);
  // The end of an array is a valid address, too.
  if (value - host > array.bytes) return value;
  return AddressOf(array.device) + (value - host);
}

}  // namespace muster::kernels
