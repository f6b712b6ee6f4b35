// See kernels/cpu/grid.h for how a convolution becomes products of matrices. A pointwise one needs
// no grid: its pixels, whatever image they are of, are images of one pixel each.
#include "kernels/cpu/amx_convolution.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/amx_kernels.h"
#include "kernels/cpu/amx_support.h"
#include "kernels/cpu/grid_plan.h"
#include "kernels/cpu/tile_weights.h"
#include "kernels/thread_pool.h"

namespace muster::kernels::cpu {
namespace {

constexpr size_t kAlignment = 64;
constexpr int64_t kLanes = 16;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Of x and dy that the gradient's sums read at once: they share the second-level cache.
constexpr size_t kGradientBytes = 1 << 20;
// But each block of sums, once read and written, takes up at least so many.
constexpr int64_t kGradientPositions = 256;

bool Pointwise(const ConvolutionShape& shape) {
  return shape.kernel == 1 && shape.stride == 1 && shape.padding == 0;
}

ConvolutionShape OfOnePixel(const ConvolutionShape& shape) {
  ConvolutionShape pixel = shape;
  pixel.height = pixel.width = 1;
  return pixel;
}

class AmxConvolution : public Convolution {
 public:
  AmxConvolution(const ConvolutionShape& shape, const ConvolutionOptions& options)
      : shape_(Pointwise(shape) ? OfOnePixel(shape) : shape),
        options_(options),
        images_of_row_(Pointwise(shape) ? shape.height * shape.width : 1),
        panels_{.lanes = kLanes, .depth = shape.fan_in(), .out_channels = shape.out_channels},
        forward_(GridPlanner::Forward(shape_)) {
    if (options.training && options.data_gradient) {
      backward_data_ = GridPlanner::BackwardData(shape_);
    }
    if (options.threads > 1) threads_ = ThreadPool::Shared(options.threads);
    PlaceWorkspace();
  }

  int64_t weights_elements() const override { return panels_.elements(); }
  std::string weights_layout() const override { return TileWeightsLayout(panels_); }
  std::string description() const override { return "amx:bfloat16"; }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void ImportWeights(const float* canonical, float* weights) const override {
    ImportTileWeights(panels_, shape_.in_channels, canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    ExportTileWeights(panels_, shape_.in_channels, weights, canonical);
  }

  void Forward(int64_t rows, const void* x, const float* weights, const Epilogue& epilogue, void* y,
               void* workspace) override {
    Multiply(X(rows, x),
             {.plan = &forward_->plan(),
              .weights = weights,
              .target_channels = shape_.out_channels,
              .target = y,
              .target_type = options_.y_type,
              .epilogue = epilogue},
             workspace);
  }

  void BackwardData(int64_t rows, const void* dy, const float* weights, void* dx,
                    void* workspace) override {
    Multiply(Dy(rows, dy),
             {.plan = &backward_data_->plan(),
              .weights = weights,
              .target_channels = shape_.in_channels,
              .transposed = true,
              .target = dx,
              .target_type = options_.x_type},
             workspace);
  }

  void BackwardWeights(int64_t rows, const void* x, const void* dy, float* dweights, float* dbias,
                       void* workspace) override {
    if (dbias != nullptr) amx::SumBias(Dy(rows, dy), dbias);
    if (rows == 0) {
      std::memset(dweights, 0, static_cast<size_t>(weights_elements()) * sizeof(float));
      return;
    }
    const int64_t pairs = Pairs(rows);
    for (int64_t first = 0; first < pairs; first += pairs_at_once_) {
      const amx::GradientSums sums = {.plan = &forward_->plan(),
                                      .x = X(rows, x),
                                      .dy = Dy(rows, dy),
                                      .first_pair = first,
                                      .pairs = std::min(pairs_at_once_, pairs - first),
                                      .panels = panels_,
                                      .scratch = workspace,
                                      .dweights = dweights,
                                      .add = first > 0};
      InParts([&](int part) { amx::ArrangeGradient(sums, part, options_.threads); });
      InParts([&](int part) { amx::SumGradient(sums, part, options_.threads); });
    }
  }

 private:
  amx::StoredImages X(int64_t rows, const void* x) const {
    return {.type = options_.x_type,
            .data = x,
            .images = rows * images_of_row_,
            .pixels = shape_.height * shape_.width,
            .channels = shape_.in_channels};
  }
  amx::StoredImages Dy(int64_t rows, const void* dy) const {
    return {.type = options_.y_type,
            .data = dy,
            .images = rows * images_of_row_,
            .pixels = shape_.out_height() * shape_.out_width(),
            .channels = shape_.out_channels};
  }
  int64_t Pairs(int64_t rows) const { return (rows * images_of_row_ + 1) / 2; }

  // Whether the source is its own grid, but that it ends with the last pixel.
  static bool InPlace(const GridPlan& plan, const amx::StoredImages& source) {
    return plan.positions == 1 && plan.planes == 1 && plan.largest_shift == 0 &&
           source.pixels == 1 && source.type == DataType::kBfloat16 &&
           source.channels % amx::kDepth == 0;
  }
  static int64_t Length(const GridPlan& plan, int64_t images) {
    return images * plan.positions + plan.largest_shift + amx::kBlock;
  }
  static size_t GridBytes(const GridPlan& plan, const amx::StoredImages& source) {
    const int64_t channels = (source.channels + amx::kDepth - 1) / amx::kDepth * amx::kDepth;
    const int64_t positions =
        InPlace(plan, source) ? amx::kBlock : plan.planes * Length(plan, source.images);
    return positions * channels * SizeOf(DataType::kBfloat16);
  }

  // The grid, then each part's scratch; or the gradient's arrays.
  void PlaceWorkspace() {
    const auto add = [this](const GridPlan& plan, const amx::StoredImages& source,
                            int64_t target_channels) {
      scratch_offset_ = std::max(scratch_offset_, RoundUp(GridBytes(plan, source)));
      workspace_bytes_ = std::max(
          workspace_bytes_, amx::GridProductScratchBytes(plan, source.channels, target_channels));
    };
    const amx::StoredImages x = X(options_.max_rows, nullptr), dy = Dy(options_.max_rows, nullptr);
    add(forward_->plan(), x, shape_.out_channels);
    if (backward_data_ != nullptr) add(backward_data_->plan(), dy, shape_.in_channels);
    workspace_bytes_ = scratch_offset_ + workspace_bytes_ * options_.threads;
    if (!options_.training) return;
    const auto gradient_bytes = [&](int64_t pairs) {
      return amx::GradientScratchBytes(forward_->plan(), shape_.in_channels, shape_.out_channels,
                                       pairs);
    };
    const int64_t positions = forward_->plan().positions;
    const int64_t least = (kGradientPositions + positions - 1) / positions;
    const auto fit = static_cast<int64_t>(kGradientBytes * least / gradient_bytes(least));
    pairs_at_once_ = std::min(Pairs(options_.max_rows), std::max(least, fit));
    workspace_bytes_ = std::max(workspace_bytes_, gradient_bytes(pairs_at_once_));
  }

  void InParts(absl::FunctionRef<void(int part)> run) const {
    if (threads_ == nullptr) return run(0);
    threads_->Run(run);
  }

  void Multiply(const amx::StoredImages& source, amx::GridProduct product, void* workspace) const {
    if (source.images == 0) return;
    product.images = source.images;
    product.length = Length(*product.plan, source.images);
    product.panels = panels_;
    product.source_channels = source.channels;
    product.scratch = static_cast<char*>(workspace) + scratch_offset_;
    if (InPlace(*product.plan, source)) {
      product.grid = source.data;
      const int64_t pixel_bytes = source.channels * SizeOf(DataType::kBfloat16);
      const int64_t left = source.images % amx::kBlock;
      if (left > 0) {
        const auto* const from =
            static_cast<const char*>(source.data) + (source.images - left) * pixel_bytes;
        std::memcpy(workspace, from, left * pixel_bytes);
        product.last_block = workspace;
      }
    } else {
      product.grid = workspace;
      InParts([&](int part) {
        amx::FillGrid(*product.plan, source, product.length, workspace, part, options_.threads);
      });
    }
    InParts([&](int part) { amx::MultiplyGrid(product, part, options_.threads); });
  }

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const int64_t images_of_row_;
  const TilePanels panels_;
  const std::unique_ptr<const GridPlanner> forward_;
  std::unique_ptr<const GridPlanner> backward_data_;  // null: will not be called
  std::shared_ptr<ThreadPool> threads_;               // null: the calling thread alone
  int64_t pairs_at_once_ = 0;                         // of the gradient's images
  size_t scratch_offset_ = 0;
  size_t workspace_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeAmxConvolution(const ConvolutionShape& shape,
                                                                const ConvolutionOptions& options) {
  const auto stores = [](DataType type) { return type != DataType::kFloat16; };
  if (!shape.valid() || shape.groups != 1 || options.max_rows < 1 || options.threads < 1 ||
      options.compute_type != DataType::kBfloat16 || !stores(options.x_type) ||
      !stores(options.y_type)) {
    return absl::InvalidArgumentError("no such convolution by AMX");
  }
  if (!HasAmx()) return absl::InvalidArgumentError("this processor lacks AMX");
  return std::make_unique<AmxConvolution>(shape, options);
}

}  // namespace muster::kernels::cpu
