// Builds the cuDNN graph of one direction of a convolution, and chooses the engine that runs it.
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
#include "kernels/cuda/numerics.h"

namespace muster::kernels::cuda {

// An operation of a layer with a given shape and options. Operands are of the compute type.
struct CudnnOperation {
  ConvolutionDirection direction = ConvolutionDirection::kForward;
  int64_t samples = 1;
  // Epilogue of kForward: y = relu(sum + addend + shift). addend and relu require shift. With
  // shift, y, shift and addend are of the compute type.
  bool shift = false;
  bool addend = false;
  bool relu = false;

  auto operator<=>(const CudnnOperation&) const = default;
};

// The type in which the convolution writes its output.
enum class CudnnOutput {
  kDirect,  // the output's own type
  kCast,    // the operands' type; the caller casts it
};

struct CudnnChoice {
  CudnnPlan plan;
  CudnnEngineChoice engine;
  CudnnOutput output;
  // The tensors x, w, y, and shift and addend if the operation has them.
  std::vector<int64_t> ids;
  // Position among cuDNN's proposals, and whether cuDNN compiles the engine's kernels; -1 and false
  // for an engine of `similar` or of the plan cache.
  int rank = -1;
  bool compiled_at_run_time = false;
};

// Chooses engines for the operations of one layer. Used by the thread of its target.
class CudnnPlanner {
 public:
  CudnnPlanner(const ConvolutionShape& shape, const ConvolutionOptions& options,
               const CudnnTarget& target, PlanCache& plans, const Numerics& numerics = {})
      : shape_(shape), options_(options), target_(target), plans_(plans), numerics_(numerics) {}

  // Runs a choice, which writes to its output only, `runs` times and returns the milliseconds.
  using Measure = absl::FunctionRef<absl::StatusOr<float>(const CudnnChoice&, int runs)>;

  // Chooses, with at most max_workspace_bytes: the engine of `similar` (which may be null) if it
  // supports the operation; otherwise the plan in the cache; otherwise the fastest (FindFastest) of
  // the first engines that cuDNN proposes. Errors: UNIMPLEMENTED if there is none; the error of
  // `measure` if none of them runs.
  absl::StatusOr<CudnnChoice> Choose(const CudnnOperation& operation, const CudnnChoice* similar,
                                     int64_t max_workspace_bytes, Measure measure) const;

 private:
  struct Formulation {
    CudnnOutput output;
    bool compiled_at_run_time;  // allows engines compiled at run time if there is no other
  };
  struct Problem;

  // Best first.
  std::vector<Formulation> FormulationsOf(const CudnnOperation& operation) const;
  DataType OutputType(ConvolutionDirection direction) const;
  Problem MakeProblem(const CudnnOperation& operation, CudnnOutput output) const;
  std::vector<CudnnChoice> Candidates(const Problem& problem, const Formulation& formulation,
                                      int64_t max_workspace_bytes) const;
  bool rounds_to_tf32() const {
    return numerics_.tf32 && options_.compute_type == DataType::kFloat32;
  }
  // Whether the engine is as deterministic and precise as numerics_ requires.
  bool Allows(const CudnnProposal& proposal) const;
  static absl::StatusOr<CudnnChoice> Build(const Problem& problem, const CudnnEngineChoice& engine,
                                           int64_t max_workspace_bytes);

  const ConvolutionShape shape_;
  const ConvolutionOptions options_;
  const CudnnTarget target_;
  PlanCache& plans_;
  const Numerics numerics_;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_PLANNER_H_
