// A static graph of layers, compiled for one batch size and device: all memory planned, all kernels
// chosen, and nothing allocated in a step.
//
// All arrays, those that a plan is bound to and those that it hands out, are in the device's
// memory; only values of single tensors and results of a loss come and go in the process's.
//
// Activations are NHWC, in the types that the precision says. Parameters, gradients and buffers are
// each one flat array of float32 in the order of the graph's nodes; backward finishes gradients
// from the end to the start, so that a bucket is a range.
#ifndef MUSTER_TRAINER_GRAPH_PLAN_H_
#define MUSTER_TRAINER_GRAPH_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/device.h"
#include "trainer/graph/execution.h"
#include "trainer/graph/graph.h"
#include "trainer/graph/precision.h"

namespace muster::nn {

struct CompileOptions {
  uint32_t max_batch = 0;  // rows of one call at most
  bool training = true;    // with backward; otherwise forward and loss only
  uint32_t threads = 1;    // that convolutions and matrix products compute in
  // Where it computes; outlives the plan. ReferenceDevice() is what tests compare with.
  kernels::Device* device = &kernels::CpuDevice();
  // Batch norm's statistics are of all ranks' rows, through set_statistics_reducer.
  bool synchronize_batch_norm = false;
  Precision precision;
  // Less memory for more time: what batch norm gives is not kept from forward to backward, where it
  // can be computed again from what is.
  bool recompute_activations = false;
  // How many micro-batches' activations are kept at once, each from its forward to its backward.
  uint32_t in_flight_micro_batches = 1;
};

// One named tensor of the flat parameters (or buffers).
struct ParameterInfo {
  std::string name;  // as torchvision or torch.nn.Sequential would name it, e.g. "0.weight"
  std::vector<int64_t> shape;  // canonical: OIHW, (out, in)
  size_t offset = 0;           // elements from the start of the flat array
  size_t count = 0;            // elements taken there, padding included
};

// One operation of a plan, for people: one or several layers that are computed together.
struct OperationDescription {
  std::string name;  // of its layers: "layer1.0.conv1", "bn1..relu"
  // In the whole model, the first and the last of the nodes that it computes; others may lie
  // between them. A cast counts to a node that takes what it gives.
  NodeId first_node = 0;
  NodeId last_node = 0;
  std::string kind;                // "conv2d", "batch_norm2d + relu"
  std::string kernel;              // the implementation chosen
  std::vector<ImageShape> inputs;  // of one row
  ImageShape output;
  // As kernels::NameOf: what inputs and output are stored as, and what products are computed in.
  std::vector<std::string> input_dtypes;
  std::string dtype;
  std::string compute_dtype;
  // Of a plan for training, where evaluation differs: "in bn1..relu", which computes it, or "with
  // conv1", which it computes too; then with running statistics in one pass.
  std::string evaluation;
  // What backward computes again instead of keeping it: "normalised values, activation mask".
  std::string recomputed;
  size_t parameters = 0;        // elements, without padding
  int64_t forward_flops = 0;    // of one row; two for each multiplication with a weight
  size_t activation_bytes = 0;  // its output, at the largest batch
  size_t saved_bytes = 0;       // from forward to backward, beside activations
  size_t workspace_bytes = 0;   // during a call
  size_t arena_offset = 0;      // where the output lies
};

// A value that crosses from one part of a model to the next, and its gradient, which crosses back:
// NHWC, max_batch rows of row_bytes each, in the device's memory.
struct BoundaryTensor {
  std::string name;      // of the layer that computes it
  size_t row_bytes = 0;  // in the type that the precision keeps activations in
  void* data = nullptr;
  void* gradient = nullptr;  // null where none is needed, and without training
};

// One device's compiled model, or a part of one. Not thread-safe; a plan belongs to one training
// thread.
class Plan : public Execution {
 public:
  virtual absl::Span<const ParameterInfo> parameters() const = 0;
  virtual absl::Span<const ParameterInfo> buffers() const = 0;  // batch norm's running statistics
  virtual size_t parameter_elements() const = 0;  // of the flat array, padding included
  virtual size_t buffer_elements() const = 0;
  virtual size_t arena_bytes() const = 0;
  // Digest of layout, kernels' memory formats and instruction set: equal digests have
  // byte-compatible flat arrays.
  virtual std::string layout_digest() const = 0;
  // In the order of forward.
  virtual std::vector<OperationDescription> Describe() const = 0;

  // Canonical values (shape order of ParameterInfo) of parameters and buffers, to and from the
  // bound arrays. INVALID_ARGUMENT for an unknown name or a wrong size.
  virtual absl::Status Import(const ParameterInfo& parameter, absl::Span<const float> values) = 0;
  virtual absl::Status Export(const ParameterInfo& parameter, absl::Span<float> values) const = 0;
  // Initial values as the layers define them, drawn by Philox from (seed, parameter's name): the
  // same on any machine.
  virtual void Initialize(uint64_t seed) = 0;
  // Optimizer state of one parameter shares its layout: the same conversions for any flat array
  // like parameters.
  virtual absl::Status ImportInto(float* flat, const ParameterInfo& parameter,
                                  absl::Span<const float> values) const = 0;
  virtual absl::Status ExportFrom(const float* flat, const ParameterInfo& parameter,
                                  absl::Span<float> values) const = 0;

  bool supports_graph_capture() const override { return device().captures(); }

  // A plan of a part of a model (trainer/graph/cut.h) takes values of earlier parts and gives
  // values to later ones; a plan of a whole model has neither. A part's outputs are the next part's
  // inputs, in the same order and of the same types. Both are those of the selected slot.
  //
  // The caller writes the inputs' data before Forward and reads the outputs' after it, writes the
  // outputs' gradients before Backward and reads the inputs' after it. A value that passes through
  // is an input and an output in one place: its gradient is the sum of what comes from behind and
  // what this part adds to it. Backward may change the outputs' gradients. Passes of other slots
  // leave all four alone.
  virtual absl::Span<const BoundaryTensor> boundary_inputs() const { return {}; }
  virtual absl::Span<const BoundaryTensor> boundary_outputs() const { return {}; }

  // Which activations the next Forward writes and the next Backward reads: one of
  // CompileOptions::in_flight_micro_batches, at first slot 0. Input, labels, logits, their
  // gradient, the boundary tensors and what SetStep sets belong to a slot, and lie elsewhere in
  // each. Allocates nothing.
  virtual void SelectSlot(uint32_t slot) {}
  // Bytes of one slot that are kept from forward to backward, without what lives within one pass.
  virtual size_t slot_bytes() const { return arena_bytes(); }

  // As QueueLoss, to the process's memory; waits for the device.
  virtual LossResult Loss(uint32_t rows, double label_smoothing, double scale) = 0;
};

// Errors: INVALID_ARGUMENT for shapes that do not fit, naming the layer; RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<Plan>> Compile(const Graph& graph, const CompileOptions& options);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PLAN_H_
