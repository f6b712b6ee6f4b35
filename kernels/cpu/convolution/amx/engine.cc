// See kernels/cpu/convolution/amx/grid.h for the conversion of a convolution to matrix products. A
// pointwise convolution needs no grid: all its pixels are images of one pixel. A network's first
// convolution, whose images have few channels, sums over windows of them.
#include "kernels/cpu/convolution/amx/engine.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/cpu/convolution/amx/grid_plan.h"
#include "kernels/cpu/convolution/amx/kernels.h"
#include "kernels/cpu/convolution/tile/panel_weights.h"

namespace muster::kernels::cpu {
namespace {

constexpr int64_t kLanes = 16;

// Bytes of x and dy that the gradient reads at once: they share the second-level cache.
constexpr size_t kGradientBytes = 1 << 20;
// Minimum number of positions, because each block of sums must be read and written.
constexpr int64_t kGradientPositions = 256;

// Minimum size of gradients that leave the caches before they are used: written by non-temporal
// stores.
constexpr int64_t kStreamedElements = 1 << 18;

bool Pointwise(const ConvolutionShape& shape) {
  return shape.kernel == 1 && shape.stride == 1 && shape.padding == 0;
}

bool SumsWindows(const ConvolutionShape& shape, const ConvolutionOptions& options) {
  return shape.kernel > 1 && shape.kernel * shape.in_channels <= amx::kDepth &&
         !(options.training && options.data_gradient);
}

ConvolutionShape OfOnePixel(const ConvolutionShape& shape) {
  ConvolutionShape pixel = shape;
  pixel.height = pixel.width = 1;
  return pixel;
}

class AmxEngine final : public ConvolutionEngine {
 public:
  AmxEngine(const ConvolutionShape& shape, const ConvolutionOptions& options)
      : shape_(Pointwise(shape) ? OfOnePixel(shape) : shape),
        options_(options),
        images_of_sample_(Pointwise(shape) ? shape.height * shape.width : 1),
        panels_{.lanes = kLanes, .depth = shape.fan_in(), .out_channels = shape.out_channels},
        windows_(SumsWindows(shape, options)),
        forward_(Forward(GridWork::kProduct)),
        parts_(options.threads) {
    if (options.training) gradient_ = Forward(GridWork::kGradient);
    if (options.training && options.data_gradient) {
      backward_data_ = GridPlanner::BackwardData(shape_, options.max_samples * images_of_sample_);
    }
    PlaceWorkspace();
  }

  Types types() const override {
    return {.x = options_.x_type,
            .dx = options_.x_type,
            .y = options_.y_type,
            .dy = options_.y_type,
            .compute = DataType::kBfloat16};
  }
  std::string description() const override { return "amx:bfloat16"; }
  int64_t weights_elements() const override { return panels_.elements(); }
  std::string weights_layout() const override { return TileWeightsLayout(panels_); }
  void ForEachWeight(absl::FunctionRef<void(int64_t, int64_t)> visit) const override {
    ForEachTileWeight(panels_, shape_.in_channels, visit);
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void Forward(int64_t samples, const void* x, const float* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    Multiply(X(samples, x, workspace),
             {.plan = &forward_->plan(),
              .weights = weights,
              .target_channels = shape_.out_channels,
              .target = y,
              .target_type = options_.y_type,
              .epilogue = epilogue},
             workspace);
  }

  void BackwardData(int64_t samples, const void* dy, const float* weights, void* dx,
                    void* workspace) override {
    Multiply(Dy(samples, dy),
             {.plan = &backward_data_->plan(),
              .weights = weights,
              .target_channels = shape_.in_channels,
              .transposed = true,
              .target = dx,
              .target_type = options_.x_type},
             workspace);
  }

  void BackwardWeights(int64_t samples, const void* x, const void* dy, float* dweights,
                       float* dbias, void* workspace) override {
    if (dbias != nullptr) amx::SumBias(Dy(samples, dy), dbias);
    if (samples == 0) {
      std::memset(dweights, 0, static_cast<size_t>(weights_elements()) * sizeof(float));
      return;
    }
    const amx::StoredImages source = X(samples, x, workspace);
    const int64_t pairs = Pairs(samples);
    for (int64_t first = 0; first < pairs; first += pairs_at_once_) {
      const amx::GradientSums sums = {
          .plan = &gradient_->plan(),
          .x = source,
          .dy = Dy(samples, dy),
          .first_pair = first,
          .pairs = std::min(pairs_at_once_, pairs - first),
          .panels = panels_,
          .scratch = Scratch(workspace),
          .dweights = dweights,
          .add = first > 0,
          .stream = pairs <= pairs_at_once_ && panels_.elements() >= kStreamedElements};
      parts_.Run([&](int slice) { amx::ArrangeGradient(sums, slice, parts_.count()); });
      parts_.Run([&](int slice) { amx::SumGradient(sums, slice, parts_.count()); });
    }
  }

 private:
  std::unique_ptr<const GridPlanner> Forward(GridWork work) const {
    if (windows_) return GridPlanner::ForwardOfWindows(shape_);
    return GridPlanner::Forward(shape_, work, options_.max_samples * images_of_sample_);
  }

  // The windows if they are used, which are made in the workspace if there is one.
  amx::StoredImages X(int64_t samples, const void* x, void* workspace) const {
    const amx::StoredImages images = {.type = options_.x_type,
                                      .data = x,
                                      .images = samples * images_of_sample_,
                                      .pixels = shape_.height * shape_.width,
                                      .channels = shape_.in_channels};
    if (!windows_) return images;
    if (workspace != nullptr) {
      const amx::WindowShape windows = {.height = shape_.height,
                                        .width = shape_.width,
                                        .out_width = shape_.out_width(),
                                        .kernel = shape_.kernel,
                                        .stride = shape_.stride,
                                        .padding = shape_.padding};
      parts_.Run(
          [&](int slice) { amx::FillWindows(windows, images, workspace, slice, parts_.count()); });
    }
    return {.type = DataType::kBfloat16,
            .data = workspace,
            .images = images.images,
            .pixels = shape_.height * shape_.out_width(),
            .channels = shape_.kernel * shape_.in_channels};
  }
  amx::StoredImages Dy(int64_t samples, const void* dy) const {
    return {.type = options_.y_type,
            .data = dy,
            .images = samples * images_of_sample_,
            .pixels = shape_.out_height() * shape_.out_width(),
            .channels = shape_.out_channels};
  }
  int64_t Pairs(int64_t samples) const { return (samples * images_of_sample_ + 1) / 2; }

  // Whether the source has the grid's layout, except that it ends with the last pixel.
  static bool InPlace(const GridPlan& plan, const amx::StoredImages& source) {
    return plan.positions == 1 && plan.planes == 1 && plan.largest_shift == 0 &&
           source.pixels == 1 && source.type == DataType::kBfloat16 &&
           source.channels % amx::kDepth == 0;
  }
  static int64_t Length(const GridPlan& plan, int64_t images) {
    const int64_t blocks = (images * plan.positions + amx::kBlock - 1) / amx::kBlock;
    return blocks * amx::kBlock + plan.largest_shift;
  }
  static size_t GridBytes(const GridPlan& plan, const amx::StoredImages& source) {
    const int64_t channels = (source.channels + amx::kDepth - 1) / amx::kDepth * amx::kDepth;
    const int64_t positions =
        InPlace(plan, source) ? amx::kBlock : plan.planes * Length(plan, source.images);
    return positions * channels * SizeOf(DataType::kBfloat16);
  }

  // Places the windows, then the grid and each slice's scratch, or the gradient's arrays.
  void PlaceWorkspace() {
    const amx::StoredImages x = X(options_.max_samples, nullptr, nullptr);
    const amx::StoredImages dy = Dy(options_.max_samples, nullptr);
    if (windows_) {
      windows_bytes_ = RoundUp(x.images * x.pixels * x.channels * SizeOf(DataType::kBfloat16));
    }
    size_t part_bytes = 0;
    const auto add = [&](const GridPlan& plan, const amx::StoredImages& source,
                         int64_t target_channels) {
      grid_bytes_ = std::max(grid_bytes_, RoundUp(GridBytes(plan, source)));
      part_bytes = std::max(part_bytes,
                            amx::GridProductScratchBytes(plan, source.channels, target_channels));
    };
    add(forward_->plan(), x, shape_.out_channels);
    if (backward_data_ != nullptr) add(backward_data_->plan(), dy, shape_.in_channels);
    workspace_bytes_ = windows_bytes_ + grid_bytes_ + part_bytes * parts_.count();
    if (!options_.training) return;
    const GridPlan& plan = gradient_->plan();
    const auto gradient_bytes = [&](int64_t pairs) {
      return amx::GradientScratchBytes(plan, x.channels, dy.channels, pairs);
    };
    // Positions of a pair for one tap.
    const int64_t positions = std::max<int64_t>(
        1, plan.positions * plan.first_uses[plan.tap_count] / std::max<int64_t>(1, plan.tap_count));
    const int64_t least = (kGradientPositions + positions - 1) / positions;
    const auto fit = static_cast<int64_t>(kGradientBytes * least / gradient_bytes(least));
    pairs_at_once_ = std::max(least, fit);
    // Part of a tile is computed but not used.
    if (plan.positions < amx::kTile) {
      pairs_at_once_ = (pairs_at_once_ + amx::kTile - 1) / amx::kTile * amx::kTile;
    }
    pairs_at_once_ = std::min(Pairs(options_.max_samples), pairs_at_once_);
    workspace_bytes_ = std::max(workspace_bytes_, windows_bytes_ + gradient_bytes(pairs_at_once_));
  }

  char* Scratch(void* workspace) const { return static_cast<char*>(workspace) + windows_bytes_; }

  void Multiply(const amx::StoredImages& source, amx::GridProduct product, void* workspace) const {
    if (source.images == 0) return;
    product.images = source.images;
    product.length = Length(*product.plan, source.images);
    product.panels = panels_;
    product.source_channels = source.channels;
    char* const grid = Scratch(workspace);
    product.scratch = grid + grid_bytes_;
    if (InPlace(*product.plan, source)) {
      product.grid = source.data;
      const int64_t pixel_bytes = source.channels * SizeOf(DataType::kBfloat16);
      const int64_t left = source.images % amx::kBlock;
      if (left > 0) {
        const auto* const from =
            static_cast<const char*>(source.data) + (source.images - left) * pixel_bytes;
        std::memcpy(grid, from, left * pixel_bytes);
        product.last_block = grid;
      }
    } else {
      product.grid = grid;
      parts_.Run([&](int slice) {
        amx::FillGrid(*product.plan, source, product.length, grid, slice, parts_.count());
      });
    }
    parts_.Run([&](int slice) { amx::MultiplyGrid(product, slice, parts_.count()); });
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const int64_t images_of_sample_;
  const TilePanels panels_;
  const bool windows_;  // sum windows instead of pixels
  const std::unique_ptr<const GridPlanner> forward_;
  std::unique_ptr<const GridPlanner> gradient_;       // null: will not be called
  std::unique_ptr<const GridPlanner> backward_data_;  // null: will not be called
  const Parts parts_;
  int64_t pairs_at_once_ = 0;  // images per gradient call
  size_t windows_bytes_ = 0;
  size_t grid_bytes_ = 0;
  size_t workspace_bytes_ = 0;
};

}  // namespace

std::unique_ptr<ConvolutionEngine> MakeAmxEngine(const ConvolutionShape& shape,
                                                 const ConvolutionOptions& options) {
  return std::make_unique<AmxEngine>(shape, options);
}

}  // namespace muster::kernels::cpu
