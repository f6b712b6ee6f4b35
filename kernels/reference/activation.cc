#include "kernels/reference/activation.h"

#include "kernels/reference/reference_kernels.h"

namespace muster::kernels::reference {

double Activated(Activation activation, double x) {
  if (activation == Activation::kNone) return x;
  if (x < 0) return 0;
  return activation == Activation::kRelu6 && x > 6 ? 6 : x;
}

bool GradientPasses(Activation activation, double x) {
  if (activation == Activation::kNone) return true;
  return !(x <= 0) && !(activation == Activation::kRelu6 && x >= 6);
}

namespace {

void Forward(Activation activation, size_t count, const float* x, float* y) {
  for (size_t i = 0; i < count; ++i) y[i] = static_cast<float>(Activated(activation, x[i]));
}

void Backward(Activation activation, size_t count, const float* y, const float* dy, float* dx) {
  for (size_t i = 0; i < count; ++i) dx[i] = GradientPasses(activation, y[i]) ? dy[i] : 0.0f;
}

}  // namespace

void ReluForward(size_t count, const float* x, float* y) {
  Forward(Activation::kRelu, count, x, y);
}

void ReluBackward(size_t count, const float* y, const float* dy, float* dx) {
  Backward(Activation::kRelu, count, y, dy, dx);
}

void Relu6Forward(size_t count, const float* x, float* y) {
  Forward(Activation::kRelu6, count, x, y);
}

void Relu6Backward(size_t count, const float* y, const float* dy, float* dx) {
  Backward(Activation::kRelu6, count, y, dy, dx);
}

void AddForward(size_t count, const float* a, float scale_a, const float* b, Activation activation,
                float* y) {
  for (size_t i = 0; i < count; ++i) {
    const double branch = a == nullptr ? 0.0 : double{a[i]} * double{scale_a};
    y[i] = static_cast<float>(Activated(activation, branch + double{b[i]}));
  }
}

void Accumulate(size_t count, const float* x, float* y) {
  for (size_t i = 0; i < count; ++i) y[i] += x[i];
}

void ScaledCopy(size_t count, float scale, const float* x, float* y) {
  for (size_t i = 0; i < count; ++i) y[i] = scale * x[i];
}

}  // namespace muster::kernels::reference
