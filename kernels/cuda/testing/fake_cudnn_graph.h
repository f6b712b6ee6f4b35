// Descriptors of the fake cuDNN, and the operations of its graphs.
#ifndef MUSTER_KERNELS_CUDA_TESTING_FAKE_CUDNN_GRAPH_H_
#define MUSTER_KERNELS_CUDA_TESTING_FAKE_CUDNN_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/library/cudnn_abi.h"
#include "kernels/half.h"

namespace fake_cudnn {

using muster::kernels::DataType;

struct Node;
using NodePtr = std::shared_ptr<Node>;

struct Value {
  CudnnAttributeType type;
  int64_t count = 0;
  std::vector<char> bytes;
  std::vector<NodePtr> nodes;
};

struct Node {
  CudnnDescriptorType type;
  bool finalized = false;
  std::map<CudnnAttribute, Value> values;

  bool Has(CudnnAttribute attribute) const { return values.count(attribute) > 0; }
  template <typename T>
  std::vector<T> All(CudnnAttribute attribute) const {
    const Value& value = values.at(attribute);
    std::vector<T> result(value.count);
    std::memcpy(result.data(), value.bytes.data(), value.bytes.size());
    return result;
  }
  template <typename T>
  T One(CudnnAttribute attribute) const {
    return All<T>(attribute).at(0);
  }
  const NodePtr& Child(CudnnAttribute attribute) const { return values.at(attribute).nodes.at(0); }
  template <typename T>
  void Put(CudnnAttribute attribute, CudnnAttributeType type, const std::vector<T>& all) {
    Value value{type, static_cast<int64_t>(all.size()), {}, {}};
    value.bytes.assign(reinterpret_cast<const char*>(all.data()),
                       reinterpret_cast<const char*>(all.data() + all.size()));
    values[attribute] = value;
  }
  void PutNodes(CudnnAttribute attribute, std::vector<NodePtr> nodes) {
    values[attribute] =
        Value{kCudnnTypeDescriptor, static_cast<int64_t>(nodes.size()), {}, std::move(nodes)};
  }
};

// The object that a CudnnBackendDescriptor points to.
struct Holder {
  NodePtr node;
};
inline NodePtr NodeOf(CudnnBackendDescriptor descriptor) {
  return static_cast<Holder*>(descriptor)->node;
}

inline size_t BytesOf(CudnnAttributeType type) {
  switch (type) {
    case kCudnnTypeBoolean:
    case kCudnnTypeChar:
      return 1;
    case kCudnnTypeInt64:
    case kCudnnTypeHandle:
    case kCudnnTypeVoidPointer:
    case kCudnnTypeDescriptor:
      return 8;
    default:
      return 4;
  }
}

struct Tensor {
  int64_t id;
  DataType type;
  bool is_virtual;
  std::vector<int64_t> dimensions;
  std::vector<int64_t> strides;

  explicit Tensor(const Node& node)
      : id(node.One<int64_t>(kCudnnTensorId)),
        is_virtual(node.Has(kCudnnTensorVirtual)),
        dimensions(node.All<int64_t>(kCudnnTensorDimensions)),
        strides(node.All<int64_t>(kCudnnTensorStrides)) {
    const auto stored = node.One<CudnnDataType>(kCudnnTensorDataType);
    type = stored == kCudnnHalf       ? DataType::kFloat16
           : stored == kCudnnBfloat16 ? DataType::kBfloat16
                                      : DataType::kFloat32;
  }
  int64_t count() const { return dimensions[0] * dimensions[1] * dimensions[2] * dimensions[3]; }
  int64_t At(int64_t n, int64_t c, int64_t h, int64_t w) const {
    return n * strides[0] + c * strides[1] + h * strides[2] + w * strides[3];
  }
};

inline Tensor TensorIn(const Node& operation, CudnnAttribute attribute) {
  return Tensor(*operation.Child(attribute));
}

struct Convolution {
  CudnnDescriptorType direction;
  Tensor x, w, y;
  int64_t padding, stride;

  const Tensor& output() const {
    return direction == kCudnnConvolutionForward        ? y
           : direction == kCudnnConvolutionBackwardData ? x
                                                        : w;
  }
  const Tensor& operand() const { return direction == kCudnnConvolutionForward ? x : y; }
};

inline Convolution ConvolutionOf(const Node& operation) {
  const auto read = [&](CudnnAttribute convolution, CudnnAttribute x, CudnnAttribute w,
                        CudnnAttribute y) {
    const Node& how = *operation.Child(convolution);
    return Convolution{operation.type,
                       TensorIn(operation, x),
                       TensorIn(operation, w),
                       TensorIn(operation, y),
                       how.One<int64_t>(kCudnnConvolutionPrePaddings),
                       how.One<int64_t>(kCudnnConvolutionStrides)};
  };
  if (operation.type == kCudnnConvolutionForward) {
    return read(kCudnnForwardConvolution, kCudnnForwardX, kCudnnForwardW, kCudnnForwardY);
  }
  if (operation.type == kCudnnConvolutionBackwardData) {
    return read(kCudnnBackwardDataConvolution, kCudnnBackwardDataDx, kCudnnBackwardDataW,
                kCudnnBackwardDataDy);
  }
  return read(kCudnnBackwardFilterConvolution, kCudnnBackwardFilterX, kCudnnBackwardFilterDw,
              kCudnnBackwardFilterDy);
}

inline CudnnPointwiseMode ModeOf(const Node& operation) {
  return operation.Child(kCudnnPointwiseDescriptor)->One<CudnnPointwiseMode>(kCudnnPointwiseMode);
}

// The tensors of a graph's operations, and whether the operation writes them.
inline std::vector<std::pair<Tensor, bool>> TensorsOf(const Node& graph) {
  std::vector<std::pair<Tensor, bool>> tensors;
  for (const NodePtr& operation : graph.values.at(kCudnnGraphOperations).nodes) {
    if (operation->type == kCudnnPointwiseOperation) {
      tensors.emplace_back(TensorIn(*operation, kCudnnPointwiseX), false);
      if (ModeOf(*operation) == kCudnnPointwiseAdd) {
        tensors.emplace_back(TensorIn(*operation, kCudnnPointwiseB), false);
      }
      tensors.emplace_back(TensorIn(*operation, kCudnnPointwiseY), true);
      continue;
    }
    const Convolution convolution = ConvolutionOf(*operation);
    for (const Tensor* const tensor : {&convolution.x, &convolution.w, &convolution.y}) {
      tensors.emplace_back(*tensor, tensor->id == convolution.output().id);
    }
  }
  return tensors;
}

}  // namespace fake_cudnn

#endif  // MUSTER_KERNELS_CUDA_TESTING_FAKE_CUDNN_GRAPH_H_
