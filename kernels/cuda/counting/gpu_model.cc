#include "kernels/cuda/counting/gpu_model.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"

namespace muster::kernels {

double GpuModel::Microseconds(absl::Span<const Launch> launches, DataType compute) const {
  const double rate = compute == DataType::kFloat32 ? float32_flops_per_second : flops_per_second;
  double seconds = 0;
  for (const Launch& launch : launches) {
    seconds += std::max(launch.bytes / bytes_per_second, launch.flops / rate);
  }
  return seconds / kEfficiency * 1e6;
}

absl::Span<const GpuModel> GpuModels() {
  static const auto& models = *new std::vector<GpuModel>{
      {"h100", "H100", 3.35e12, 989e12, 67e12},
      {"h200", "H200", 4.8e12, 989e12, 67e12},
  };
  return models;
}

const GpuModel* FindGpuModel(absl::string_view name) {
  for (const GpuModel& model : GpuModels()) {
    if (name == model.name || absl::StrContains(name, model.product)) return &model;
  }
  return nullptr;
}

}  // namespace muster::kernels
