#include "kernels/cuda/loss/nt_xent_loss.h"

#include <compare>
#include <map>
#include <utility>

#include "kernels/cuda/convolution/operand_workspace.h"

namespace muster::kernels::cuda {
namespace {

struct Product {
  bool backward = false;
  int64_t anchors = 0;
  int64_t samples = 0;
  uint32_t b_alignment = kMatmulAlignment;

  auto operator<=>(const Product&) const = default;
};

class CublasLtNtXentLoss final : public NtXentLoss {
 public:
  CublasLtNtXentLoss(int64_t width, const LayerRuntime& runtime, const CublasLt& cublaslt,
                     CublasLtHandle handle, void* stream)
      : width_(width),
        runtime_(runtime),
        cublaslt_(cublaslt),
        handle_(handle),
        stream_(stream),
        region_(plan_.Add(kCublasLtWorkspaceBytes)) {}

  absl::Status Prepare(const NtXentShape& largest) {
    absl::StatusOr<DeviceMemory> workspace = runtime_.device->Allocate(plan_.bytes());
    if (!workspace.ok()) return workspace.status();
    workspace_ = *std::move(workspace);
    if (largest.anchors == 0) return absl::OkStatus();
    absl::Status status = Find(Similarities(largest)).status();
    status.Update(Find(Gradients(largest)).status());
    return status;
  }

  std::string description() const override { return "cublaslt"; }

  void Forward(const NtXentShape& shape, const float* units, float* logits, float* log_sums,
               LossResult* result) override {
    if (shape.anchors > 0) {
      Run(Similarities(shape), units, units + shape.first * shape.width, logits);
    }
    runtime_.kernels->nt_xent_losses(shape, logits, log_sums, result);
  }

  void Backward(const NtXentShape& shape, double scale, const double* loss_scale,
                const float* units, const float* log_sums, float* logits, float* dunits) override {
    if (shape.anchors == 0) return;
    runtime_.kernels->nt_xent_coefficients(shape, scale, loss_scale, log_sums, logits);
    Run(Gradients(shape), units, logits, dunits);
  }

 private:
  static Product Similarities(const NtXentShape& shape) {
    const auto offset = static_cast<uint64_t>(shape.first * shape.width) * sizeof(float);
    return {.anchors = shape.anchors,
            .samples = shape.samples,
            .b_alignment = offset % kMatmulAlignment == 0 ? kMatmulAlignment
                                                          : static_cast<uint32_t>(sizeof(float))};
  }
  static Product Gradients(const NtXentShape& shape) {
    return {.backward = true, .anchors = shape.anchors, .samples = shape.samples};
  }

  // A row-major array is the transpose of a column-major matrix: as the latter, units are [width,
  // samples], logits are [samples, anchors] and dunits [width, anchors].
  MatmulProblem ProblemOf(const Product& product) const {
    MatmulProblem problem = {.n = product.anchors,
                             .operand_type = DataType::kFloat32,
                             .d_type = DataType::kFloat32,
                             .epilogue = kCublasLtEpilogueNone,
                             .b_alignment = product.b_alignment,
                             .numerics = runtime_.numerics};
    const int64_t row_stride = NtXentShape{.samples = product.samples}.row_stride();
    if (product.backward) {
      problem.m = width_, problem.k = product.samples;
      problem.b_stride = row_stride;
    } else {
      problem.m = product.samples, problem.k = width_;
      problem.transpose_a = true;
      problem.d_stride = row_stride;
    }
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

  void Run(const Product& product, const float* a, const float* b, float* d) {
    const absl::StatusOr<CublasLtMatmul>& found = Find(product);
    const absl::Status status =
        found.ok() ? found->Run(a, b, nullptr, d, nullptr, region_.In(workspace_.data()), stream_)
                   : found.status();
    if (!status.ok()) runtime_.report(status);
  }

  const int64_t width_;
  const LayerRuntime runtime_;
  const CublasLt& cublaslt_;
  const CublasLtHandle handle_;
  void* const stream_;
  WorkspacePlan plan_;
  const WorkspaceRegion region_;
  DeviceMemory workspace_;
  std::map<Product, absl::StatusOr<CublasLtMatmul>> products_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NtXentLoss>> MakeCublasLtNtXentLoss(const NtXentShape& largest,
                                                                   const LayerRuntime& runtime,
                                                                   const CublasLt& cublaslt,
                                                                   CublasLtHandle handle,
                                                                   void* stream) {
  auto made =
      std::make_unique<CublasLtNtXentLoss>(largest.width, runtime, cublaslt, handle, stream);
  const absl::Status status = made->Prepare(largest);
  if (!status.ok()) return status;
  return made;
}

}  // namespace muster::kernels::cuda
