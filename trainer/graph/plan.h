// A static graph of layers, compiled for one batch size and device: all memory is planned, all
// kernels are selected, and a step allocates nothing.
//
// All arrays that a plan is bound to or returns are in device memory; only values of single tensors
// and loss results are in host memory.
//
// Activations are NHWC, in the types given by the precision. Parameters, gradients and buffers are
// each one flat float32 array in the order of the graph's nodes; backward completes gradients from
// the end to the start, so that a bucket is a contiguous range.
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
  uint32_t max_batch = 0;  // maximum number of samples per call
  bool training = true;    // compile backward; otherwise forward and loss only
  uint32_t threads = 1;    // threads for convolutions and matrix products
  // Device that computes; must outlive the plan. ReferenceDevice() is the baseline of tests.
  kernels::Device* device = &kernels::CpuDevice();
  // Compute batch norm's statistics over the samples of all ranks, with set_statistics_reducer.
  bool synchronize_batch_norm = false;
  Precision precision;
  // Trade time for memory: outputs of batch norm are not kept from forward to backward if they can
  // be recomputed from values that are.
  bool recompute_activations = false;
  // Number of micro-batches whose activations are kept at once, each from forward to backward.
  uint32_t in_flight_micro_batches = 1;
};

// One named tensor of the flat parameters (or buffers).
struct ParameterInfo {
  std::string name;            // as in torchvision or torch.nn.Sequential, e.g. "0.weight"
  std::vector<int64_t> shape;  // canonical: OIHW, (out, in)
  size_t offset = 0;           // elements from the start of the flat array
  size_t count = 0;            // elements occupied, including padding
};

// Human-readable description of one operation of a plan: one layer or several fused ones.
struct OperationDescription {
  std::string name;  // names of its layers: "layer1.0.conv1", "bn1..relu"
  // First and last of the whole model's nodes that it computes; other nodes may lie between them.
  // A cast is attributed to a node that uses its output.
  NodeId first_node = 0;
  NodeId last_node = 0;
  std::string kind;                // "conv2d", "batch_norm2d + relu"
  std::string kernel;              // selected implementation
  std::vector<ImageShape> inputs;  // shapes of one sample
  ImageShape output;
  // kernels::NameOf the types in which inputs and output are stored and products are computed.
  std::vector<std::string> input_dtypes;
  std::string dtype;
  std::string compute_dtype;
  // For a training plan whose evaluation differs: "in bn1..relu" (computed by that operation) or
  // "with conv1" (also computes that one, in one pass with the running statistics).
  std::string evaluation;
  // What backward recomputes instead of keeping: "normalised values, activation mask".
  std::string recomputed;
  size_t parameters = 0;        // elements, without padding
  int64_t forward_flops = 0;    // operations for one sample; two per multiplication with a weight
  size_t activation_bytes = 0;  // size of the output at max_batch
  size_t saved_bytes = 0;       // kept from forward to backward, in addition to activations
  size_t workspace_bytes = 0;   // used during a call
  size_t arena_offset = 0;      // offset of the output
};

// A value that crosses from one stage to the next, and its gradient, which crosses back: NHWC,
// max_batch samples of sample_bytes each, in device memory.
struct BoundaryTensor {
  std::string name;         // name of the layer that computes it
  size_t sample_bytes = 0;  // size of one sample, in the precision's activation type
  void* data = nullptr;
  void* gradient = nullptr;  // null if none is needed, and without training
};

// A model, or one stage of it, compiled for one device. Not thread-safe; a plan belongs to one
// training thread.
class Plan : public Execution {
 public:
  virtual absl::Span<const ParameterInfo> parameters() const = 0;
  virtual absl::Span<const ParameterInfo> buffers() const = 0;  // batch norm's running statistics
  virtual size_t parameter_elements() const = 0;  // size of the flat array, including padding
  virtual size_t buffer_elements() const = 0;
  virtual size_t arena_bytes() const = 0;
  // Digest of layout, kernels' memory formats and instruction set: flat arrays of plans with equal
  // digests are byte-compatible.
  virtual std::string layout_digest() const = 0;
  // In the order of forward.
  virtual std::vector<OperationDescription> Describe() const = 0;

  // Copies canonical values (in the order of ParameterInfo::shape) of a parameter or buffer to or
  // from the bound arrays. INVALID_ARGUMENT for an unknown name or a wrong size.
  virtual absl::Status Import(const ParameterInfo& parameter, absl::Span<const float> values) = 0;
  virtual absl::Status Export(const ParameterInfo& parameter, absl::Span<float> values) const = 0;
  // Sets the layers' initial values, drawn by Philox from (seed, parameter name): the same on any
  // machine.
  virtual void Initialize(uint64_t seed) = 0;
  // The same conversions for any flat array with the layout of the parameters, such as optimizer
  // state.
  virtual absl::Status ImportInto(float* flat, const ParameterInfo& parameter,
                                  absl::Span<const float> values) const = 0;
  virtual absl::Status ExportFrom(const float* flat, const ParameterInfo& parameter,
                                  absl::Span<float> values) const = 0;
  // The same for one tensor, of the parameters or the buffers, whose elements are at `tensor` in
  // host memory, aligned to 64 bytes. Unlike all other methods, any thread may call this one at any
  // time.
  virtual absl::Status ExportTensor(const float* tensor, const ParameterInfo& parameter,
                                    absl::Span<float> values) const = 0;

  bool supports_graph_capture() const override { return device().supports_graph_capture(); }

  // A plan of one stage (trainer/graph/cut.h) takes values of earlier stages and outputs values for
  // later ones; a plan of a whole model does neither. A stage's outputs are the next stage's
  // inputs, in the same order and of the same types. Both belong to the selected slot.
  //
  // The caller writes the inputs' data before Forward and reads the outputs' after it; it writes
  // the outputs' gradients before Backward and reads the inputs' after it. A value that passes
  // through is an input and an output at the same address: its gradient is the sum of the later
  // stages' gradient and this stage's contribution. Backward may change the outputs' gradients.
  // Passes of other slots change none of the four.
  virtual absl::Span<const BoundaryTensor> boundary_inputs() const { return {}; }
  virtual absl::Span<const BoundaryTensor> boundary_outputs() const { return {}; }

  // Selects the activations that the next Forward writes and the next Backward reads: a slot below
  // CompileOptions::in_flight_micro_batches; initially 0. Input, labels, logits, their gradient,
  // the boundary tensors and the state of SetStep belong to a slot and have other addresses in each
  // slot. Allocates nothing.
  virtual void SelectSlot(uint32_t slot) {}
  // Like SetStep, with DrawOf(context) at `draw` in device memory. Only issues device calls, so
  // that it can be captured. Requires supports_graph_capture().
  virtual void CopyDraw(const kernels::RandomDraw* draw) = 0;
  // Bytes per slot that are kept from forward to backward, without values that live in one pass.
  virtual size_t slot_bytes() const { return arena_bytes(); }

  // Like QueueLoss, but waits for the device and returns the result in host memory.
  virtual LossResult Loss(uint32_t samples, double label_smoothing, double scale) = 0;
};

// Errors: INVALID_ARGUMENT with the layer's name if shapes do not fit; RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<Plan>> Compile(const Graph& graph, const CompileOptions& options);

}  // namespace muster::nn

#endif  // MUSTER_TRAINER_GRAPH_PLAN_H_
