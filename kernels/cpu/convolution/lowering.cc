#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/convolution/engine.h"

namespace muster::kernels::cpu {
namespace {

class LoweredConvolution final : public Convolution {
 public:
  LoweredConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options,
                     const KernelTable& kernels, std::unique_ptr<ConvolutionEngine> engine)
      : shape_(shape),
        options_(options),
        kernels_(kernels),
        engine_(std::move(engine)),
        types_(engine_->types()),
        rounds_(types_.compute != options.compute_type),
        workspace_bytes_(RoundUp(engine_->workspace_bytes())) {
    const auto place = [this](int64_t count, size_t element_bytes) {
      const size_t offset = workspace_bytes_;
      workspace_bytes_ += RoundUp(count * element_bytes);
      return offset;
    };
    const auto bytes_if = [](bool copied, DataType type) { return copied ? SizeOf(type) : 0; };
    x_ = place(options.max_samples * shape.input_elements(),
               std::max(bytes_if(Copies(options.x_type, types_.x), types_.x),
                        bytes_if(options.x_type != types_.dx, types_.dx)));
    const int64_t y_count = options.max_samples * shape.output_elements();
    const size_t y_bytes = bytes_if(options.y_type != types_.y, types_.y);
    y_ = place(y_count, std::max(bytes_if(Copies(options.y_type, types_.dy), types_.dy), y_bytes));
    addend_ = place(y_count, y_bytes);
    weights_ = place(engine_->weights_elements(), rounds_ ? sizeof(float) : 0);
  }

  int64_t weights_elements() const override { return engine_->weights_elements(); }
  std::string weights_layout() const override { return engine_->weights_layout(); }
  std::string description() const override {
    if (!rounds_) return engine_->description();
    return absl::StrCat("rounds to ", NameOf(options_.compute_type), " around ",
                        engine_->description());
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void ImportWeights(const float* canonical, float* weights) const override {
    std::fill_n(weights, weights_elements(), 0.0f);
    engine_->ForEachWeight([&](int64_t from, int64_t to) { weights[to] = canonical[from]; });
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    engine_->ForEachWeight([&](int64_t to, int64_t from) { canonical[to] = weights[from]; });
  }

  void Forward(int64_t samples, const void* x, const void* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    Epilogue converted = epilogue;
    if (epilogue.addend != nullptr && options_.y_type != types_.y) {
      converted.addend = At(workspace, addend_);
      kernels_.cast(options_.y_type, epilogue.addend, 1, types_.y, At(workspace, addend_),
                    YCount(samples));
    }
    void* const sums = options_.y_type == types_.y ? y : At(workspace, y_);
    engine_->Forward(samples, X(samples, x, workspace), Weights(weights, workspace), converted,
                     sums, workspace);
    if (sums != y) kernels_.cast(types_.y, sums, 1, options_.y_type, y, YCount(samples));
  }

  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void* workspace) override {
    void* const sums = options_.x_type == types_.dx ? dx : At(workspace, x_);
    engine_->BackwardData(samples, Dy(samples, dy, workspace), Weights(weights, workspace), sums,
                          workspace);
    if (sums != dx) kernels_.cast(types_.dx, sums, 1, options_.x_type, dx, XCount(samples));
  }

  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights, float* dbias,
                       void* workspace) override {
    engine_->BackwardWeights(samples, X(samples, x, workspace), Dy(samples, dy, workspace),
                             static_cast<float*>(dweights), dbias, workspace);
  }

 private:
  int64_t XCount(int64_t samples) const { return samples * shape_.input_elements(); }
  int64_t YCount(int64_t samples) const { return samples * shape_.output_elements(); }
  static void* At(void* workspace, size_t offset) { return static_cast<char*>(workspace) + offset; }

  // Whether the engine cannot read an operand stored as `stored` in place.
  bool Copies(DataType stored, DataType read) const {
    return stored != read || (rounds_ && stored != options_.compute_type);
  }
  const void* X(int64_t samples, const void* x, void* workspace) const {
    return Operand(options_.x_type, x, types_.x, XCount(samples), At(workspace, x_));
  }
  const void* Dy(int64_t samples, const void* dy, void* workspace) const {
    return Operand(options_.y_type, dy, types_.dy, YCount(samples), At(workspace, y_));
  }
  const float* Weights(const void* weights, void* workspace) const {
    return static_cast<const float*>(Operand(DataType::kFloat32, weights, DataType::kFloat32,
                                             weights_elements(), At(workspace, weights_)));
  }

  // Returns the array as the engine reads it: itself, or a copy at `copy`.
  const void* Operand(DataType stored, const void* array, DataType read, int64_t count,
                      void* copy) const {
    if (!Copies(stored, read)) return array;
    const DataType compute = options_.compute_type;
    if (!rounds_ || stored == compute) {
      kernels_.cast(stored, array, 1, read, copy, count);
      return copy;
    }
    // Small enough for the rounded values to stay in the first-level cache.
    constexpr int64_t kBlock = 2048;
    alignas(kAlignment) uint16_t rounded[kBlock];
    for (int64_t at = 0; at < count; at += kBlock) {
      const int64_t here = std::min(kBlock, count - at);
      kernels_.cast(stored, static_cast<const char*>(array) + at * SizeOf(stored), 1, compute,
                    rounded, here);
      kernels_.cast(compute, rounded, 1, read, static_cast<char*>(copy) + at * SizeOf(read), here);
    }
    return copy;
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const KernelTable& kernels_;
  const std::unique_ptr<ConvolutionEngine> engine_;
  const ConvolutionEngine::Types types_;
  const bool rounds_;
  // Offsets of the copies in the workspace, which begins with the engine's.
  size_t x_ = 0;
  size_t y_ = 0;
  size_t addend_ = 0;
  size_t weights_ = 0;
  size_t workspace_bytes_;
};

}  // namespace

std::unique_ptr<Convolution> LowerConvolution(const ConvolutionShape& shape,
                                              const ConvolutionOptions& options,
                                              const KernelTable& kernels,
                                              std::unique_ptr<ConvolutionEngine> engine) {
  return std::make_unique<LoweredConvolution>(shape, options, kernels, std::move(engine));
}

}  // namespace muster::kernels::cpu
