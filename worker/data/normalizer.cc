#include "worker/data/normalizer.h"

#include <new>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace muster::data {
namespace {

kernels::DeviceMemory Allocate(kernels::Device& device, size_t bytes) {
  absl::StatusOr<kernels::DeviceMemory> memory = device.Allocate(bytes);
  if (!memory.ok()) throw std::bad_alloc();
  return *std::move(memory);
}

kernels::DeviceMemory OnDevice(kernels::Device& device, const std::vector<float>& values) {
  kernels::DeviceMemory memory = Allocate(device, values.size() * sizeof(float));
  device.CopyToDevice(memory.data(), values.data(), memory.bytes());
  return memory;
}

}  // namespace

Normalizer::Normalizer(const DatasetInfo& info, kernels::Device& device)
    : device_(device), channels_(static_cast<int64_t>(info.mean.size())) {
  std::vector<float> scale, shift;
  for (size_t c = 0; c < info.mean.size(); ++c) {
    scale.push_back(1.0f / (255.0f * info.standard_deviation[c]));
    shift.push_back(-info.mean[c] / info.standard_deviation[c]);
  }
  scale_ = data::OnDevice(device, scale);
  shift_ = data::OnDevice(device, shift);
}

const uint8_t* Normalizer::OnDevice(absl::Span<const uint8_t> pixels) {
  if (device_.host_memory()) return pixels.data();
  if (pixels_.bytes() < pixels.size()) pixels_ = Allocate(device_, pixels.size());
  device_.CopyToDevice(pixels_.data(), pixels.data(), pixels.size());
  return pixels_.as<uint8_t>();
}

void Normalizer::Apply(const Batch& batch, float* out) {
  device_.kernels().normalize(static_cast<int64_t>(batch.pixels.size()) / channels_, channels_,
                              OnDevice(batch.pixels), scale_.as<float>(), shift_.as<float>(), out);
  const int64_t line = batch.size.width * channels_;
  for (size_t row = 0; row < batch.erasures.size(); ++row) {
    const Rectangle& erasure = batch.erasures[row];
    float* image = out + static_cast<int64_t>(row) * batch.size.height * line;
    for (int64_t y = erasure.top; y < erasure.top + erasure.height; ++y) {
      device_.Zero(image + y * line + erasure.left * channels_,
                   static_cast<size_t>(erasure.width * channels_) * sizeof(float));
    }
  }
}

}  // namespace muster::data
