#include "kernels/cpu/casting_convolution.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace muster::kernels::cpu {
namespace {

constexpr size_t kAlignment = 64;

// Where float32 copies of `count` elements go in a workspace.
struct Region {
  size_t offset = 0;
  float* In(void* workspace) const {
    return reinterpret_cast<float*>(static_cast<char*>(workspace) + offset);
  }
};

class CastingConvolution : public Convolution {
 public:
  CastingConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options,
                     const KernelTable& kernels, std::unique_ptr<Convolution> float32)
      : shape_(shape), options_(options), kernels_(kernels), float32_(std::move(float32)) {
    const auto allocate = [this](bool wanted, int64_t count) {
      const Region region{workspace_bytes_};
      const size_t bytes = wanted ? static_cast<size_t>(count) * sizeof(float) : 0;
      workspace_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      return region;
    };
    const bool rounds = options.compute_type != DataType::kFloat32;
    const bool casts_y = rounds || options.y_type != DataType::kFloat32;
    workspace_bytes_ = (float32_->workspace_bytes() + kAlignment - 1) / kAlignment * kAlignment;
    x_ = allocate(rounds || options.x_type != DataType::kFloat32,
                  options.max_rows * shape.input_elements());
    y_ = allocate(casts_y, options.max_rows * shape.output_elements());
    addend_ =
        allocate(options.y_type != DataType::kFloat32, options.max_rows * shape.output_elements());
    weights_ = allocate(rounds, float32_->weights_elements());
  }

  int64_t weights_elements() const override { return float32_->weights_elements(); }
  std::string weights_layout() const override { return float32_->weights_layout(); }
  std::string description() const override {
    return absl::StrCat("casts ", NameOf(options_.x_type), " to ", NameOf(options_.compute_type),
                        " to ", NameOf(options_.y_type), " around ", float32_->description());
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void ImportWeights(const float* canonical, float* weights) const override {
    float32_->ImportWeights(canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    float32_->ExportWeights(weights, canonical);
  }

  void Forward(int64_t rows, const void* x, const float* weights, const Epilogue& epilogue, void* y,
               void* workspace) override {
    const float* const rounded_x = Operand(options_.x_type, x, XCount(rows), x_.In(workspace));
    Epilogue in_float32 = epilogue;
    if (epilogue.addend != nullptr && options_.y_type != DataType::kFloat32) {
      Cast(options_.y_type, epilogue.addend, DataType::kFloat32, addend_.In(workspace),
           YCount(rows));
      in_float32.addend = addend_.In(workspace);
    }
    void* const sums = options_.y_type == DataType::kFloat32 ? y : y_.In(workspace);
    float32_->Forward(rows, rounded_x, Weights(weights, workspace), in_float32, sums, workspace);
    if (sums != y) Cast(DataType::kFloat32, sums, options_.y_type, y, YCount(rows));
  }

  void BackwardData(int64_t rows, const void* dy, const float* weights, void* dx,
                    void* workspace) override {
    const float* const rounded_dy = Operand(options_.y_type, dy, YCount(rows), y_.In(workspace));
    void* const sums = options_.x_type == DataType::kFloat32 ? dx : x_.In(workspace);
    float32_->BackwardData(rows, rounded_dy, Weights(weights, workspace), sums, workspace);
    if (sums != dx) Cast(DataType::kFloat32, sums, options_.x_type, dx, XCount(rows));
  }

  void BackwardWeights(int64_t rows, const void* x, const void* dy, float* dweights, float* dbias,
                       void* workspace) override {
    float32_->BackwardWeights(rows, Operand(options_.x_type, x, XCount(rows), x_.In(workspace)),
                              Operand(options_.y_type, dy, YCount(rows), y_.In(workspace)),
                              dweights, dbias, workspace);
  }

 private:
  size_t XCount(int64_t rows) const { return static_cast<size_t>(rows * shape_.input_elements()); }
  size_t YCount(int64_t rows) const { return static_cast<size_t>(rows * shape_.output_elements()); }

  void Cast(DataType from, const void* x, DataType to, void* y, size_t count) const {
    kernels_.cast(from, x, 1, to, y, count);
  }

  // An array of `type` as a product takes it: rounded to the compute type, in float32; at
  // `to` unless it is so already.
  const float* Operand(DataType type, const void* x, size_t count, float* to) const {
    const DataType compute = options_.compute_type;
    if (compute == DataType::kFloat32 || compute == type) {
      if (type == DataType::kFloat32) return static_cast<const float*>(x);
      Cast(type, x, DataType::kFloat32, to, count);
      return to;
    }
    // Few enough at once for the rounded ones to stay in the first-level cache.
    constexpr size_t kBlock = 2048;
    alignas(kAlignment) uint16_t rounded[kBlock];
    for (size_t at = 0; at < count; at += kBlock) {
      const size_t here = std::min(kBlock, count - at);
      Cast(type, static_cast<const char*>(x) + at * SizeOf(type), compute, rounded, here);
      Cast(compute, rounded, DataType::kFloat32, to + at, here);
    }
    return to;
  }

  const float* Weights(const float* weights, void* workspace) const {
    return Operand(DataType::kFloat32, weights, static_cast<size_t>(weights_elements()),
                   weights_.In(workspace));
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const KernelTable& kernels_;
  const std::unique_ptr<Convolution> float32_;
  // The workspace begins with float32_'s.
  Region x_;
  Region y_;
  Region addend_;
  Region weights_;
  size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Convolution> MakeCastingConvolution(const ConvolutionShape& shape,
                                                    const ConvolutionOptions& options,
                                                    const KernelTable& kernels,
                                                    std::unique_ptr<Convolution> float32) {
  return std::make_unique<CastingConvolution>(shape, options, kernels, std::move(float32));
}

}  // namespace muster::kernels::cpu
