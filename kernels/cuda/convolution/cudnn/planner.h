// One direction of a convolution as a graph of cuDNN's, and the search for the engine to run it.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLANNER_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLANNER_H_

#include <compare>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/convolution.h"
#include "kernels/cuda/convolution/cudnn/graph.h"
#include "kernels/cuda/convolution/cudnn/plan_cache.h"

namespace muster::kernels::cuda {

// What is to be done, beside the layer's shape and options. Operands are of the compute type.
struct CudnnOperation {
  ConvolutionDirection direction = ConvolutionDirection::kForward;
  int64_t rows = 1;
  // Of kForward: y = relu(sum + addend + shift); the latter two, of which addend and relu need
  // shift, and y are of the compute type then.
  bool shift = false;
  bool addend = false;
  bool relu = false;

  auto operator<=>(const CudnnOperation&) const = default;
};

// How an output comes about that is of another type than the operands.
enum class CudnnOutput {
  kDirect,  // the convolution writes it
  kCast,    // it is written in the operands' type, and the caller's to cast
};

struct CudnnChoice {
  CudnnPlan plan;
  CudnnEngineChoice engine;
  CudnnOutput output;
  // The tensors x, w and y, and then shift and addend where there are such.
  std::vector<int64_t> ids;
};

// For the thread of its target.
class CudnnPlanner {
 public:
  CudnnPlanner(const ConvolutionShape& shape, const ConvolutionOptions& options,
               const CudnnTarget& target, PlanCache& plans)
      : shape_(shape), options_(options), target_(target), plans_(plans) {}

  // Runs a choice, which writes its output and nothing else -> milliseconds.
  using Measure = absl::FunctionRef<absl::StatusOr<float>(const CudnnChoice&)>;

  // The engine of `like`, which may be null, where that serves; the plan in the cache; or else the
  // fastest of the first that cuDNN proposes. All with at most as many bytes of workspace.
  // UNIMPLEMENTED where there is none; the error of `measure` where none of them runs.
  absl::StatusOr<CudnnChoice> Choose(const CudnnOperation& operation, const CudnnChoice* like,
                                     int64_t max_workspace_bytes, Measure measure) const;

 private:
  struct Formulation {
    CudnnOutput output;
    bool compiled_at_run_time;  // takes engines that are, if there is no other
  };
  struct Problem;

  std::vector<Formulation> FormulationsOf(const CudnnOperation& operation) const;
  DataType OutputType(ConvolutionDirection direction) const;
  Problem MakeProblem(const CudnnOperation& operation, CudnnOutput output) const;
  std::vector<CudnnChoice> Candidates(const Problem& problem, const Formulation& formulation,
                                      int64_t max_workspace_bytes) const;
  bool Exact(const CudnnProposal& proposal) const;
  static absl::StatusOr<CudnnChoice> Build(const Problem& problem, const CudnnEngineChoice& engine,
                                           int64_t max_workspace_bytes);

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const CudnnTarget target_;
  PlanCache& plans_;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLANNER_H_
