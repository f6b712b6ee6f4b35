// Forward and backward data share a product that a plan describes; see kernels/tile_convolution.h.
// Activations of another type than the products' are converted into the workspace first; sums are
// stored as the target's type at once.
#include "kernels/cpu/tile_convolution.h"

#include <algorithm>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "kernels/cpu/tile_plan.h"
#include "kernels/cpu/tile_weights.h"
#include "kernels/thread_pool.h"
#include "kernels/tile_convolution.h"

namespace muster::kernels::cpu {
namespace {

constexpr size_t kAlignment = 64;

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class TileConvolutionLayer : public Convolution {
 public:
  TileConvolutionLayer(const ConvolutionShape& shape, const ConvolutionOptions& options,
                       const KernelTable& kernels)
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
        x_{.stored = options.x_type,
           .pixels = shape.height * shape.width,
           .channels = shape.in_channels},
        dy_{.stored = options.y_type,
            .pixels = shape.out_height() * shape.out_width(),
            .channels = shape.out_channels},
        forward_(
            TilePlanner::Forward(shape_, options.compute_type, options.y_type, kernels.lanes)) {
    if (options.data_gradient) {
      backward_data_ =
          TilePlanner::BackwardData(shape_, options.compute_type, options.x_type, kernels.lanes);
    }
    if (options.threads > 1) threads_ = ThreadPool::Shared(options.threads);
    PlaceWorkspace();
  }

  int64_t weights_elements() const override { return panels_.elements(); }
  std::string weights_layout() const override { return TileWeightsLayout(panels_); }
  std::string description() const override {
    return absl::StrCat("tile:", kernels_.name, ":", NameOf(options_.compute_type));
  }
  size_t workspace_bytes() const override { return workspace_bytes_; }

  void ImportWeights(const float* canonical, float* weights) const override {
    ImportTileWeights(panels_, shape_.in_channels, canonical, weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    ExportTileWeights(panels_, shape_.in_channels, weights, canonical);
  }

  void Forward(int64_t rows, const void* x, const float* weights, const Epilogue& epilogue, void* y,
               void* workspace) override {
    Multiply({.plan = &forward_->plan(),
              .rows = rows,
              .source = Source(x_, rows, x, workspace),
              .weights = weights,
              .target = y,
              .target_type = options_.y_type,
              .scale = epilogue.scale,
              .shift = epilogue.shift,
              .addend = epilogue.addend,
              .activation = epilogue.activation},
             workspace);
  }

  void BackwardData(int64_t rows, const void* dy, const float* weights, void* dx,
                    void* workspace) override {
    Multiply({.plan = &backward_data_->plan(),
              .rows = rows,
              .source = Source(dy_, rows, dy, workspace),
              .weights = weights,
              .target = dx,
              .target_type = options_.x_type},
             workspace);
  }

  void BackwardWeights(int64_t rows, const void* x, const void* dy, float* dweights, float* dbias,
                       void* workspace) override {
    TileConvolutionShape shape = shape_;
    shape.rows = rows;
    const void* const source = Converted(x_, rows, x, workspace);
    const void* const gradient = Converted(dy_, rows, dy, workspace);
    InParts([&](int part) {
      kernels_.tile_convolution_backward_weights(shape, options_.compute_type, source, gradient,
                                                 dweights, dbias, Scratch(workspace, part), part,
                                                 options_.threads);
    });
  }

 private:
  // x or dy, and where it lies in the workspace in the type of the products.
  struct Operand {
    DataType stored;
    int64_t pixels;  // of a row
    int64_t channels;
    size_t offset = 0;
  };

  // Pairs of bfloat16 want an even number of channels.
  bool Pads(const Operand& operand) const {
    return options_.compute_type == DataType::kBfloat16 && operand.channels % 2 == 1;
  }
  size_t ConvertedBytes(const Operand& operand) const {
    if (operand.stored == options_.compute_type && !Pads(operand)) return 0;
    const int64_t channels = operand.channels + (Pads(operand) ? 1 : 0);
    return RoundUp(options_.max_rows * operand.pixels * channels * SizeOf(options_.compute_type));
  }

  // x and dy, then each part's scratch.
  void PlaceWorkspace() {
    TileConvolutionShape shape = shape_;
    shape.rows = options_.max_rows;
    dy_.offset = ConvertedBytes(x_);
    scratch_offset_ = dy_.offset + ConvertedBytes(dy_);
    for (const TilePlanner* planner : {forward_.get(), backward_data_.get()}) {
      if (planner == nullptr || !planner->plan().packs()) continue;
      scratch_bytes_ = std::max(scratch_bytes_, RoundUp(planner->plan().group_bytes));
    }
    if (options_.training) {
      scratch_bytes_ =
          std::max(scratch_bytes_, RoundUp(kernels_.tile_convolution_backward_weights_scratch_bytes(
                                       shape, options_.compute_type)));
    }
    workspace_bytes_ = scratch_offset_ + scratch_bytes_ * options_.threads;
  }

  void* Scratch(void* workspace, int part) const {
    return static_cast<char*>(workspace) + scratch_offset_ + scratch_bytes_ * part;
  }

  // For the products of forward and backward data.
  const void* Source(const Operand& operand, int64_t rows, const void* from,
                     void* workspace) const {
    if (!Pads(operand)) return Converted(operand, rows, from, workspace);
    void* const to = static_cast<char*>(workspace) + operand.offset;
    kernels_.tile_pad_channels(operand.stored, from, rows * operand.pixels, operand.channels, to);
    return to;
  }
  const void* Converted(const Operand& operand, int64_t rows, const void* from,
                        void* workspace) const {
    if (operand.stored == options_.compute_type) return from;
    void* const to = static_cast<char*>(workspace) + operand.offset;
    kernels_.cast(operand.stored, from, 1, options_.compute_type, to,
                  rows * operand.pixels * operand.channels);
    return to;
  }

  void InParts(absl::FunctionRef<void(int part)> run) const {
    if (threads_ == nullptr) return run(0);
    threads_->Run(run);
  }

  void Multiply(const TileProduct& product, void* workspace) const {
    InParts([&](int part) {
      TileProduct mine = product;
      mine.scratch = Scratch(workspace, part);
      kernels_.tile_convolution(mine, part, options_.threads);
    });
  }

  const TileConvolutionShape shape_;
  const ConvolutionOptions options_;
  const KernelTable& kernels_;
  const TilePanels panels_;
  const Operand x_;
  Operand dy_;
  const std::unique_ptr<const TilePlanner> forward_;
  std::unique_ptr<const TilePlanner> backward_data_;  // null: will not be called
  std::shared_ptr<ThreadPool> threads_;               // null: the calling thread alone
  size_t scratch_offset_ = 0;
  size_t scratch_bytes_ = 0;  // of one part
  size_t workspace_bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Convolution>> MakeTileConvolution(const ConvolutionShape& shape,
                                                                 const ConvolutionOptions& options,
                                                                 const KernelTable& kernels) {
  if (!shape.valid() || shape.groups != 1 || !options.valid()) {
    return absl::InvalidArgumentError("no such dense convolution");
  }
  const bool computes = options.compute_type == DataType::kFloat32 ||
                        (options.compute_type == DataType::kBfloat16 && kernels.bfloat16_dot);
  if (!computes) {
    return absl::InvalidArgumentError(
        absl::StrCat("no tile convolution in ", NameOf(options.compute_type)));
  }
  return std::make_unique<TileConvolutionLayer>(shape, options, kernels);
}

}  // namespace muster::kernels::cpu
