// cuDNN's graph API: descriptors as objects, a graph of one convolution, the engines that cuDNN
// proposes for it, and the plan that runs it by one of them.
//
// Errors are cuDNN's: UNIMPLEMENTED for what it does not support, INTERNAL otherwise. One thread.
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

// A backend descriptor. The first error of its attributes is Finalize's.
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

  // -> how many elements there are, of which the first `most` are written.
  absl::StatusOr<int64_t> GetBytes(CudnnAttribute attribute, CudnnAttributeType type, int64_t most,
                                   void* values) const;
  // One element, into `value`, which a descriptor must be before.
  template <typename T>
  absl::Status Get(CudnnAttribute attribute, CudnnAttributeType type, T& value) const {
    return GetBytes(attribute, type, 1, &value).status();
  }

 private:
  const Cudnn* cudnn_;
  CudnnBackendDescriptor descriptor_ = nullptr;
  absl::Status status_;
};

// What plans are made for: the GPU of a handle, or one that is described and may not be there, for
// which plans cannot run. Exactly one is not null.
struct CudnnTarget {
  const Cudnn* cudnn;
  CudnnHandle handle = nullptr;
  CudnnBackendDescriptor device_properties = nullptr;
};

// json: cudaDeviceProp's members as cuDNN 9.8 and later write them.
absl::StatusOr<CudnnDescriptor> MakeDeviceProperties(const Cudnn& cudnn, const std::string& json);

// An engine with its settings. Means something for one graph and one version of cuDNN.
struct CudnnEngineChoice {
  int64_t engine = 0;
  std::vector<std::pair<int64_t, int64_t>> knobs;  // type, value

  std::string Text() const;  // as "38:2=3,13=1"
  // False, and unspecified, where the text is none of Text's.
  bool Parse(absl::string_view text);
  bool operator==(const CudnnEngineChoice&) const = default;
};

struct CudnnProposal {
  CudnnEngineChoice choice;
  uint32_t numerical_notes = 0;  // a bit for each CudnnNumericalNote
  bool compiled_at_run_time = false;
};

enum class ConvolutionDirection { kForward, kBackwardData, kBackwardWeights };

// Operations on tensors, which are named by the number that the graph gives them, from 1 on.
class CudnnGraph {
 public:
  explicit CudnnGraph(const CudnnTarget& target) : target_(target) {}

  // Four dimensions as of activations, channels innermost in memory; 16-byte aligned. A virtual
  // tensor is not in memory: one operation's output and another's input.
  struct TensorShape {
    int64_t rows, channels, height, width;
  };
  int64_t AddTensor(DataType type, const TensorShape& shape, bool is_virtual = false);

  // Sums in float32. x, w, y are the activations' side with the input, the filter and the other
  // activations, or their gradients; what the direction gives is one of them.
  void AddConvolution(ConvolutionDirection direction, const ConvolutionShape& shape, int64_t x,
                      int64_t w, int64_t y);
  // In float32. b: of an addition, alike or one value per channel; 0: none.
  void AddPointwise(CudnnPointwiseMode mode, int64_t x, int64_t b, int64_t y);

  // After which nothing is added. The first error of all before.
  absl::Status Finish();

  // The engines that cuDNN proposes, best first; at most `most`.
  std::vector<CudnnProposal> Propose(CudnnHeuristicsMode mode, int64_t most) const;

 private:
  friend class CudnnPlan;

  void Keep(CudnnDescriptor descriptor, absl::string_view what);
  CudnnBackendDescriptor TensorOf(int64_t id) const { return tensors_[id - 1].get(); }

  const CudnnTarget target_;
  absl::Status status_;
  std::vector<CudnnDescriptor> tensors_;
  std::vector<CudnnDescriptor> kept_;  // what the operations refer to
  std::vector<CudnnBackendDescriptor> operations_;
  CudnnBackendDescriptor graph_ = nullptr;  // of kept_
};

class CudnnPlan {
 public:
  static absl::StatusOr<CudnnPlan> Make(const CudnnGraph& graph, const CudnnEngineChoice& choice);

  int64_t workspace_bytes() const { return workspace_bytes_; }

  // Queued in the handle's stream. pointers: for each of the tensors `ids`.
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
