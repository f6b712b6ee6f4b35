#include "kernels/reference/activation.h"

#include "kernels/half.h"
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

void ActivationForward(DataType type, Activation activation, size_t count, const void* x, void* y) {
  for (size_t i = 0; i < count; ++i) {
    StoreElement(type, Activated(activation, LoadElement(type, x, i)), y, i);
  }
}

void ActivationBackward(DataType type, Activation activation, size_t count, const void* y,
                        const void* dy, void* dx) {
  for (size_t i = 0; i < count; ++i) {
    const bool passes = GradientPasses(activation, LoadElement(type, y, i));
    StoreElement(type, passes ? LoadElement(type, dy, i) : 0.0f, dx, i);
  }
}

void AddForward(DataType type, size_t count, const void* a, const float* scale_a, const void* b,
                Activation activation, void* y) {
  const double scale = scale_a != nullptr ? double{*scale_a} : 1;
  for (size_t i = 0; i < count; ++i) {
    const double branch =
        a == nullptr || scale == 0 ? 0.0 : double{LoadElement(type, a, i)} * scale;
    StoreElement(type, Activated(activation, branch + double{LoadElement(type, b, i)}), y, i);
  }
}

void Accumulate(DataType type, size_t count, const void* x, void* y) {
  for (size_t i = 0; i < count; ++i) {
    StoreElement(type, double{LoadElement(type, y, i)} + double{LoadElement(type, x, i)}, y, i);
  }
}

void ScaledCopy(DataType type, size_t count, const float* scale, const void* x, void* y) {
  for (size_t i = 0; i < count; ++i) {
    StoreElement(type, *scale == 0 ? 0.0 : double{*scale} * double{LoadElement(type, x, i)}, y, i);
  }
}

}  // namespace muster::kernels::reference
