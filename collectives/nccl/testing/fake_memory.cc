#include "collectives/nccl/testing/fake_memory.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>

namespace fake_nccl {
namespace {

constexpr size_t kAddressableBytes = size_t{1} << 47;  // limit of a process's address space
constexpr size_t kAlignment = 4096;

struct Registration {
  NcclComm comm;
  const char* data;
};

std::mutex mutex;
// Never destroyed: threads may outlive main.
auto& pieces = *new std::map<const char*, size_t>;  // by address
auto& registrations = *new std::map<uintptr_t, Registration>;
uintptr_t last_handle = 0;

// A function of the CUDA runtime that interprets the program's kernels (//tests/gpu/ptx), which
// access only its memory; null if there is none.
template <typename Function>
Function* InterpreterFunction(const char* name) {
  static void* const library = dlopen("libmuster-cuda-ptx.so", RTLD_LAZY | RTLD_NOLOAD);
  return library == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library, name));
}

void* AllocateAligned(size_t bytes) {
  auto* const allocate = InterpreterFunction<int(void**, size_t)>("cudaMallocHost");
  if (allocate == nullptr) return std::aligned_alloc(kAlignment, bytes);
  void* data = nullptr;
  return allocate(&data, bytes) == 0 ? data : nullptr;
}

void FreeAligned(void* data) {
  auto* const release = InterpreterFunction<int(void*)>("cudaFreeHost");
  release == nullptr ? std::free(data) : static_cast<void>(release(data));
}

}  // namespace

void* AllocateMemory(size_t bytes) {
  if (bytes == 0 || bytes >= kAddressableBytes) return nullptr;
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto* const data = static_cast<char*>(AllocateAligned(rounded));
  if (data == nullptr) return nullptr;
  std::lock_guard<std::mutex> lock(mutex);
  pieces[data] = rounded;
  return data;
}

void FreeMemory(void* data) {
  std::lock_guard<std::mutex> lock(mutex);
  if (pieces.erase(static_cast<char*>(data)) == 0) Misuse("ncclMemFree of foreign memory");
  for (const auto& [handle, registration] : registrations) {
    if (registration.data == data) Misuse("ncclMemFree of registered memory");
  }
  FreeAligned(data);
}

void* RegisterMemory(NcclComm comm, const void* data, size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto piece = pieces.find(static_cast<const char*>(data));
  if (piece == pieces.end() || piece->second < bytes) Misuse("registers foreign memory");
  registrations[++last_handle] = {comm, piece->first};
  return reinterpret_cast<void*>(last_handle);
}

void DeregisterMemory(NcclComm comm, void* handle) {
  std::lock_guard<std::mutex> lock(mutex);
  const auto found = registrations.find(reinterpret_cast<uintptr_t>(handle));
  if (found == registrations.end() || found->second.comm != comm) {
    Misuse("deregisters unregistered memory");
  }
  registrations.erase(found);
}

bool KnowsMemory(NcclComm comm) {
  std::lock_guard<std::mutex> lock(mutex);
  return std::any_of(registrations.begin(), registrations.end(),
                     [comm](const auto& entry) { return entry.second.comm == comm; });
}

void ForgetMemory(NcclComm comm) {
  std::lock_guard<std::mutex> lock(mutex);
  for (auto it = registrations.begin(); it != registrations.end();) {
    it = it->second.comm == comm ? registrations.erase(it) : std::next(it);
  }
}

}  // namespace fake_nccl
