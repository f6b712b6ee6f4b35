// Implements kernels/image_transform.h on the CPU, with the kernels of any instruction set.
#ifndef MUSTER_KERNELS_CPU_IMAGE_RENDER_IMAGE_H_
#define MUSTER_KERNELS_CPU_IMAGE_RENDER_IMAGE_H_

#include <cstdint>
#include <vector>

#include "kernels/image_transform.h"
#include "kernels/resize.h"

namespace muster::kernels::cpu {

// Working memory; grows with the largest image.
struct RenderScratch {
  std::vector<float> resize;
  std::vector<uint8_t> resized;
};

// Writes the image described by `params` before normalisation: height * width * channels bytes,
// HWC.
void RenderImage(const ImageBatchShape& shape, const uint8_t* x, const ImageTransformParams& params,
                 Resize* resize, RenderScratch& scratch, uint8_t* y);

// x uint8 [pixels, channels] -> y float32 like x. Arrays need no alignment.
using Normalize = void(int64_t pixels, int64_t channels, const uint8_t* x, const float* scale,
                       const float* shift, float* y);

// See kernels::LoadImages.
void LoadImages(const ImageBatchShape& shape, const uint8_t* x,
                const ImageTransformParams* transforms, const float* scale, const float* shift,
                Resize* resize, Normalize* normalize, float* y);

}  // namespace muster::kernels::cpu

#endif  // MUSTER_KERNELS_CPU_IMAGE_RENDER_IMAGE_H_
