// The backward passes of a sum and of its shortcut's batch norm, for kernels that process one batch
// norm at a time.
#ifndef MUSTER_KERNELS_BATCH_NORM_SHORTCUT_H_
#define MUSTER_KERNELS_BATCH_NORM_SHORTCUT_H_

#include "kernels/batch_norm.h"

namespace muster::kernels {

inline BatchNormShape ShapeOfShortcut(const BatchNormShape& shape) {
  BatchNormShape shortcut = shape;
  shortcut.activation = Activation::kNone;
  return shortcut;
}

// `dy` is the gradient of the sum after the activation's mask.
inline BatchNormGradient GradientOfShortcut(const BatchNormGradient& gradient, const void* dy) {
  const BatchNormShortcut& shortcut = gradient.shortcut;
  return {.x = shortcut.x,
          .dy = dy,
          .choice = nullptr,
          .scale = shortcut.scale,
          .shift = shortcut.shift,
          .mean = shortcut.mean,
          .inverse_deviation = shortcut.inverse_deviation,
          .pixels = gradient.pixels,
          .shared_pixels = gradient.shared_pixels};
}

template <BatchNormBackwardParameters* kParameters>
void BackwardParametersInTurn(const BatchNormShape& shape, const BatchNormGradient& gradient,
                              float* dgamma, float* dbeta, void* dz) {
  BatchNormGradient sum = gradient;
  sum.shortcut = {};
  kParameters(shape, sum, dgamma, dbeta, dz);
  if (gradient.shortcut.x == nullptr) return;
  kParameters(ShapeOfShortcut(shape),
              GradientOfShortcut(gradient, dz != nullptr ? dz : gradient.dy),
              gradient.shortcut.dgamma, gradient.shortcut.dbeta, /*dz=*/nullptr);
}

template <BatchNormBackwardData* kData>
void BackwardDataInTurn(const BatchNormShape& shape, const BatchNormGradient& gradient,
                        const float* dgamma, const float* dbeta, void* dx) {
  BatchNormGradient sum = gradient;
  sum.shortcut = {};
  kData(shape, sum, dgamma, dbeta, dx);
  if (gradient.shortcut.x == nullptr) return;
  kData(ShapeOfShortcut(shape), GradientOfShortcut(gradient, gradient.dy), gradient.shortcut.dgamma,
        gradient.shortcut.dbeta, gradient.shortcut.dx);
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_BATCH_NORM_SHORTCUT_H_
