#include "trainer/strategy/pipeline/stage_cuts.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "common/pipeline/balance.h"
#include "common/status.h"
#include "common/time/now.h"
#include "common/time/time.h"
#include "glog/logging.h"
#include "trainer/graph/compiled_plan.h"
#include "trainer/graph/cut.h"
#include "trainer/graph/plan_timer.h"

namespace muster::pipeline {
namespace {

using nn::Graph;
using nn::NodeId;

// Number of measured steps, after a warm-up step that touches all memory.
constexpr int kMeasuredSteps = 5;
constexpr uint64_t kSeed = 1;

// First node of each segment between two possible cuts, followed by the number of nodes.
std::vector<NodeId> SegmentBegins(const Graph& graph) {
  std::vector<NodeId> begins = nn::CutPoints(graph);
  begins.insert(begins.begin(), 0);
  begins.push_back(static_cast<NodeId>(graph.nodes.size()));
  return begins;
}

// Fills memory with random values of magnitude 1 to 2 in both bfloat16 and float32: each pair of
// bytes has a sign, an exponent and upper mantissa bits. Equal values would become zero in batch
// norm and lead to denormal gradients, which processors handle many times slower.
absl::Status Fill(kernels::Device& device, void* data, size_t bytes) {
  std::vector<uint16_t> values(bytes / sizeof(uint16_t));
  std::minstd_rand random(kSeed);
  for (uint16_t& value : values) value = static_cast<uint16_t>(0x3f80 | (random() >> 8 & 0x807f));
  device.CopyToDevice(data, values.data(), values.size() * sizeof(uint16_t));
  return device.Synchronize();
}

// A segment of the model with its arrays, for timing steps.
class MeasuredSegment {
 public:
  static absl::StatusOr<std::unique_ptr<MeasuredSegment>> Make(const Graph& graph,
                                                               nn::CompileOptions compiling) {
    std::unique_ptr<MeasuredSegment> segment(new MeasuredSegment);
    ASSIGN_OR_RETURN(segment->plan_, nn::CompiledPlan::Make(graph, compiling));
    nn::CompiledPlan& plan = *segment->plan_;
    segment->samples_ = compiling.max_batch;
    kernels::Device& device = plan.device();
    const size_t parameter_bytes = plan.parameter_elements() * sizeof(float);
    constexpr char kUse[] = "measuring layers";
    ASSIGN_OR_RETURN(segment->parameters_, device.Allocate(parameter_bytes, kUse));
    ASSIGN_OR_RETURN(segment->gradients_, device.Allocate(parameter_bytes, kUse));
    ASSIGN_OR_RETURN(segment->buffers_,
                     device.Allocate(plan.buffer_elements() * sizeof(float), kUse));
    plan.Bind(segment->parameters_.as<float>(), segment->gradients_.as<float>(),
              segment->buffers_.as<float>());
    plan.Initialize(kSeed);
    if (plan.input() != nullptr) {
      const nn::ImageShape& image = graph.input;
      RETURN_IF_ERROR(Fill(device, plan.input(),
                           segment->samples_ * sizeof(float) *
                               static_cast<size_t>(image.height * image.width * image.channels)));
    }
    return segment;
  }

  nn::CompiledPlan& plan() { return *plan_; }

  absl::Status Step(bool ends_model) {
    nn::CompiledPlan& plan = *plan_;
    for (const nn::BoundaryTensor& tensor : plan.boundary_inputs()) {
      RETURN_IF_ERROR(Fill(plan.device(), tensor.data, samples_ * tensor.sample_bytes));
    }
    plan.Forward(samples_, /*training=*/true, {.seed = kSeed});
    if (ends_model) {
      plan.Loss(samples_, /*label_smoothing=*/0, /*scale=*/1.0 / samples_);
    }
    for (const nn::BoundaryTensor& tensor : plan.boundary_outputs()) {
      if (tensor.gradient == nullptr) continue;
      RETURN_IF_ERROR(Fill(plan.device(), tensor.gradient, samples_ * tensor.sample_bytes));
    }
    plan.Backward(samples_, nullptr);
    return plan.device().Synchronize();
  }

  // Time per element for accumulating a micro-batch's gradients.
  absl::StatusOr<double> SecondsPerGradient() {
    nn::CompiledPlan& plan = *plan_;
    const size_t count = plan.parameter_elements();
    if (count == 0) return 0;
    std::vector<double> seconds;
    for (int step = 0; step < kMeasuredSteps; ++step) {
      const SteadyTime start = Now().steady;
      plan.device().kernels().accumulate(kernels::DataType::kFloat32, count,
                                         parameters_.as<float>(), gradients_.as<float>());
      RETURN_IF_ERROR(plan.device().Synchronize());
      seconds.push_back(absl::ToDoubleSeconds(Now().steady - start));
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2] / static_cast<double>(count);
  }

 private:
  MeasuredSegment() = default;
  uint32_t samples_ = 0;
  std::unique_ptr<nn::CompiledPlan> plan_;
  kernels::DeviceMemory parameters_, gradients_, buffers_;
};

// Measures the seconds of forward and backward of one micro-batch for segments [first, end).
absl::Status MeasureSegments(const Graph& graph, const std::vector<NodeId>& begins, size_t first,
                             size_t end, const nn::CompileOptions& compiling,
                             absl::Span<double> seconds) {
  if (first == end) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Graph piece, nn::CutGraph(graph, begins[first], begins[end]));
  ASSIGN_OR_RETURN(const auto segment, MeasuredSegment::Make(piece, compiling));
  const bool ends_model = begins[end] == begins.back();
  RETURN_IF_ERROR(segment->Step(ends_model));
  nn::PlanTimer timer(&segment->plan());
  for (int step = 0; step < kMeasuredSteps; ++step) {
    timer.BeginStep();
    RETURN_IF_ERROR(segment->Step(ends_model));
    timer.EndStep();
  }
  const nn::PlanTimer::Times times = timer.Medians();
  ASSIGN_OR_RETURN(const double per_gradient, segment->SecondsPerGradient());
  const std::vector<nn::OperationDescription> operations = segment->plan().Describe();
  for (size_t i = 0; i < operations.size(); ++i) {
    const auto behind = std::upper_bound(begins.begin(), begins.end(), operations[i].first_node);
    const auto of = static_cast<size_t>(behind - begins.begin()) - 1;
    seconds[of] += absl::ToDoubleSeconds(times.forward[i] + times.backward[i]) +
                   per_gradient * static_cast<double>(operations[i].parameters);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCuts(const Graph& graph, uint32_t stages, const std::vector<std::string>& cuts) {
  NodeId before = 0;
  for (const std::string& cut : cuts) {
    ASSIGN_OR_RETURN(const NodeId node, nn::FindCutPoint(graph, cut));
    if (node <= before) {
      return absl::InvalidArgumentError(absl::StrCat("train.strategy.pipeline.cuts: ", cut,
                                                     " does not come after the previous cut"));
    }
    before = node;
  }
  const size_t segments = nn::CutPoints(graph).size() + 1;
  if (segments >= stages) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("train.strategy.pipeline.stages: ", stages,
                                                 " stages, but the model can be cut into at most ",
                                                 segments));
}

absl::StatusOr<std::vector<NodeId>> StageBegins(const Graph& graph,
                                                const train::PipelinePlace& place,
                                                const std::vector<std::string>& cuts,
                                                const nn::CompileOptions& compiling,
                                                collectives::Communicator& world) {
  RETURN_IF_ERROR(CheckCuts(graph, place.stages, cuts));
  std::vector<NodeId> begins = {0};
  for (const std::string& cut : cuts) {
    ASSIGN_OR_RETURN(const NodeId node, nn::FindCutPoint(graph, cut));
    begins.push_back(node);
  }
  const auto nodes = static_cast<NodeId>(graph.nodes.size());
  if (!cuts.empty() || place.stages == 1) {
    begins.push_back(nodes);
    return begins;
  }
  const std::vector<NodeId> segments = SegmentBegins(graph);
  const size_t count = segments.size() - 1;
  std::vector<double> seconds(count);
  RETURN_IF_ERROR(MeasureSegments(graph, segments, count * place.stage / place.stages,
                                  count * (place.stage + 1) / place.stages, compiling,
                                  absl::MakeSpan(seconds)));
  if (place.replica > 0) seconds.assign(count, 0);
  RETURN_IF_ERROR(world
                      .AllReduce(seconds.data(), seconds.data(), count,
                                 collectives::DataType::kFloat64, collectives::ReduceOp::kSum)
                      ->Wait());
  ASSIGN_OR_RETURN(const std::vector<size_t> chosen, BalancedCuts(seconds, place.stages));
  for (const size_t segment : chosen) begins.push_back(segments[segment]);
  begins.push_back(nodes);
  const std::vector<double> costs = StageCosts(seconds, chosen);
  const double mean = std::accumulate(costs.begin(), costs.end(), 0.0) / place.stages;
  LOG_IF(INFO, world.rank() == 0) << "pipeline cuts chosen by measurement: the slowest stage takes "
                                  << *std::max_element(costs.begin(), costs.end()) / mean
                                  << " times the mean of " << mean << " s per micro-batch";
  return begins;
}

}  // namespace muster::pipeline
