#include "kernels/cuda/convolution/cudnn/graph.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace muster::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 16;

// More than the knob types of cuDNN.
constexpr int kMaxKnobs = 64;

// The descriptor type of a convolution operation, and its attributes.
struct OperationAttributes {
  CudnnDescriptorType type;
  CudnnAttribute convolution, x, w, y, alpha, beta;
};
constexpr OperationAttributes AttributesOf(ConvolutionDirection direction) {
  switch (direction) {
    case ConvolutionDirection::kBackwardData:
      return {kCudnnConvolutionBackwardData, kCudnnBackwardDataConvolution, kCudnnBackwardDataDx,
              kCudnnBackwardDataW,           kCudnnBackwardDataDy,          kCudnnBackwardDataAlpha,
              kCudnnBackwardDataBeta};
    case ConvolutionDirection::kBackwardWeights:
      return {kCudnnConvolutionBackwardFilter, kCudnnBackwardFilterConvolution,
              kCudnnBackwardFilterX,           kCudnnBackwardFilterDw,
              kCudnnBackwardFilterDy,          kCudnnBackwardFilterAlpha,
              kCudnnBackwardFilterBeta};
    case ConvolutionDirection::kForward:
      break;
  }
  return {kCudnnConvolutionForward, kCudnnForwardConvolution, kCudnnForwardX,   kCudnnForwardW,
          kCudnnForwardY,           kCudnnForwardAlpha,       kCudnnForwardBeta};
}

// Reads the engine of a configuration that the heuristics returned.
absl::StatusOr<CudnnProposal> ReadProposal(const Cudnn& cudnn, const CudnnDescriptor& config) {
  CudnnProposal proposal;
  const CudnnDescriptor engine(cudnn, kCudnnEngine);
  CudnnBackendDescriptor raw = engine.get();
  absl::Status status = config.Get(kCudnnConfigEngine, kCudnnTypeDescriptor, raw);
  status.Update(engine.Get(kCudnnEngineIndex, kCudnnTypeInt64, proposal.choice.engine));
  if (!status.ok()) return status;

  std::array<CudnnNumericalNote, 32> notes;
  const absl::StatusOr<int64_t> note_count = engine.GetBytes(
      kCudnnEngineNumericalNotes, kCudnnTypeNumericalNote, notes.size(), notes.data());
  if (!note_count.ok()) return note_count.status();
  for (int64_t i = 0; i < std::min<int64_t>(*note_count, notes.size()); ++i) {
    proposal.numerical_notes |= uint32_t{1} << notes[i];
  }
  std::array<CudnnBehaviorNote, 32> behavior;
  const absl::StatusOr<int64_t> behavior_count = engine.GetBytes(
      kCudnnEngineBehaviorNotes, kCudnnTypeBehaviorNote, behavior.size(), behavior.data());
  if (!behavior_count.ok()) return behavior_count.status();
  for (int64_t i = 0; i < std::min<int64_t>(*behavior_count, behavior.size()); ++i) {
    proposal.compiled_at_run_time |= behavior[i] == kCudnnNoteRuntimeCompilation;
  }

  std::vector<CudnnDescriptor> knobs;
  std::vector<CudnnBackendDescriptor> raw_knobs;
  for (int i = 0; i < kMaxKnobs; ++i) {
    raw_knobs.push_back(knobs.emplace_back(cudnn, kCudnnKnobChoice).get());
  }
  const absl::StatusOr<int64_t> knob_count =
      config.GetBytes(kCudnnConfigKnobChoices, kCudnnTypeDescriptor, kMaxKnobs, raw_knobs.data());
  if (!knob_count.ok()) return knob_count.status();
  knobs.erase(knobs.begin() + std::min<int64_t>(*knob_count, kMaxKnobs), knobs.end());
  for (const CudnnDescriptor& knob : knobs) {
    int32_t type = 0;  // has the size of a C enumeration
    int64_t value = 0;
    status.Update(knob.Get(kCudnnKnobType, kCudnnTypeKnob, type));
    status.Update(knob.Get(kCudnnKnobValue, kCudnnTypeInt64, value));
    proposal.choice.knobs.emplace_back(type, value);
  }
  if (!status.ok()) return status;
  return proposal;
}

}  // namespace

CudnnDescriptor::CudnnDescriptor(const Cudnn& cudnn, CudnnDescriptorType type) : cudnn_(&cudnn) {
  status_ = cudnn.StatusOf(cudnn.create_descriptor(type, &descriptor_),
                           absl::StrCat("descriptor ", type));
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : cudnn_(other.cudnn_),
      descriptor_(std::exchange(other.descriptor_, nullptr)),
      status_(std::move(other.status_)) {}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(cudnn_, other.cudnn_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(status_, other.status_);
  return *this;
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnn_->destroy_descriptor(descriptor_);
}

CudnnDescriptor& CudnnDescriptor::SetBytes(CudnnAttribute attribute, CudnnAttributeType type,
                                           int64_t count, const void* values) {
  if (!status_.ok()) return *this;
  status_ = cudnn_->StatusOf(cudnn_->set_attribute(descriptor_, attribute, type, count, values),
                             absl::StrCat("attribute ", attribute));
  return *this;
}

absl::Status CudnnDescriptor::Finalize(absl::string_view what) {
  if (!status_.ok()) return status_;
  return cudnn_->StatusOf(cudnn_->finalize(descriptor_), what);
}

absl::StatusOr<int64_t> CudnnDescriptor::GetBytes(CudnnAttribute attribute, CudnnAttributeType type,
                                                  int64_t max_count, void* values) const {
  if (!status_.ok()) return status_;
  int64_t count = 0;
  const CudnnStatus code =
      cudnn_->get_attribute(descriptor_, attribute, type, max_count, &count, values);
  if (code != kCudnnSuccess) return cudnn_->StatusOf(code, absl::StrCat("attribute ", attribute));
  return count;
}

absl::StatusOr<CudnnDescriptor> MakeDeviceProperties(const Cudnn& cudnn, const std::string& json) {
  CudnnDescriptor properties(cudnn, kCudnnDeviceProperties);
  properties.SetBytes(kCudnnDevicePropertiesJson, kCudnnTypeChar,
                      static_cast<int64_t>(json.size()) + 1, json.c_str());
  const absl::Status status = properties.Finalize("device properties");
  if (!status.ok()) return status;
  return properties;
}

std::string CudnnEngineChoice::Text() const {
  return absl::StrCat(engine, ":", absl::StrJoin(knobs, ",", absl::PairFormatter("=")));
}

bool CudnnEngineChoice::Parse(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  knobs.clear();
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &engine)) return false;
  for (const absl::string_view knob : absl::StrSplit(parts[1], ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> sides = absl::StrSplit(knob, '=');
    auto& [type, value] = knobs.emplace_back();
    if (sides.size() != 2 || !absl::SimpleAtoi(sides[0], &type)) return false;
    if (!absl::SimpleAtoi(sides[1], &value)) return false;
  }
  return Text() == text;
}

void CudnnGraph::Keep(CudnnDescriptor descriptor, absl::string_view what) {
  status_.Update(descriptor.Finalize(what));
  kept_.push_back(std::move(descriptor));
}

int64_t CudnnGraph::AddTensor(DataType type, const TensorShape& shape, bool is_virtual) {
  const auto [samples, channels, height, width] = shape;
  const int64_t id = static_cast<int64_t>(tensors_.size()) + 1;
  CudnnDescriptor& tensor = tensors_.emplace_back(*target_.cudnn, kCudnnTensor);
  tensor.Set(kCudnnTensorDataType, kCudnnTypeDataType, CudnnTypeOf(type))
      .Set(kCudnnTensorDimensions, {samples, channels, height, width})
      .Set(kCudnnTensorStrides, {height * width * channels, 1, width * channels, channels})
      .Set(kCudnnTensorId, id)
      .Set(kCudnnTensorAlignment, kAlignment);
  if (is_virtual) tensor.Set(kCudnnTensorVirtual, kCudnnTypeBoolean, true);
  status_.Update(tensor.Finalize("tensor"));
  return id;
}

void CudnnGraph::AddConvolution(ConvolutionDirection direction, const ConvolutionShape& shape,
                                int64_t x, int64_t w, int64_t y) {
  const Cudnn& cudnn = *target_.cudnn;
  CudnnDescriptor convolution(cudnn, kCudnnConvolution);
  convolution.Set(kCudnnConvolutionDimensions, int64_t{2})
      .Set(kCudnnConvolutionPrecision, kCudnnTypeDataType, kCudnnFloat)
      .Set(kCudnnConvolutionMode, kCudnnTypeConvolutionMode, kCudnnCrossCorrelation)
      .Set(kCudnnConvolutionPrePaddings, {shape.padding, shape.padding})
      .Set(kCudnnConvolutionPostPaddings, {shape.padding, shape.padding})
      .Set(kCudnnConvolutionDilations, {1, 1})
      .Set(kCudnnConvolutionStrides, {shape.stride, shape.stride});
  const CudnnBackendDescriptor raw = convolution.get();
  Keep(std::move(convolution), "convolution");

  const OperationAttributes attributes = AttributesOf(direction);
  CudnnDescriptor operation(cudnn, attributes.type);
  operation.Set(attributes.convolution, kCudnnTypeDescriptor, raw)
      .Set(attributes.x, kCudnnTypeDescriptor, TensorOf(x))
      .Set(attributes.w, kCudnnTypeDescriptor, TensorOf(w))
      .Set(attributes.y, kCudnnTypeDescriptor, TensorOf(y))
      .Set(attributes.alpha, kCudnnTypeFloat, 1.0f)
      .Set(attributes.beta, kCudnnTypeFloat, 0.0f);
  operations_.push_back(operation.get());
  Keep(std::move(operation), "convolution operation");
}

void CudnnGraph::AddPointwise(CudnnPointwiseMode mode, int64_t x, int64_t b, int64_t y) {
  const Cudnn& cudnn = *target_.cudnn;
  CudnnDescriptor pointwise(cudnn, kCudnnPointwise);
  pointwise.Set(kCudnnPointwiseMode, kCudnnTypePointwiseMode, mode)
      .Set(kCudnnPointwisePrecision, kCudnnTypeDataType, kCudnnFloat);
  if (mode == kCudnnPointwiseRelu) {
    pointwise.Set(kCudnnPointwiseNanPropagation, kCudnnTypeNanPropagation, kCudnnPropagateNan);
  }
  const CudnnBackendDescriptor raw = pointwise.get();
  Keep(std::move(pointwise), "pointwise");

  CudnnDescriptor operation(cudnn, kCudnnPointwiseOperation);
  operation.Set(kCudnnPointwiseDescriptor, kCudnnTypeDescriptor, raw)
      .Set(kCudnnPointwiseX, kCudnnTypeDescriptor, TensorOf(x))
      .Set(kCudnnPointwiseY, kCudnnTypeDescriptor, TensorOf(y));
  if (b != 0) operation.Set(kCudnnPointwiseB, kCudnnTypeDescriptor, TensorOf(b));
  operations_.push_back(operation.get());
  Keep(std::move(operation), "pointwise operation");
}

absl::Status CudnnGraph::Finish() {
  CudnnDescriptor graph(*target_.cudnn, kCudnnOperationGraph);
  graph.SetBytes(kCudnnGraphOperations, kCudnnTypeDescriptor,
                 static_cast<int64_t>(operations_.size()), operations_.data());
  if (target_.handle != nullptr) graph.Set(kCudnnGraphHandle, kCudnnTypeHandle, target_.handle);
  graph_ = graph.get();
  Keep(std::move(graph), "operation graph");
  return status_;
}

std::vector<CudnnProposal> CudnnGraph::Propose(CudnnHeuristicsMode mode, int64_t max_count) const {
  const Cudnn& cudnn = *target_.cudnn;
  CudnnDescriptor heuristics(cudnn, kCudnnEngineHeuristics);
  heuristics.Set(kCudnnHeuristicsGraph, kCudnnTypeDescriptor, graph_)
      .Set(kCudnnHeuristicsMode, kCudnnTypeHeuristicsMode, mode);
  if (target_.device_properties != nullptr) {
    heuristics.Set(kCudnnHeuristicsDeviceProperties, kCudnnTypeDescriptor,
                   target_.device_properties);
  }
  if (!heuristics.Finalize("heuristics").ok()) return {};
  std::vector<CudnnDescriptor> configs;
  std::vector<CudnnBackendDescriptor> raw;
  for (int64_t i = 0; i < max_count; ++i) {
    raw.push_back(configs.emplace_back(cudnn, kCudnnEngineConfig).get());
  }
  const absl::StatusOr<int64_t> count =
      heuristics.GetBytes(kCudnnHeuristicsResults, kCudnnTypeDescriptor, max_count, raw.data());
  std::vector<CudnnProposal> proposals;
  for (int64_t i = 0; count.ok() && i < std::min(*count, max_count); ++i) {
    absl::StatusOr<CudnnProposal> proposal = ReadProposal(cudnn, configs[i]);
    if (proposal.ok()) proposals.push_back(*std::move(proposal));
  }
  return proposals;
}

absl::StatusOr<CudnnPlan> CudnnPlan::Make(const CudnnGraph& graph,
                                          const CudnnEngineChoice& choice) {
  const CudnnTarget& target = graph.target_;
  const Cudnn& cudnn = *target.cudnn;
  CudnnDescriptor engine(cudnn, kCudnnEngine);
  engine.Set(kCudnnEngineGraph, kCudnnTypeDescriptor, graph.graph_)
      .Set(kCudnnEngineIndex, choice.engine);
  if (target.device_properties != nullptr) {
    engine.Set(kCudnnEngineDeviceProperties, kCudnnTypeDescriptor, target.device_properties);
  }
  absl::Status status = engine.Finalize("engine");

  std::vector<CudnnDescriptor> knobs;
  std::vector<CudnnBackendDescriptor> raw_knobs;
  for (const auto& [type, value] : choice.knobs) {
    CudnnDescriptor& knob = knobs.emplace_back(cudnn, kCudnnKnobChoice);
    knob.Set(kCudnnKnobType, kCudnnTypeKnob, static_cast<int32_t>(type))
        .Set(kCudnnKnobValue, value);
    status.Update(knob.Finalize("knob"));
    raw_knobs.push_back(knob.get());
  }
  CudnnDescriptor config(cudnn, kCudnnEngineConfig);
  config.Set(kCudnnConfigEngine, engine);
  if (!knobs.empty()) {
    config.SetBytes(kCudnnConfigKnobChoices, kCudnnTypeDescriptor,
                    static_cast<int64_t>(raw_knobs.size()), raw_knobs.data());
  }
  if (status.ok()) status = config.Finalize("engine configuration");

  CudnnDescriptor plan(cudnn, kCudnnExecutionPlan);
  plan.Set(kCudnnPlanConfig, config);
  if (target.handle != nullptr) plan.Set(kCudnnPlanHandle, kCudnnTypeHandle, target.handle);
  if (target.device_properties != nullptr) {
    plan.Set(kCudnnPlanDeviceProperties, kCudnnTypeDescriptor, target.device_properties);
  }
  if (status.ok()) status = plan.Finalize("execution plan");
  int64_t workspace_bytes = 0;
  if (status.ok()) {
    status = plan.Get(kCudnnPlanWorkspaceBytes, kCudnnTypeInt64, workspace_bytes);
  }
  if (!status.ok()) return status;
  return CudnnPlan(cudnn, std::move(plan), workspace_bytes);
}

absl::Status CudnnPlan::Execute(CudnnHandle handle, absl::Span<const int64_t> ids,
                                absl::Span<void* const> pointers, void* workspace) const {
  CudnnDescriptor pack(*cudnn_, kCudnnVariantPack);
  pack.Set(kCudnnPackIds, ids)
      .SetBytes(kCudnnPackPointers, kCudnnTypeVoidPointer, static_cast<int64_t>(pointers.size()),
                pointers.data())
      .Set(kCudnnPackWorkspace, kCudnnTypeVoidPointer, workspace);
  const absl::Status status = pack.Finalize("variant pack");
  if (!status.ok()) return status;
  return cudnn_->StatusOf(cudnn_->execute(handle, plan_.get(), pack.get()), "execution");
}

}  // namespace muster::kernels::cuda
