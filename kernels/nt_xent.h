// NT-Xent, the normalised temperature-scaled cross-entropy of contrastive learning (Chen et al.
// 2020, SimCLR), for a group of samples that is distributed over processes.
//
// A sample is one view of an image; views are interleaved, so that the positive of sample i is
// sample i ^ 1 and all others but i itself are its negatives. With unit vectors u and temperature t
// the logits are s_ij = u_i · u_j / t, and the loss of an anchor is
//
//   loss_i = log sum_{j != i} exp(s_ij) - s_{i, i ^ 1}.
//
// Each process computes the loss of its own anchors against the whole group. The gradient of an
// anchor has two terms: from its own loss, and from the losses in which it is another anchor's
// positive or negative. Since s is symmetric, the second term only needs the log sums l_i of the
// other processes' anchors: with p_ij = exp(s_ij - l_i),
//
//   d(sum of all losses) / du_i = 1/t sum_{j != i} (p_ij + p_ji - 2 [j = i ^ 1]) u_j,
//
// which equals the backward of an all-gather, a reduce-scatter of all samples' gradients.
#ifndef MUSTER_KERNELS_NT_XENT_H_
#define MUSTER_KERNELS_NT_XENT_H_

#include <cstdint>

#include "kernels/loss_result.h"

namespace muster::kernels {

// A shorter vector has no direction: it becomes zero, and so does its gradient. (For
// torch.nn.functional.normalize this is also the bound, but the gradient is divided by it.)
inline constexpr double kSmallestNorm = 1e-12;

// x float32 [rows, width] -> y like x, with each row normalised; inverse_norms [rows], zero for a
// row without direction.
using L2NormalizeForward = void(int64_t rows, int64_t width, const float* x, float* y,
                                float* inverse_norms);
// dx = (dy - (dy · y) y) * inverse_norm, by row; arrays [rows, width], inverse_norms [rows]. dx may
// be dy.
using L2NormalizeBackward = void(int64_t rows, int64_t width, const float* y,
                                 const float* inverse_norms, const float* dy, float* dx);

struct NtXentShape {
  int64_t samples = 0;  // samples of the group; even
  int64_t first = 0;    // index of this process's first sample; even
  int64_t anchors = 0;  // number of this process's samples; even
  int64_t width = 1;
  float temperature = 1;

  // Row length of logits and log sums: a whole number of vectors of any instruction set.
  int64_t row_stride() const { return (samples + 15) / 16 * 16; }
  int64_t logits_elements() const { return anchors * row_stride(); }
  int64_t workspace_elements() const { return width * row_stride(); }
};

// units float32 [samples, width], each row of length one or zero -> logits [anchors, row_stride()],
// minus infinity for an anchor with itself, unspecified beyond `samples`; log_sums [anchors];
// result over the anchors, in the memory of the arrays; an anchor is correct if it is more similar
// to its positive than to any negative. workspace: workspace_elements(). In a group of two samples
// without negatives, the losses are zero.
using NtXentForward = void(const NtXentShape& shape, const float* units, float* logits,
                           float* log_sums, float* workspace, LossResult* result);

// After forward. log_sums [row_stride()], of all samples. Overwrites the logits; dunits [anchors,
// width]: the gradient of the whole group's summed losses with respect to this process's units,
// times scale and, unless null, *loss_scale.
using NtXentBackward = void(const NtXentShape& shape, double scale, const double* loss_scale,
                            const float* units, const float* log_sums, float* logits,
                            float* dunits);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_NT_XENT_H_
