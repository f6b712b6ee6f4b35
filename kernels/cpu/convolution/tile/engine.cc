// Forward and backward data share a product that a plan describes; see
// kernels/cpu/convolution/tile/product.h. Sums are rounded to the target's type when stored.
#include "kernels/cpu/convolution/tile/engine.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/convolution/tile/panel_weights.h"
#include "kernels/cpu/convolution/tile/plan.h"
#include "kernels/cpu/convolution/tile/product.h"

namespace muster::kernels::cpu {
namespace {

class TileEngine final : public ConvolutionEngine {
 public:
  TileEngine(const ConvolutionShape& shape, const ConvolutionOptions& options,
             const DenseKernels& kernels)
      : shape_{.height = shape.height,
               .width = shape.width,
               .in_channels = shape.in_channels,
               .out_channels = shape.out_channels,
               .kernel = shape.kernel,
               .stride = shape.stride,
               .padding = shape.padding},
        options_(options),
        kernels_(kernels),
        panels_(PanelsOf(shape_, kernels.lanes)),
        forward_(TilePlanner::Forward(shape_, options.compute_type, options.y_type, kernels.lanes)),
        parts_(options.threads) {
    if (options.data_gradient) {
      backward_data_ =
          TilePlanner::BackwardData(shape_, options.compute_type, options.x_type, kernels.lanes);
    }
    PlaceWorkspace();
  }

  Types types() const override {
    return {.x = options_.compute_type,
            .dx = options_.x_type,
            .y = options_.y_type,
            .dy = options_.compute_type,
            .compute = options_.compute_type};
  }
  std::string description() const override {
    return absl::StrCat("tile:", kernels_.name, ":", NameOf(options_.compute_type));
  }
  int64_t weights_elements() const override { return panels_.elements(); }
  std::string weights_layout() const override { return TileWeightsLayout(panels_); }
  void ForEachWeight(absl::FunctionRef<void(int64_t, int64_t)> visit) const override {
    ForEachTileWeight(panels_, shape_.in_channels, visit);
  }
  size_t workspace_bytes() const override {
    return scratch_offset_ + scratch_bytes_ * parts_.count();
  }

  void Forward(int64_t samples, const void* x, const float* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    Multiply({.plan = &forward_->plan(),
              .samples = samples,
              .source = Padded(samples * x_pixels(), shape_.in_channels, x, workspace),
              .weights = weights,
              .target = y,
              .target_type = options_.y_type,
              .scale = epilogue.scale,
              .shift = epilogue.shift,
              .addend = epilogue.addend,
              .activation = epilogue.activation},
             workspace);
  }

  void BackwardData(int64_t samples, const void* dy, const float* weights, void* dx,
                    void* workspace) override {
    Multiply({.plan = &backward_data_->plan(),
              .samples = samples,
              .source = Padded(samples * y_pixels(), shape_.out_channels, dy, workspace),
              .weights = weights,
              .target = dx,
              .target_type = options_.x_type},
             workspace);
  }

  void BackwardWeights(int64_t samples, const void* x, const void* dy, float* dweights,
                       float* dbias, void* workspace) override {
    TileConvolutionShape shape = shape_;
    shape.samples = samples;
    parts_.Run([&](int slice) {
      kernels_.tile_backward_weights(shape, options_.compute_type, x, dy, dweights, dbias,
                                     Scratch(workspace, slice), slice, parts_.count());
    });
  }

 private:
  int64_t x_pixels() const { return shape_.height * shape_.width; }
  int64_t y_pixels() const { return shape_.out_height() * shape_.out_width(); }

  // Pairs of bfloat16 need an even number of channels.
  bool Pads(int64_t channels) const {
    return options_.compute_type == DataType::kBfloat16 && channels % 2 == 1;
  }
  size_t PaddedBytes(int64_t pixels, int64_t channels) const {
    if (!Pads(channels)) return 0;
    return RoundUp(options_.max_samples * pixels * (channels + 1) * SizeOf(DataType::kBfloat16));
  }
  // Returns the array, or a padded copy at the beginning of the workspace.
  const void* Padded(int64_t pixels, int64_t channels, const void* array, void* workspace) const {
    if (!Pads(channels)) return array;
    kernels_.tile_pad_channels(DataType::kBfloat16, array, pixels, channels, workspace);
    return workspace;
  }

  // Places the padded copy of x or dy, then each slice's scratch.
  void PlaceWorkspace() {
    TileConvolutionShape shape = shape_;
    shape.samples = options_.max_samples;
    scratch_offset_ = std::max(PaddedBytes(x_pixels(), shape_.in_channels),
                               PaddedBytes(y_pixels(), shape_.out_channels));
    for (const TilePlanner* planner : {forward_.get(), backward_data_.get()}) {
      if (planner == nullptr || !planner->plan().packs()) continue;
      scratch_bytes_ = std::max(scratch_bytes_, RoundUp(planner->plan().group_bytes));
    }
    if (!options_.training) return;
    scratch_bytes_ = std::max(scratch_bytes_, RoundUp(kernels_.tile_backward_weights_scratch_bytes(
                                                  shape, options_.compute_type)));
  }

  void* Scratch(void* workspace, int slice) const {
    return static_cast<char*>(workspace) + scratch_offset_ + scratch_bytes_ * slice;
  }

  void Multiply(const TileProduct& product, void* workspace) const {
    parts_.Run([&](int slice) {
      TileProduct own = product;
      own.scratch = Scratch(workspace, slice);
      kernels_.tile_product(own, slice, parts_.count());
    });
  }

  const TileConvolutionShape shape_;
  const ConvolutionOptions options_;
  const DenseKernels& kernels_;
  const TilePanels panels_;
  const std::unique_ptr<const TilePlanner> forward_;
  std::unique_ptr<const TilePlanner> backward_data_;  // null: will not be called
  const Parts parts_;
  size_t scratch_offset_ = 0;
  size_t scratch_bytes_ = 0;  // per slice
};

}  // namespace

std::unique_ptr<ConvolutionEngine> MakeTileEngine(const ConvolutionShape& shape,
                                                  const ConvolutionOptions& options,
                                                  const DenseKernels& kernels) {
  return std::make_unique<TileEngine>(shape, options, kernels);
}

}  // namespace muster::kernels::cpu
