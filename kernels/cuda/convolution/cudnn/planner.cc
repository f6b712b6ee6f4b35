#include "kernels/cuda/convolution/cudnn/planner.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/convolution/cudnn/autotune.h"

namespace muster::kernels::cuda {
namespace {

constexpr int64_t kMaxProposals = 64;
constexpr size_t kMaxCandidates = 8;

constexpr uint32_t Bit(CudnnNumericalNote note) { return uint32_t{1} << note; }

// Engines that are less precise than float32 sums of the operands' products.
constexpr uint32_t kImpreciseNotes =
    Bit(kCudnnNoteDownConvertInputs) | Bit(kCudnnNoteReducedPrecisionReduction) |
    Bit(kCudnnNoteFft) | Bit(kCudnnNoteWinograd) | Bit(kCudnnNoteWinograd4x4) |
    Bit(kCudnnNoteWinograd6x6) | Bit(kCudnnNoteWinograd13x13);

const char* NameOf(ConvolutionDirection direction) {
  switch (direction) {
    case ConvolutionDirection::kForward:
      return "forward";
    case ConvolutionDirection::kBackwardData:
      return "data";
    case ConvolutionDirection::kBackwardWeights:
      return "weights";
  }
  return "";
}

const char* NameOf(CudnnOutput output) {
  switch (output) {
    case CudnnOutput::kDirect:
      return "direct";
    case CudnnOutput::kCast:
      return "cast";
  }
  return "";
}

}  // namespace

struct CudnnPlanner::Problem {
  CudnnGraph graph;
  absl::Status status;
  CudnnOutput output;
  std::vector<int64_t> ids;
  std::string text;  // key in the plan cache
};

DataType CudnnPlanner::OutputType(ConvolutionDirection direction) const {
  switch (direction) {
    case ConvolutionDirection::kForward:
      return options_.y_type;
    case ConvolutionDirection::kBackwardData:
      return options_.x_type;
    case ConvolutionDirection::kBackwardWeights:
      break;
  }
  return options_.compute_type;
}

std::vector<CudnnPlanner::Formulation> CudnnPlanner::FormulationsOf(
    const CudnnOperation& operation) const {
  if (operation.shift) return {{CudnnOutput::kDirect, false}};
  if (OutputType(operation.direction) == options_.compute_type) {
    return {{CudnnOutput::kDirect, true}};
  }
  return {{CudnnOutput::kDirect, false}, {CudnnOutput::kCast, true}};
}

CudnnPlanner::Problem CudnnPlanner::MakeProblem(const CudnnOperation& operation,
                                                CudnnOutput output) const {
  const ConvolutionDirection direction = operation.direction;
  const DataType compute = options_.compute_type;
  const DataType written = output == CudnnOutput::kCast ? compute : OutputType(direction);
  Problem problem{CudnnGraph(target_), {}, output, {}, {}};
  CudnnGraph& graph = problem.graph;

  const CudnnGraph::TensorShape x_shape = {operation.samples, shape_.in_channels, shape_.height,
                                           shape_.width};
  const CudnnGraph::TensorShape w_shape = {shape_.out_channels, shape_.in_channels / shape_.groups,
                                           shape_.kernel, shape_.kernel};
  const CudnnGraph::TensorShape y_shape = {operation.samples, shape_.out_channels,
                                           shape_.out_height(), shape_.out_width()};
  // A tensor in memory: the output is of type `written`, operands are of the compute type.
  const auto add = [&](const CudnnGraph::TensorShape& shape, ConvolutionDirection written_by) {
    return graph.AddTensor(direction == written_by ? written : compute, shape);
  };
  const int64_t x = add(x_shape, ConvolutionDirection::kBackwardData);
  const int64_t w = add(w_shape, ConvolutionDirection::kBackwardWeights);
  const int64_t y = add(y_shape, ConvolutionDirection::kForward);
  problem.ids = {x, w, y};
  const auto add_sums = [&] {
    return graph.AddTensor(DataType::kFloat32, y_shape, /*is_virtual=*/true);
  };

  if (operation.shift) {
    int64_t sums = add_sums();
    graph.AddConvolution(direction, shape_, x, w, sums);
    const int64_t shift = graph.AddTensor(compute, {1, shape_.out_channels, 1, 1});
    problem.ids.push_back(shift);
    if (operation.addend) {
      const int64_t addend = graph.AddTensor(compute, y_shape);
      problem.ids.push_back(addend);
      const int64_t added = add_sums();
      graph.AddPointwise(kCudnnPointwiseAdd, sums, addend, added);
      sums = added;
    }
    const int64_t shifted = operation.relu ? add_sums() : y;
    graph.AddPointwise(kCudnnPointwiseAdd, sums, shift, shifted);
    if (operation.relu) graph.AddPointwise(kCudnnPointwiseRelu, shifted, 0, y);
  } else {
    graph.AddConvolution(direction, shape_, x, w, y);
  }
  problem.status = graph.Finish();
  problem.text =
      absl::StrCat(NameOf(direction), " samples ", operation.samples, " of ", shape_.height, "x",
                   shape_.width, "x", shape_.in_channels, " to ", shape_.out_channels, " kernel ",
                   shape_.kernel, " stride ", shape_.stride, " padding ", shape_.padding,
                   " groups ", shape_.groups, " ", kernels::NameOf(compute), " to ",
                   kernels::NameOf(written), " ", NameOf(output), operation.shift ? " shift" : "",
                   operation.addend ? " addend" : "", operation.relu ? " relu" : "",
                   rounds_to_tf32() ? " tf32" : "",
                   numerics_.deterministic ? "" : " nondeterministic");
  return problem;
}

bool CudnnPlanner::Allows(const CudnnProposal& proposal) const {
  uint32_t forbidden = kImpreciseNotes;
  if (numerics_.deterministic) forbidden |= Bit(kCudnnNoteNondeterministic);
  // Tensor cores have no float32: they round operands to TF32.
  if (options_.compute_type == DataType::kFloat32 && !numerics_.tf32) {
    forbidden |= Bit(kCudnnNoteTensorCore);
  }
  return (proposal.numerical_notes & forbidden) == 0;
}

absl::StatusOr<CudnnChoice> CudnnPlanner::Build(const Problem& problem,
                                                const CudnnEngineChoice& engine,
                                                int64_t max_workspace_bytes) {
  absl::StatusOr<CudnnPlan> plan = CudnnPlan::Make(problem.graph, engine);
  if (!plan.ok()) return plan.status();
  if (plan->workspace_bytes() > max_workspace_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cuDNN: the plan needs ", plan->workspace_bytes(),
                     " bytes of workspace, the limit is ", max_workspace_bytes));
  }
  return CudnnChoice{*std::move(plan), engine, problem.output, problem.ids};
}

// The first engines for which a plan can be built: precompiled ones or, if there is none, those
// that cuDNN compiles at run time.
std::vector<CudnnChoice> CudnnPlanner::Candidates(const Problem& problem,
                                                  const Formulation& formulation,
                                                  int64_t max_workspace_bytes) const {
  std::vector<CudnnProposal> proposals = problem.graph.Propose(kCudnnHeuristicsA, kMaxProposals);
  for (CudnnProposal& proposal : problem.graph.Propose(kCudnnHeuristicsFallback, kMaxProposals)) {
    proposals.push_back(std::move(proposal));
  }
  std::vector<CudnnChoice> candidates;
  for (const bool compiled : {false, true}) {
    if (compiled && !(formulation.compiled_at_run_time && candidates.empty())) break;
    for (size_t rank = 0; rank < proposals.size(); ++rank) {
      const CudnnProposal& proposal = proposals[rank];
      if (candidates.size() == kMaxCandidates) break;
      if (!Allows(proposal) || proposal.compiled_at_run_time != compiled) continue;
      absl::StatusOr<CudnnChoice> candidate = Build(problem, proposal.choice, max_workspace_bytes);
      if (!candidate.ok()) continue;
      candidate->rank = static_cast<int>(rank);
      candidate->compiled_at_run_time = compiled;
      candidates.push_back(*std::move(candidate));
    }
  }
  return candidates;
}

absl::StatusOr<CudnnChoice> CudnnPlanner::Choose(const CudnnOperation& operation,
                                                 const CudnnChoice* similar,
                                                 int64_t max_workspace_bytes,
                                                 Measure measure) const {
  const std::vector<Formulation> formulations = FormulationsOf(operation);
  std::vector<Problem> problems;
  for (const Formulation& formulation : formulations) {
    problems.push_back(MakeProblem(operation, formulation.output));
  }
  for (const Problem& problem : problems) {
    if (!problem.status.ok() || similar == nullptr || similar->output != problem.output) continue;
    absl::StatusOr<CudnnChoice> choice = Build(problem, similar->engine, max_workspace_bytes);
    if (choice.ok()) return choice;
  }
  for (const Problem& problem : problems) {
    CudnnEngineChoice kept;
    const std::optional<std::string> text = plans_.Find(problem.text);
    if (!problem.status.ok() || !text.has_value() || !kept.Parse(*text)) continue;
    absl::StatusOr<CudnnChoice> choice = Build(problem, kept, max_workspace_bytes);
    if (choice.ok()) return choice;
  }

  absl::Status error;
  for (size_t i = 0; i < problems.size(); ++i) {
    error.Update(problems[i].status);
    if (!problems[i].status.ok()) continue;
    std::vector<CudnnChoice> candidates =
        Candidates(problems[i], formulations[i], max_workspace_bytes);
    if (candidates.empty()) continue;
    const absl::StatusOr<size_t> fastest = FindFastest(
        candidates.size(),
        [&](size_t candidate, int runs) { return measure(candidates[candidate], runs); });
    error.Update(fastest.status());
    if (!fastest.ok()) continue;
    CudnnChoice& best = candidates[*fastest];
    plans_.Put(problems[i].text, best.engine.Text());
    return std::move(best);
  }
  if (!error.ok()) return error;
  return absl::UnimplementedError(absl::StrCat("cuDNN has no engine for the convolution ",
                                               problems.front().text, " with at most ",
                                               max_workspace_bytes, " bytes of workspace"));
}

}  // namespace muster::kernels::cuda
