// The Plan implementation that Compile returns. Most callers use plan.h; code that times single
// operations uses this header.
#ifndef MUSTER_TRAINER_GRAPH_COMPILED_PLAN_H_
#define MUSTER_TRAINER_GRAPH_COMPILED_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/kernel_table.h"
#include "trainer/graph/memory.h"
#include "trainer/graph/operation.h"
#include "trainer/graph/plan.h"
#include "trainer/graph/program.h"

namespace muster::nn {

class CompiledPlan final : public Plan {
 public:
  // See Compile.
  static absl::StatusOr<std::unique_ptr<CompiledPlan>> Make(const Graph& graph,
                                                            const CompileOptions& options);

  absl::Span<const ParameterInfo> parameters() const override {
    return program_.parameters.infos();
  }
  absl::Span<const ParameterInfo> buffers() const override { return program_.buffers.infos(); }
  size_t parameter_elements() const override { return program_.parameters.elements(); }
  size_t buffer_elements() const override { return program_.buffers.elements(); }
  size_t arena_bytes() const override { return memory_->arena.bytes(); }
  size_t slot_bytes() const override { return memory_->slot_bytes; }
  std::string layout_digest() const override;
  std::vector<OperationDescription> Describe() const override;

  void Bind(float* parameters, float* gradients, float* buffers) override;
  void set_statistics_reducer(StatisticsReducer* reducer) override;
  absl::Status Import(const ParameterInfo& parameter, absl::Span<const float> values) override;
  absl::Status Export(const ParameterInfo& parameter, absl::Span<float> values) const override;
  void Initialize(uint64_t seed) override;
  absl::Status ImportInto(float* flat, const ParameterInfo& parameter,
                          absl::Span<const float> values) const override;
  absl::Status ExportFrom(const float* flat, const ParameterInfo& parameter,
                          absl::Span<float> values) const override;
  absl::Status ExportTensor(const float* tensor, const ParameterInfo& parameter,
                            absl::Span<float> values) const override;

  kernels::Device& device() const override { return *options_.device; }
  absl::Span<const BoundaryTensor> boundary_inputs() const override { return boundary_inputs_; }
  absl::Span<const BoundaryTensor> boundary_outputs() const override { return boundary_outputs_; }
  void SelectSlot(uint32_t slot) override;
  float* input() override {
    return program_.input == nullptr ? nullptr : static_cast<float*>(program_.input->data);
  }
  int32_t* labels() override { return memory_->labels; }

  using Plan::Forward;
  void SetStep(const StepContext& context) override;
  void CopyDraw(const kernels::RandomDraw* draw) override;
  void Forward(uint32_t samples, bool training) override;
  void QueueLoss(uint32_t samples, const LossOptions& options, LossResult* result) override;
  LossResult Loss(uint32_t samples, double label_smoothing, double scale) override;
  float* output_gradient() override {
    return program_.logits == nullptr ? nullptr : static_cast<float*>(program_.logits->gradient);
  }
  void Backward(uint32_t samples, const std::function<void(size_t offset)>& ready) override;
  absl::Span<const float> logits(uint32_t samples) const override;
  absl::Duration kernel_time() const override { return kernel_time_; }

  // Called before and after each pass of an operation: "forward", "backward recomputation",
  // "backward activation", "backward parameters", "backward data". Not called for passes that a
  // step skips.
  using Observer = std::function<void(const Operation&, const char* pass, bool done)>;
  void Observe(Observer observer) { observer_ = std::move(observer); }
  uint32_t max_batch() const { return options_.max_batch; }
  // Tensors that no operation produces: the batch, or the inputs from earlier stages.
  std::vector<const Tensor*> inputs() const;
  // In the order of Describe.
  const std::vector<std::unique_ptr<Operation>>& operations() const { return program_.operations; }

 private:
  CompiledPlan(Program program, const CompileOptions& options);

  void PlanReadiness();
  // Allocates the arrays of casts, and collects the ranges of gradients to be cast.
  absl::Status AllocateCasts();
  // Casts the gradients in the ranges before `end` that have not been cast in this pass.
  void CastGradients(size_t end);
  void ZeroCastGradients(const Operation::Range& range);
  // Updates the pointers whose addresses differ per slot.
  void UpdateSlotPointers();
  void ChooseBlocks(const kernels::PhiloxKey& key);
  void RecomputeBefore(size_t index);
  void BackwardOperation(size_t index, const std::function<void(size_t offset)>& ready);
  void ContributeGradients(size_t index);
  const kernels::KernelTable& Kernels() const { return device().kernels(); }
  template <typename Pass>
  void Run(Operation& operation, const char* pass_name, const Pass& pass);
  template <typename Phase>
  void Measure(const Phase& phase);

  Program program_;
  const CompileOptions options_;
  std::unique_ptr<PlacedMemory> memory_;
  std::vector<BoundaryTensor> boundary_inputs_;
  std::vector<BoundaryTensor> boundary_outputs_;
  uint32_t slot_ = 0;
  std::vector<kernels::PhiloxKey> keys_;  // by slot, from its last SetStep
  float* parameters_ = nullptr;
  Call call_;  // call of the last pass
  // By operation: offset from which all gradients are final after the operation's backward.
  std::vector<size_t> final_from_;
  // Copies of the parameters and gradients in the compute type; see Call.
  kernels::DeviceMemory cast_parameters_;
  kernels::DeviceMemory cast_gradients_;
  kernels::DeviceMemory cast_ranges_;  // memory of each CastRange, in the order of backward
  // By operation, and one more for the end: number of ranges when the operation's backward begins,
  // which is [index + 1], and ends, which is [index].
  std::vector<size_t> cast_range_ = {0};
  std::vector<int64_t> pieces_before_ = {0};  // by range, and one more for the end
  size_t cast_until_ = 0;                     // ranges cast in this backward pass
  Observer observer_;
  absl::Duration kernel_time_;
};

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_COMPILED_PLAN_H_
