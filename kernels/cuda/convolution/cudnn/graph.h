// A C++ interface to cuDNN's graph API: descriptors, the graph of a convolution, the engines that
// cuDNN proposes for it, and the execution plan of an engine.
//
// Errors are cuDNN's: UNIMPLEMENTED for unsupported operations, INTERNAL otherwise. Not
// thread-safe.
#ifndef MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_GRAPH_H_
#define MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_GRAPH_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/convolution.h"
#include "kernels/cuda/library/cudnn.h"

namespace muster::kernels::cuda {

// A backend descriptor. Finalize returns the first error of setting its attributes.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const Cudnn& cudnn, CudnnDescriptorType type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  ~CudnnDescriptor();

  CudnnBackendDescriptor get() const { return descriptor_; }

  CudnnDescriptor& SetBytes(CudnnAttribute attribute, CudnnAttributeType type, int64_t count,
                            const void* values);
  template <typename T>
  CudnnDescriptor& Set(CudnnAttribute attribute, CudnnAttributeType type, const T& value) {
    return SetBytes(attribute, type, 1, &value);
  }
  CudnnDescriptor& Set(CudnnAttribute attribute, int64_t value) {
    return SetBytes(attribute, kCudnnTypeInt64, 1, &value);
  }
  CudnnDescriptor& Set(CudnnAttribute attribute, absl::Span<const int64_t> values) {
    return SetBytes(attribute, kCudnnTypeInt64, static_cast<int64_t>(values.size()), values.data());
  }
  CudnnDescriptor& Set(CudnnAttribute attribute, const CudnnDescriptor& value) {
    return Set(attribute, kCudnnTypeDescriptor, value.descriptor_);
  }
  absl::Status Finalize(absl::string_view what);

  // Returns the number of elements, of which at most the first `max_count` are written to `values`.
  absl::StatusOr<int64_t> GetBytes(CudnnAttribute attribute, CudnnAttributeType type,
                                   int64_t max_count, void* values) const;
  // Gets one element. If that is a descriptor, `value` must be one already.
  template <typename T>
  absl::Status Get(CudnnAttribute attribute, CudnnAttributeType type, T& value) const {
    return GetBytes(attribute, type, 1, &value).status();
  }

 private:
  const Cudnn* cudnn_;
  CudnnBackendDescriptor descriptor_ = nullptr;
  absl::Status status_;
};

// The GPU that plans are for: that of `handle`, or one described by `device_properties`, which need
// not exist and whose plans cannot run. Exactly one of the two is not null.
struct CudnnTarget {
  const Cudnn* cudnn;
  CudnnHandle handle = nullptr;
  CudnnBackendDescriptor device_properties = nullptr;
};

// A descriptor of the GPU with these members of cudaDeviceProp, in the JSON format of cuDNN 9.8 and
// later.
absl::StatusOr<CudnnDescriptor> MakeDeviceProperties(const Cudnn& cudnn, const std::string& json);

// An engine and its knob settings. Valid for one graph and one version of cuDNN.
struct CudnnEngineChoice {
  int64_t engine = 0;
  std::vector<std::pair<int64_t, int64_t>> knobs;  // type, value

  std::string Text() const;  // for example "38:2=3,13=1"
  // Returns false, with unspecified content, if the text is not in the format of Text().
  bool Parse(absl::string_view text);
  bool operator==(const CudnnEngineChoice&) const = default;
};

struct CudnnProposal {
  CudnnEngineChoice choice;
  uint32_t numerical_notes = 0;  // a bit for each CudnnNumericalNote
  bool compiled_at_run_time = false;
};

enum class ConvolutionDirection { kForward, kBackwardData, kBackwardWeights };

// A graph of operations on tensors. Tensors are identified by ids, from 1.
class CudnnGraph {
 public:
  explicit CudnnGraph(const CudnnTarget& target) : target_(target) {}

  // Dimensions of a tensor, which is NHWC in memory and 16-byte aligned. A virtual tensor has no
  // memory: it is the output of one operation and the input of another.
  struct TensorShape {
    int64_t samples, channels, height, width;
  };
  int64_t AddTensor(DataType type, const TensorShape& shape, bool is_virtual = false);

  // Accumulation in float32. x is the convolution's input, w its filter and y its output, or their
  // gradients; the direction determines which of them is computed.
  void AddConvolution(ConvolutionDirection direction, const ConvolutionShape& shape, int64_t x,
                      int64_t w, int64_t y);
  // Computes in float32. b: second operand of an addition, of y's shape or one value per channel; 0
  // if none.
  void AddPointwise(CudnnPointwiseMode mode, int64_t x, int64_t b, int64_t y);

  // Completes the graph; nothing may be added afterwards. Returns the first error of all calls.
  absl::Status Finish();

  // Returns at most `max_count` engines that cuDNN proposes, best first.
  std::vector<CudnnProposal> Propose(CudnnHeuristicsMode mode, int64_t max_count) const;

 private:
  friend class CudnnPlan;

  void Keep(CudnnDescriptor descriptor, absl::string_view what);
  CudnnBackendDescriptor TensorOf(int64_t id) const { return tensors_[id - 1].get(); }

  const CudnnTarget target_;
  absl::Status status_;
  std::vector<CudnnDescriptor> tensors_;
  std::vector<CudnnDescriptor> kept_;  // descriptors that the operations refer to
  std::vector<CudnnBackendDescriptor> operations_;
  CudnnBackendDescriptor graph_ = nullptr;  // owned by kept_
};

// The execution plan of a graph with one engine.
class CudnnPlan {
 public:
  static absl::StatusOr<CudnnPlan> Make(const CudnnGraph& graph, const CudnnEngineChoice& choice);

  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Queues the plan in the handle's stream. `pointers`: the addresses of the tensors `ids`.
  absl::Status Execute(CudnnHandle handle, absl::Span<const int64_t> ids,
                       absl::Span<void* const> pointers, void* workspace) const;

 private:
  CudnnPlan(const Cudnn& cudnn, CudnnDescriptor plan, int64_t workspace_bytes)
      : cudnn_(&cudnn), plan_(std::move(plan)), workspace_bytes_(workspace_bytes) {}

  const Cudnn* cudnn_;
  CudnnDescriptor plan_;
  int64_t workspace_bytes_;
};

}  // namespace muster::kernels::cuda

#endif  // MUSTER_KERNELS_CUDA_CONVOLUTION_CUDNN_GRAPH_H_
