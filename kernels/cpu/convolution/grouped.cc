#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/convolution/engine.h"

namespace muster::kernels::cpu {
namespace {

template <int64_t kBytes>
void CopyPiecesOf(int64_t count, const char* from, int64_t from_step, char* to, int64_t to_step) {
  for (; count > 0; --count, from += from_step, to += to_step) std::memcpy(to, from, kBytes);
}

// Pieces may be only a few channels: a memcpy call for each would take longer than the copy.
void CopyPieces(int64_t count, int64_t bytes, const char* from, int64_t from_step, char* to,
                int64_t to_step) {
  switch (bytes) {
    case 8:
      return CopyPiecesOf<8>(count, from, from_step, to, to_step);
    case 16:
      return CopyPiecesOf<16>(count, from, from_step, to, to_step);
    case 32:
      return CopyPiecesOf<32>(count, from, from_step, to, to_step);
    case 64:
      return CopyPiecesOf<64>(count, from, from_step, to, to_step);
    default:
      break;
  }
  for (; count > 0; --count, from += from_step, to += to_step) std::memcpy(to, from, bytes);
}

// Weights of the groups are contiguous, each at a multiple of the alignment.
class GroupedConvolution final : public Convolution {
 public:
  GroupedConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options,
                     std::unique_ptr<Convolution> group)
      : shape_(shape),
        x_{shape.height * shape.width, shape.in_channels / shape.groups, shape.groups,
           SizeOf(options.x_type)},
        y_{shape.out_height() * shape.out_width(), shape.out_channels / shape.groups, shape.groups,
           SizeOf(options.y_type)},
        group_(std::move(group)),
        weights_stride_(RoundUp(group_->weights_elements() * sizeof(float)) / sizeof(float)) {
    x_offset_ = RoundUp(group_->workspace_bytes());
    y_offset_ = x_offset_ + RoundUp(options.max_samples * x_.SampleBytes());
    addend_offset_ = y_offset_ + RoundUp(options.max_samples * y_.SampleBytes());
    workspace_bytes_ = addend_offset_ + RoundUp(options.max_samples * y_.SampleBytes());
  }

  int64_t weights_elements() const override { return shape_.groups * weights_stride_; }
  std::string weights_layout() const override {
    return absl::StrCat(shape_.groups, " groups of ", group_->weights_layout());
  }
  std::string description() const override {
    return absl::StrCat(shape_.groups, " groups by ", group_->description());
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void ImportWeights(const float* canonical, float* weights) const override {
    for (int64_t group = 0; group < shape_.groups; ++group) {
      group_->ImportWeights(canonical + group * CanonicalWeights(), WeightsOf(weights, group));
      ZeroPadding(WeightsOf(weights, group));
    }
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    for (int64_t group = 0; group < shape_.groups; ++group) {
      group_->ExportWeights(WeightsOf(weights, group), canonical + group * CanonicalWeights());
    }
  }

  void Forward(int64_t samples, const void* x, const void* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    for (int64_t group = 0; group < shape_.groups; ++group) {
      x_.Gather(samples, group, x, At(workspace, x_offset_));
      Epilogue own = epilogue;
      if (own.scale != nullptr) own.scale += group * y_.channels;
      if (own.shift != nullptr) own.shift += group * y_.channels;
      if (own.addend != nullptr) {
        y_.Gather(samples, group, own.addend, At(workspace, addend_offset_));
        own.addend = At(workspace, addend_offset_);
      }
      group_->Forward(samples, At(workspace, x_offset_), Group(weights, group), own,
                      At(workspace, y_offset_), workspace);
      y_.Scatter(samples, group, At(workspace, y_offset_), y);
    }
  }

  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void* workspace) override {
    for (int64_t group = 0; group < shape_.groups; ++group) {
      y_.Gather(samples, group, dy, At(workspace, y_offset_));
      group_->BackwardData(samples, At(workspace, y_offset_), Group(weights, group),
                           At(workspace, x_offset_), workspace);
      x_.Scatter(samples, group, At(workspace, x_offset_), dx);
    }
  }

  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights, float* dbias,
                       void* workspace) override {
    for (int64_t group = 0; group < shape_.groups; ++group) {
      x_.Gather(samples, group, x, At(workspace, x_offset_));
      y_.Gather(samples, group, dy, At(workspace, y_offset_));
      group_->BackwardWeights(samples, At(workspace, x_offset_), At(workspace, y_offset_),
                              WeightsOf(static_cast<float*>(dweights), group),
                              dbias == nullptr ? nullptr : dbias + group * y_.channels, workspace);
      ZeroPadding(WeightsOf(static_cast<float*>(dweights), group));
    }
  }

 private:
  const float* Group(const void* weights, int64_t group) const {
    return WeightsOf(static_cast<const float*>(weights), group);
  }

  // Activations [samples, pixels, groups, channels].
  struct Activations {
    int64_t pixels;
    int64_t channels;
    int64_t groups;
    size_t element_bytes;

    // Bytes of one group in one sample.
    size_t SampleBytes() const { return pixels * channels * element_bytes; }
    // Copies from or to [samples, pixels, channels].
    void Gather(int64_t samples, int64_t group, const void* from, void* to) const {
      if (samples == 0) return;  // the pointers may be null
      const int64_t bytes = channels * element_bytes;
      CopyPieces(samples * pixels, bytes, static_cast<const char*>(from) + group * bytes,
                 groups * bytes, static_cast<char*>(to), bytes);
    }
    void Scatter(int64_t samples, int64_t group, const void* from, void* to) const {
      if (samples == 0) return;
      const int64_t bytes = channels * element_bytes;
      CopyPieces(samples * pixels, bytes, static_cast<const char*>(from), bytes,
                 static_cast<char*>(to) + group * bytes, groups * bytes);
    }
  };

  static char* At(void* workspace, size_t offset) { return static_cast<char*>(workspace) + offset; }
  int64_t CanonicalWeights() const { return shape_.weights() / shape_.groups; }
  template <typename Float>
  Float* WeightsOf(Float* weights, int64_t group) const {
    return weights + group * weights_stride_;
  }
  void ZeroPadding(float* weights) const {
    std::fill(weights + group_->weights_elements(), weights + weights_stride_, 0.0f);
  }

  const ConvolutionShape shape_;
  const Activations x_;
  const Activations y_;
  const std::unique_ptr<Convolution> group_;
  const int64_t weights_stride_;
  // Offsets in the workspace, which begins with the group's.
  size_t x_offset_ = 0;
  size_t y_offset_ = 0;
  size_t addend_offset_ = 0;
  size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Convolution> MakeGroupedConvolution(const ConvolutionShape& shape,
                                                    const ConvolutionOptions& options,
                                                    std::unique_ptr<Convolution> group) {
  return std::make_unique<GroupedConvolution>(shape, options, std::move(group));
}

}  // namespace muster::kernels::cpu
