#include "worker/data/normalizer.h"

#include <algorithm>

#include "kernels/kernel_table.h"

namespace muster::data {

Normalizer::Normalizer(const DatasetInfo& info) {
  for (size_t c = 0; c < info.mean.size(); ++c) {
    scale_.push_back(1.0f / (255.0f * info.standard_deviation[c]));
    shift_.push_back(-info.mean[c] / info.standard_deviation[c]);
  }
}

void Normalizer::Apply(const Batch& batch, float* out) const {
  const auto channels = static_cast<int64_t>(scale_.size());
  kernels::CpuKernels().normalize(static_cast<int64_t>(batch.pixels.size()) / channels, channels,
                                  batch.pixels.data(), scale_.data(), shift_.data(), out);
  const int64_t line = batch.size.width * channels;
  for (size_t row = 0; row < batch.erasures.size(); ++row) {
    const Rectangle& erasure = batch.erasures[row];
    float* image = out + static_cast<int64_t>(row) * batch.size.height * line;
    for (int64_t y = erasure.top; y < erasure.top + erasure.height; ++y) {
      std::fill_n(image + y * line + erasure.left * channels, erasure.width * channels, 0.0f);
    }
  }
}

}  // namespace muster::data
