// Pooling, activations, normalisation of bytes and the optimizer; see their headers in kernels/.
// Compiled once per instruction set.
#ifndef MUSTER_KERNELS_CPU_ELEMENTWISE_BODY_H_
#define MUSTER_KERNELS_CPU_ELEMENTWISE_BODY_H_

#include <cstddef>
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/cpu/batch_norm_body.h"
#include "kernels/cpu/vector.h"
#include "kernels/functors.h"
#include "kernels/normalize.h"
#include "kernels/pooling.h"
#include "kernels/sgd.h"

namespace muster::kernels::MUSTER_INSTRUCTION_SET {

struct PoolForwardBody {
  const PoolShape& shape;
  const float* x;
  float* y;
  uint8_t* choice;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    const int64_t channels = shape.channels;
    const int64_t line = shape.width * channels;
    ForEachSquare(shape.rows, shape.height, shape.width, channels, [&](int64_t in, int64_t out) {
      for (int i = 0; i < kCount; ++i) {
        const float* p = x + in + channel + i * Element<T>::kWidth;
        const Largest<T> largest(Element<T>::Load(p), Element<T>::Load(p + channels),
                                 Element<T>::Load(p + line), Element<T>::Load(p + line + channels),
                                 shape.relu);
        const int64_t at = out + channel + i * Element<T>::kWidth;
        Element<T>::Store(y + at, largest.value);
        if (choice != nullptr) Element<T>::StoreBytes(choice + at, largest.index);
      }
    });
  }
};

inline void MaxPoolForward(const PoolShape& shape, const float* x, float* y, uint8_t* choice) {
  ForEachChannelBlock(shape.channels, PoolForwardBody{shape, x, y, choice});
}

struct PoolBackwardBody {
  const PoolShape& shape;
  const float* dy;
  const uint8_t* choice;
  float* dx;

  template <typename T, int kCount>
  void Run(int64_t channel) const {
    const int64_t channels = shape.channels;
    const int64_t line = shape.width * channels;
    ForEachSquare(shape.rows, shape.height, shape.width, channels, [&](int64_t in, int64_t out) {
      for (int i = 0; i < kCount; ++i) {
        const int64_t from = out + channel + i * Element<T>::kWidth;
        float* p = dx + in + channel + i * Element<T>::kWidth;
        const T gradient = Element<T>::Load(dy + from);
        const typename Element<T>::Int index = Element<T>::LoadBytes(choice + from);
        Element<T>::Store(p, index == 0 ? gradient : T{});
        Element<T>::Store(p + channels, index == 1 ? gradient : T{});
        Element<T>::Store(p + line, index == 2 ? gradient : T{});
        Element<T>::Store(p + line + channels, index == 3 ? gradient : T{});
      }
    });
    ForEachUncovered(shape.rows, shape.height, shape.width, channels, [&](int64_t at) {
      for (int i = 0; i < kCount; ++i) {
        Element<T>::Store(dx + at + channel + i * Element<T>::kWidth, T{});
      }
    });
  }
};

inline void MaxPoolBackward(const PoolShape& shape, const float* dy, const uint8_t* choice,
                            float* dx) {
  ForEachChannelBlock(shape.channels, PoolBackwardBody{shape, dy, choice, dx});
}

// Calls body.Run<T>(i) for whole vectors, then for the elements left over.
template <typename Body>
inline void ForEachElement(size_t count, const Body& body) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body.template Run<Vector>(i);
  for (; i < count; ++i) body.template Run<float>(i);
}

struct ReluForwardBody {
  const float* x;
  float* y;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(y + i, ReluFunctor<T>()(Element<T>::Load(x + i)));
  }
};

inline void ReluForward(size_t count, const float* x, float* y) {
  ForEachElement(count, ReluForwardBody{x, y});
}

struct ReluBackwardBody {
  const float* y;
  const float* dy;
  float* dx;
  template <typename T>
  void Run(size_t i) const {
    Element<T>::Store(dx + i,
                      ReluBackwardFunctor<T>()(Element<T>::Load(y + i), Element<T>::Load(dy + i)));
  }
};

inline void ReluBackward(size_t count, const float* y, const float* dy, float* dx) {
  ForEachElement(count, ReluBackwardBody{y, dy, dx});
}

struct SgdBody {
  const SgdOptions& options;
  float* parameters;
  float* momentum;
  const float* gradients;
  template <typename T>
  void Run(size_t i) const {
    const SgdFunctor<T> step{Element<T>::Splat(options.learning_rate),
                             Element<T>::Splat(options.momentum),
                             Element<T>::Splat(options.weight_decay)};
    T parameter = Element<T>::Load(parameters + i);
    T velocity = momentum == nullptr ? T{} : Element<T>::Load(momentum + i);
    step(parameter, velocity, Element<T>::Load(gradients + i));
    Element<T>::Store(parameters + i, parameter);
    if (momentum != nullptr) Element<T>::Store(momentum + i, velocity);
  }
};

inline void SgdStep(const SgdOptions& options, float* parameters, float* momentum,
                    const float* gradients, size_t count) {
  ForEachElement(count, SgdBody{options, parameters, momentum, gradients});
}

inline void Normalize(int64_t pixels, int64_t channels, const uint8_t* x, const float* scale,
                      const float* shift, float* y) {
  if (channels == 1) {
    const AffineFunctor<Vector> affine{Element<Vector>::Splat(scale[0]),
                                       Element<Vector>::Splat(shift[0])};
    const AffineFunctor<float> affine_one{scale[0], shift[0]};
    int64_t i = 0;
    for (; i + kLanes <= pixels; i += kLanes) {
      const Vector value = Element<Vector>::FromInt(Element<Vector>::LoadBytes(x + i));
      Element<Vector>::Store(y + i, affine(value));
    }
    for (; i < pixels; ++i) y[i] = affine_one(static_cast<float>(x[i]));
    return;
  }
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t i = pixel * channels + c;
      y[i] = AffineFunctor<float>{scale[c], shift[c]}(static_cast<float>(x[i]));
    }
  }
}

}  // namespace muster::kernels::MUSTER_INSTRUCTION_SET

#endif  // MUSTER_KERNELS_CPU_ELEMENTWISE_BODY_H_
