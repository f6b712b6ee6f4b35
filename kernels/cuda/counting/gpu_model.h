// Published rates of GPUs, and the time that launches need at these rates.
#ifndef MUSTER_KERNELS_CUDA_COUNTING_GPU_MODEL_H_
#define MUSTER_KERNELS_CUDA_COUNTING_GPU_MODEL_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/data_type.h"
#include "kernels/launch_log.h"

namespace muster::kernels {

struct GpuModel {
  std::string name;     // value of --device: "h200"
  std::string product;  // as it appears in the driver's name of the GPU: "H200"
  double bytes_per_second = 0;
  double flops_per_second = 0;          // dense bfloat16 or float16 products, float32 sums
  double float32_flops_per_second = 0;  // without tensor cores

  // Microseconds that the launches need at kEfficiency of the rates, one after the other, each
  // limited by its memory traffic or by its products. `compute` is the type of the products.
  double Microseconds(absl::Span<const Launch> launches, DataType compute) const;
};

// Share of the published rates that good kernels reach.
inline constexpr double kEfficiency = 0.9;

// "h100" (SXM, HBM3) and "h200".
absl::Span<const GpuModel> GpuModels();
// The model with this name, or whose product is in this device name; null if there is none.
const GpuModel* FindGpuModel(absl::string_view name);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_CUDA_COUNTING_GPU_MODEL_H_
