#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/table/kernels.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {
namespace {

// out[i] = operation(a[i], b[i]); a null array reads as zeros.
template <typename Storage, typename Operation>
struct ElementwiseBody {
  Operation operation;
  const Storage* a;
  const Storage* b;
  Storage* out;
  template <int kCount>
  MUSTER_HOST_DEVICE void Run(int64_t at) const {
    Floats<kCount> values = {}, others = {};
    if (a != nullptr) values = Load<kCount>(a + at);
    if (b != nullptr) others = Load<kCount>(b + at);
    for (int i = 0; i < kCount; ++i) values[i] = operation(values[i], others[i]);
    Store<kCount>(out + at, values);
  }
};

template <typename Operation>
void Elementwise(DataType type, size_t count, const Operation& operation, const void* a,
                 const void* b, void* out) {
  const int arrays = (a != nullptr ? 1 : 0) + (b != nullptr ? 1 : 0) + 1;
  StateWork(arrays * ArrayBytes(type, static_cast<int64_t>(count)));
  DispatchType(type, [&](auto element) {
    using Storage = decltype(element);
    ForEachElement<16 / sizeof(Storage)>(
        static_cast<int64_t>(count), Aligned({a, b, out}),
        ElementwiseBody<Storage, Operation>{operation, static_cast<const Storage*>(a),
                                            static_cast<const Storage*>(b),
                                            static_cast<Storage*>(out)});
  });
}

struct ForwardOperation {
  Activation activation;
  MUSTER_HOST_DEVICE float operator()(float x, float) const { return Activate(activation, x); }
};

struct BackwardOperation {
  Activation activation;
  MUSTER_HOST_DEVICE float operator()(float y, float dy) const {
    return ActivationGradient(activation, y, dy);
  }
};

struct AddOperation {
  bool has_a;
  const float* scale_a;  // null means 1
  Activation activation;
  MUSTER_HOST_DEVICE float operator()(float a, float b) const {
    const float scale = scale_a != nullptr ? *scale_a : 1.0f;
    // A dropped branch (scale 0) may hold infinities; 0 * inf would be NaN.
    return Activate(activation, has_a && scale != 0 ? a * scale + b : b);
  }
};

struct SumOperation {
  MUSTER_HOST_DEVICE float operator()(float x, float y) const { return y + x; }
};

struct ScaleOperation {
  const float* scale;
  MUSTER_HOST_DEVICE float operator()(float x, float) const {
    return *scale == 0 ? 0.0f : *scale * x;
  }
};

}  // namespace

void ActivationForward(DataType type, Activation activation, size_t count, const void* x, void* y) {
  Elementwise(type, count, ForwardOperation{activation}, x, nullptr, y);
}

void ActivationBackward(DataType type, Activation activation, size_t count, const void* y,
                        const void* dy, void* dx) {
  Elementwise(type, count, BackwardOperation{activation}, y, dy, dx);
}

void AddForward(DataType type, size_t count, const void* a, const float* scale_a, const void* b,
                Activation activation, void* y) {
  Elementwise(type, count, AddOperation{a != nullptr, scale_a, activation}, a, b, y);
}

void Accumulate(DataType type, size_t count, const void* x, void* y) {
  Elementwise(type, count, SumOperation{}, x, y, y);
}

void ScaledCopy(DataType type, size_t count, const float* scale, const void* x, void* y) {
  Elementwise(type, count, ScaleOperation{scale}, x, nullptr, y);
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET
