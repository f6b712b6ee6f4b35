#include "tests/gpu/ptx/runtime/global_memory.h"

#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace muster::ptx {
namespace {

constexpr size_t kPageBytes = 4096;

absl::Status Known(const absl::Status& checked) {
  return absl::IsNotFound(checked) ? absl::OkStatus() : checked;
}

}  // namespace

GlobalMemory::GlobalMemory(int devices) {
  for (int i = 0; i < devices; ++i) devices_.push_back(std::make_unique<DeviceMemory>());
}

DeviceMemory& GlobalMemory::MemoryOf(const void* data) {
  for (const auto& memory : devices_) {
    if (memory->Find(reinterpret_cast<uintptr_t>(data)) != nullptr) return *memory;
  }
  return *devices_.front();
}

Place GlobalMemory::PlaceOf(const void* data) {
  const Allocation* const found = MemoryOf(data).Find(reinterpret_cast<uintptr_t>(data));
  if (found == nullptr) return Place::kPageable;
  return found->host ? Place::kPinned : Place::kDevice;
}

DeviceMemory* GlobalMemory::DeviceOf(const void* data) {
  return PlaceOf(data) == Place::kDevice ? &MemoryOf(data) : nullptr;
}

absl::StatusOr<void*> GlobalMemory::AllocateHost(size_t bytes) {
  const size_t rounded = (bytes / kPageBytes + 1) * kPageBytes;
  void* const data = std::aligned_alloc(kPageBytes, rounded);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no host memory for ", bytes, " bytes"));
  }
  for (const auto& memory : devices_) RETURN_IF_ERROR(memory->RegisterHost(data, bytes));
  return data;
}

absl::Status GlobalMemory::FreeHost(void* data) {
  for (const auto& memory : devices_) RETURN_IF_ERROR(memory->UnregisterHost(data));
  std::free(data);
  return absl::OkStatus();
}

absl::Status GlobalMemory::CheckRead(const void* from, size_t bytes) {
  return Known(CheckDeviceRead(from, bytes));
}

absl::Status GlobalMemory::CheckWrite(const void* to, size_t bytes) {
  return Known(CheckDeviceWrite(to, bytes));
}

absl::Status GlobalMemory::CheckDeviceRead(const void* from, size_t bytes) {
  return MemoryOf(from).CheckRead(from, bytes);
}

absl::Status GlobalMemory::CheckDeviceWrite(const void* to, size_t bytes) {
  return MemoryOf(to).CheckWrite(to, bytes);
}

void GlobalMemory::MarkInitialized(const void* to, size_t bytes) {
  MemoryOf(to).MarkInitialized(to, bytes);
}

}  // namespace muster::ptx
