#include "kernels/cuda/convolution/cublaslt/linear.h"

#include <algorithm>
#include <compare>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/convolution/operand_workspace.h"

namespace muster::kernels::cuda {
namespace {

enum class Direction { kForward, kBackwardData, kBackwardWeights };

struct Product {
  Direction direction = Direction::kForward;
  int64_t samples = 1;
  bool bias = false;  // adds the bias or, with kBackwardWeights, computes its gradient
  bool addend = false;
  bool relu = false;

  auto operator<=>(const Product&) const = default;
};

class CublasLtLinear final : public Convolution {
 public:
  CublasLtLinear(const ConvolutionShape& shape, const ConvolutionOptions& options,
                 const LayerRuntime& runtime, const CublasLt& cublaslt, CublasLtHandle handle,
                 void* stream)
      : ins_(shape.in_channels),
        outs_(shape.out_channels),
        options_(options),
        runtime_(runtime),
        cublaslt_(cublaslt),
        handle_(handle),
        stream_(stream) {
    const DataType compute = options.compute_type;
    x_ = workspace_.AddCast(options.x_type, compute, options.max_samples * ins_);
    y_ = workspace_.AddCast(options.y_type, compute, options.max_samples * outs_);
    bias_ = workspace_.AddCast(DataType::kFloat32, WrittenAs(options.y_type), outs_);
    y_sums_ =
        workspace_.AddCast(options.y_type, WrittenAs(options.y_type), options.max_samples * outs_);
    x_sums_ =
        workspace_.AddCast(options.x_type, WrittenAs(options.x_type), options.max_samples * ins_);
    product_ = workspace_.Add(kCublasLtWorkspaceBytes);
  }

  // Chooses the algorithms that the layer needs for max_samples.
  absl::Status MakeProducts() {
    const int64_t samples = options_.max_samples;
    absl::Status status = Find({.samples = samples}).status();
    if (!options_.training) return status;
    status.Update(Find({.direction = Direction::kBackwardWeights, .samples = samples}).status());
    if (!options_.data_gradient) return status;
    status.Update(Find({.direction = Direction::kBackwardData, .samples = samples}).status());
    return status;
  }

  int64_t weights_elements() const override { return ins_ * outs_; }
  std::string weights_layout() const override { return "oi"; }
  DataType weights_type() const override { return options_.compute_type; }
  std::string description() const override {
    return absl::StrCat("cublaslt (", NameOf(options_.compute_type), ")");
  }
  size_t workspace_bytes() const override { return workspace_.bytes(); }

  void ImportWeights(const float* canonical, float* weights) const override {
    std::copy_n(canonical, weights_elements(), weights);
  }
  void ExportWeights(const float* weights, float* canonical) const override {
    std::copy_n(weights, weights_elements(), canonical);
  }

  void Forward(int64_t samples, const void* x, const void* weights, const Epilogue& epilogue,
               void* y, void* workspace) override {
    if (samples == 0) return;
    const void* const a = weights;
    const void* const b = X(samples, x, workspace);
    const DataType written = WrittenAs(options_.y_type);
    const bool direct = written == options_.y_type;
    if (direct && epilogue.scale == nullptr && epilogue.activation != Activation::kRelu6) {
      const Product fused = {.samples = samples,
                             .bias = epilogue.shift != nullptr,
                             .addend = epilogue.addend != nullptr,
                             .relu = epilogue.activation == Activation::kRelu};
      const absl::StatusOr<CublasLtMatmul>& product = Find(fused);
      if (product.ok()) {
        const void* bias = epilogue.shift;
        if (bias != nullptr) {
          bias = AsType(runtime_.device->kernels(), DataType::kFloat32, bias, outs_, written, bias_,
                        workspace);
        }
        return Run(product, a, b, epilogue.addend, y, bias, workspace);
      }
    }
    void* const sums = direct ? y : y_sums_.In(workspace);
    Run(Find({.samples = samples}), a, b, nullptr, sums, nullptr, workspace);
    runtime_.kernels->apply_epilogue(samples, outs_, written, sums, epilogue, options_.y_type, y);
  }

  void BackwardData(int64_t samples, const void* dy, const void* weights, void* dx,
                    void* workspace) override {
    if (samples == 0) return;
    const DataType written = WrittenAs(options_.x_type);
    void* const sums = written == options_.x_type ? dx : x_sums_.In(workspace);
    Run(Find({.direction = Direction::kBackwardData, .samples = samples}), weights,
        Dy(samples, dy, workspace), nullptr, sums, nullptr, workspace);
    if (sums == dx) return;
    runtime_.device->kernels().cast(written, sums, 1, options_.x_type, dx,
                                    static_cast<size_t>(samples * ins_));
  }

  void BackwardWeights(int64_t samples, const void* x, const void* dy, void* dweights, float* dbias,
                       void* workspace) override {
    if (samples == 0) {
      runtime_.device->Zero(dweights, static_cast<size_t>(ins_ * outs_) * sizeof(float));
      if (dbias == nullptr) return;
      return runtime_.device->Zero(dbias, static_cast<size_t>(outs_) * sizeof(float));
    }
    const void* const a = X(samples, x, workspace);
    const void* const b = Dy(samples, dy, workspace);
    Product product = {.direction = Direction::kBackwardWeights, .samples = samples};
    if (dbias != nullptr) {
      product.bias = true;
      if (Find(product).ok()) return Run(Find(product), a, b, nullptr, dweights, dbias, workspace);
      product.bias = false;
      runtime_.kernels->column_sums(options_.compute_type, samples, outs_, b, dbias);
    }
    Run(Find(product), a, b, nullptr, dweights, nullptr, workspace);
  }

 private:
  // The type in which a product writes an output of `type`.
  DataType WrittenAs(DataType type) const {
    return type == options_.compute_type ? type : DataType::kFloat32;
  }

  const void* Operand(DataType type, const void* array, int64_t count, WorkspaceRegion region,
                      void* workspace) const {
    return AsType(runtime_.device->kernels(), type, array, count, options_.compute_type, region,
                  workspace);
  }
  const void* X(int64_t samples, const void* x, void* workspace) const {
    return Operand(options_.x_type, x, samples * ins_, x_, workspace);
  }
  const void* Dy(int64_t samples, const void* dy, void* workspace) const {
    return Operand(options_.y_type, dy, samples * outs_, y_, workspace);
  }

  // A row-major array is the transpose of a column-major matrix: as the latter, x is [ins,
  // samples], y is [outs, samples], and weights are [ins, outs].
  MatmulProblem ProblemOf(const Product& product) const {
    MatmulProblem problem = {.operand_type = options_.compute_type,
                             .add_c = product.addend,
                             .numerics = runtime_.numerics};
    switch (product.direction) {
      case Direction::kForward: {
        problem.m = outs_, problem.n = product.samples, problem.k = ins_;
        problem.transpose_a = true;
        problem.d_type = WrittenAs(options_.y_type);
        const int bits =
            (product.bias ? kCublasLtEpilogueBias : 0) | (product.relu ? kCublasLtEpilogueRelu : 0);
        problem.epilogue = bits == 0 ? kCublasLtEpilogueNone : static_cast<CublasLtEpilogue>(bits);
        return problem;
      }
      case Direction::kBackwardData:
        problem.m = ins_, problem.n = product.samples, problem.k = outs_;
        problem.d_type = WrittenAs(options_.x_type);
        break;
      case Direction::kBackwardWeights:
        problem.m = ins_, problem.n = outs_, problem.k = product.samples;
        problem.transpose_b = true;
        problem.d_type = DataType::kFloat32;
        break;
    }
    problem.epilogue = product.bias ? kCublasLtEpilogueBiasGradientOfB : kCublasLtEpilogueNone;
    return problem;
  }

  const absl::StatusOr<CublasLtMatmul>& Find(const Product& product) {
    auto at = products_.find(product);
    if (at == products_.end()) {
      at = products_
               .emplace(product, CublasLtMatmul::Make(cublaslt_, handle_, ProblemOf(product),
                                                      kCublasLtWorkspaceBytes))
               .first;
    }
    return at->second;
  }

  void Run(const absl::StatusOr<CublasLtMatmul>& product, const void* a, const void* b,
           const void* c, void* d, const void* bias, void* workspace) const {
    const absl::Status status =
        product.ok() ? product->Run(a, b, c, d, bias, product_.In(workspace), stream_)
                     : product.status();
    if (!status.ok()) runtime_.report(status);
  }

  const int64_t ins_;
  const int64_t outs_;
  const ConvolutionOptions options_;
  const LayerRuntime runtime_;
  const CublasLt& cublaslt_;
  const CublasLtHandle handle_;
  void* const stream_;
  // Regions: operands cast to the compute type; the bias in the type that products read; outputs
  // that products cannot write in their final type; the products' own workspace.
  WorkspacePlan workspace_;
  WorkspaceRegion x_, y_, bias_, y_sums_, x_sums_, product_;
  std::map<Product, absl::StatusOr<CublasLtMatmul>> products_;
};

}  // namespace

bool IsLinear(const ConvolutionShape& shape) {
  return shape.valid() && shape.height == 1 && shape.width == 1 && shape.kernel == 1 &&
         shape.padding == 0 && shape.groups == 1;
}

absl::StatusOr<std::unique_ptr<Convolution>> MakeCublasLtLinear(
    const ConvolutionShape& shape, const ConvolutionOptions& options, const LayerRuntime& runtime,
    const CublasLt& cublaslt, CublasLtHandle handle, void* stream) {
  if (!IsLinear(shape) || !options.valid()) return InvalidLayerError(shape);
  auto made = std::make_unique<CublasLtLinear>(shape, options, runtime, cublaslt, handle, stream);
  const absl::Status status = made->MakeProducts();
  if (!status.ok()) return status;
  return made;
}

}  // namespace muster::kernels::cuda
