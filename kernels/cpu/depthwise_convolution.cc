// The kernels have one storage type for all activations of a call. Where x and y have different
// ones, or one that the compute type does not go with, the call works on float32 copies in the
// workspace. Threads share the rows.
#include "kernels/cpu/depthwise_convolution.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/thread_pool.h"

namespace muster::kernels::cpu {
namespace {

constexpr size_t kAlignment = 64;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Of the kernels' activations.
DataType CommonType(const ConvolutionOptions& options) {
  const bool computes =
      options.compute_type == options.x_type || options.compute_type == DataType::kFloat32;
  return options.x_type == options.y_type && computes ? options.x_type : DataType::kFloat32;
}

class DepthwiseConvolutionLayer : public Convolution {
 public:
  DepthwiseConvolutionLayer(const ConvolutionShape& shape, const ConvolutionOptions& options,
                            const KernelTable& kernels)
      : shape_{.height = shape.height,
               .width = shape.width,
               .channels = shape.in_channels,
               .kernel = shape.kernel,
               .stride = shape.stride,
               .padding = shape.padding,
               .type = CommonType(options),
               .compute_type = options.compute_type},
        options_(options),
        kernels_(kernels) {
    if (options.threads > 1) threads_ = ThreadPool::Shared(options.threads);
    PlaceWorkspace();
  }

  int64_t weights_elements() const override { return shape_.weights_elements(); }
  std::string weights_layout() const override { return "hwc, channels by 16"; }
  std::string description() const override {
    return absl::StrCat("depthwise:", kernels_.name, ":", NameOf(options_.compute_type));
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void ImportWeights(const float* canonical, float* weights) const override {
    std::fill_n(weights, weights_elements(), 0.0f);
    ForEachWeight([&](int64_t oihw, int64_t at) { weights[at] = canonical[oihw]; });
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    ForEachWeight([&](int64_t oihw, int64_t at) { canonical[oihw] = weights[at]; });
  }

  void Forward(int64_t rows, const void* x, const float* weights, const Epilogue& epilogue, void* y,
               void* workspace) override {
    const int64_t y_count = rows * shape_.output_elements();
    const void* const source = X(rows, x, workspace);
    Epilogue all = epilogue;
    if (epilogue.addend != nullptr) {
      all.addend = ToCommon(options_.y_type, epilogue.addend, y_count, At(workspace, addend_));
    }
    void* const target = CommonOrOwn(options_.y_type, y, At(workspace, y_));
    InParts(rows, [&](int part, int64_t row, const DepthwiseConvolutionShape& shape) {
      const int64_t out = row * shape.output_elements();
      Epilogue mine = all;
      if (all.addend != nullptr) mine.addend = Element(all.addend, out);
      kernels_.depthwise_convolution_forward(shape, Element(source, row * shape.input_elements()),
                                             weights, mine, Element(target, out));
    });
    FromCommon(target, y_count, options_.y_type, y);
  }

  void BackwardData(int64_t rows, const void* dy, const float* weights, void* dx,
                    void* workspace) override {
    const void* const source = Dy(rows, dy, workspace);
    void* const target = CommonOrOwn(options_.x_type, dx, At(workspace, x_));
    InParts(rows, [&](int part, int64_t row, const DepthwiseConvolutionShape& shape) {
      kernels_.depthwise_convolution_backward_data(
          shape, Element(source, row * shape.output_elements()), weights,
          Element(target, row * shape.input_elements()));
    });
    FromCommon(target, rows * shape_.input_elements(), options_.x_type, dx);
  }

  // The first part writes its sums where they belong, the others in the workspace.
  void BackwardWeights(int64_t rows, const void* x, const void* dy, float* dweights, float* dbias,
                       void* workspace) override {
    const void* const source = X(rows, x, workspace);
    const void* const gradient = Dy(rows, dy, workspace);
    const auto sums = [&](int part) {
      return reinterpret_cast<float*>(At(workspace, sums_) + sums_bytes() * (part - 1));
    };
    InParts(rows, [&](int part, int64_t row, const DepthwiseConvolutionShape& shape) {
      float* const to = part == 0 ? dweights : sums(part);
      float* const bias_to = part == 0 ? dbias : to + weights_elements();
      kernels_.depthwise_convolution_backward_weights(
          shape, Element(source, row * shape.input_elements()),
          Element(gradient, row * shape.output_elements()), to,
          dbias == nullptr ? nullptr : bias_to);
    });
    for (int part = 1; part < options_.threads; ++part) {
      const float* const from = sums(part);
      kernels_.accumulate(DataType::kFloat32, weights_elements(), from, dweights);
      if (dbias == nullptr) continue;
      kernels_.accumulate(DataType::kFloat32, shape_.channels, from + weights_elements(), dbias);
    }
  }

 private:
  size_t sums_bytes() const {
    return RoundUp((weights_elements() + shape_.channels) * sizeof(float));
  }

  void PlaceWorkspace() {
    const auto place = [this](DataType type, int64_t elements) {
      const size_t at = workspace_bytes_;
      if (type != shape_.type) {
        workspace_bytes_ += RoundUp(options_.max_rows * elements * SizeOf(shape_.type));
      }
      return at;
    };
    x_ = place(options_.x_type, shape_.input_elements());
    y_ = place(options_.y_type, shape_.output_elements());
    addend_ = place(options_.y_type, shape_.output_elements());
    sums_ = workspace_bytes_;
    if (options_.training) workspace_bytes_ += sums_bytes() * (options_.threads - 1);
  }

  static char* At(void* workspace, size_t offset) { return static_cast<char*>(workspace) + offset; }

  // Of the kernels' type.
  const void* Element(const void* array, int64_t index) const {
    return static_cast<const char*>(array) + index * SizeOf(shape_.type);
  }
  void* Element(void* array, int64_t index) const {
    return static_cast<char*>(array) + index * SizeOf(shape_.type);
  }

  const void* X(int64_t rows, const void* x, void* workspace) const {
    return ToCommon(options_.x_type, x, rows * shape_.input_elements(), At(workspace, x_));
  }
  const void* Dy(int64_t rows, const void* dy, void* workspace) const {
    return ToCommon(options_.y_type, dy, rows * shape_.output_elements(), At(workspace, y_));
  }

  // The array itself where it is of the kernels' type.
  const void* ToCommon(DataType type, const void* array, int64_t count, void* copy) const {
    if (type == shape_.type) return array;
    kernels_.cast(type, array, 1, shape_.type, copy, count);
    return copy;
  }
  void* CommonOrOwn(DataType type, void* array, void* copy) const {
    return type == shape_.type ? array : copy;
  }
  void FromCommon(const void* common, int64_t count, DataType type, void* array) const {
    if (common != array) kernels_.cast(shape_.type, common, 1, type, array, count);
  }

  // Calls run(part, its first row, the shape with its rows).
  template <typename Run>
  void InParts(int64_t rows, const Run& run) const {
    const auto run_part = [&](int part) {
      const int64_t begin = rows * part / options_.threads;
      DepthwiseConvolutionShape shape = shape_;
      shape.rows = rows * (part + 1) / options_.threads - begin;
      run(part, begin, shape);
    };
    if (threads_ == nullptr) return run_part(0);
    threads_->Run(run_part);
  }

  template <typename Visit>
  void ForEachWeight(const Visit& visit) const {
    const int64_t taps = shape_.kernel * shape_.kernel;
    for (int64_t c = 0; c < shape_.channels; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        visit(c * taps + tap, tap * shape_.padded_channels() + c);
      }
    }
  }

  const DepthwiseConvolutionShape shape_;
  const ConvolutionOptions options_;
  const KernelTable& kernels_;
  std::shared_ptr<ThreadPool> threads_;  // null: the calling thread alone
  // Offsets in the workspace: copies in the kernels' type, then all parts' sums but the first's.
  size_t x_ = 0;
  size_t y_ = 0;
  size_t addend_ = 0;
  size_t sums_ = 0;
  size_t workspace_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeDepthwiseConvolution(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const KernelTable& kernels) {
  if (!shape.valid() || !shape.depthwise() || !options.valid()) {
    return absl::InvalidArgumentError("no such depthwise convolution");
  }
  return std::make_unique<DepthwiseConvolutionLayer>(shape, options, kernels);
}

}  // namespace muster::kernels::cpu
