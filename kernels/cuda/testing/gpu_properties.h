// GPUs that cuDNN can plan for without having one: MakeDeviceProperties of
// graph.h.
#ifndef MUSTER_KERNELS_CUDA_TESTING_GPU_PROPERTIES_H_
#define MUSTER_KERNELS_CUDA_TESTING_GPU_PROPERTIES_H_

#include <string>

#include "absl/strings/str_cat.h"

namespace muster::kernels::cuda {

struct Gpu {
  const char *name;
  const char *json; // properties in which GPUs of one architecture differ
};

inline constexpr Gpu kH100 = {
    "H100",
    R"("memClockRateKHz": 2619000, "l2CacheSize": 52428800, "totalGlobalMem": 85000000000,
               "deviceName": "NVIDIA H100 80GB HBM3")"};
inline constexpr Gpu kH200 = {
    "H200",
    R"("memClockRateKHz": 3201000, "l2CacheSize": 62914560, "totalGlobalMem": 150000000000,
               "deviceName": "NVIDIA H200")"};

// The members of cudaDeviceProp of a GPU with the GH100 chip, in the SXM
// module.
inline std::string PropertiesOf(const Gpu &gpu) {
  return absl::StrCat(R"({
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536, "multiProcessorCount": 132, "smClockRateKHz": 1980000, "warpSize": 32,
    "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "pciDeviceId": 0,
    "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "isTccDriver": 0,
    "supportCoopLaunch": 1, "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, )",
                      gpu.json, "}");
}

} // namespace muster::kernels::cuda

#endif // MUSTER_KERNELS_CUDA_TESTING_GPU_PROPERTIES_H_
