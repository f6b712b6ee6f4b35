// NT-Xent, the normalised temperature-scaled cross-entropy of contrastive learning (Chen et al.
// 2020, SimCLR), for a group of samples of which this process has some.
//
// A sample is one view of an image; views are interleaved, so that the positive of sample i is
// sample i ^ 1 and all others but i itself are its negatives. With unit vectors u and temperature t
// the logits are s_ij = u_i · u_j / t, and the loss of an anchor is
//
//   loss_i = log sum_{j != i} exp(s_ij) - s_{i, i ^ 1}.
//
// Each process computes the anchors that it has against the whole group. Their gradient has two
// parts: what an anchor's own loss says of it, and what the losses say in which it is another's
// positive or negative. Since s is symmetric, the second part needs no more of the other processes
// than their anchors' log sums l_i: with p_ij = exp(s_ij - l_i),
//
//   d(sum of all losses) / du_i = 1/t sum_{j != i} (p_ij + p_ji - 2 [j = i ^ 1]) u_j,
//
// which is what a gather's backward would bring by a reduce-scatter of all samples' gradients.
#ifndef MUSTER_KERNELS_NT_XENT_H_
#define MUSTER_KERNELS_NT_XENT_H_

#include <cstdint>

#include "kernels/loss_result.h"

namespace muster::kernels {

// A vector whose length is below this has no direction: it becomes zero, and so does its gradient.
// (torch.nn.functional.normalize has the same bound, and multiplies the gradient by its inverse.)
inline constexpr double kSmallestNorm = 1e-12;

// x float32 [rows, width] -> y likewise, each row of length one; inverse_norms [rows], zero for a
// row without direction.
using L2NormalizeForward = void(int64_t rows, int64_t width, const float* x, float* y,
                                float* inverse_norms);
// dx = (dy - (dy · y) y) * inverse_norm, by row; all but inverse_norms [rows, width]. dx may be dy.
using L2NormalizeBackward = void(int64_t rows, int64_t width, const float* y,
                                 const float* inverse_norms, const float* dy, float* dx);

struct NtXentShape {
  int64_t samples = 0;  // of the group; even
  int64_t first = 0;    // this process's first one; even
  int64_t anchors = 0;  // how many it has; even
  int64_t width = 1;
  float temperature = 1;

  // Elements of a line of logits, and of the log sums: whole vectors of any instruction set.
  int64_t line() const { return (samples + 15) / 16 * 16; }
  int64_t logits_elements() const { return anchors * line(); }
  int64_t workspace_elements() const { return width * line(); }
};

// units float32 [samples, width], each row of length one or zero -> logits [anchors, line()], that
// of an anchor with itself minus infinity, what is behind `samples` unspecified; log_sums
// [anchors]; result, of the anchors, right being those that are more similar to their positive than
// to any negative, where the arrays are. workspace: workspace_elements(). A group of two samples
// has no negatives: its losses are zero.
using NtXentForward = void(const NtXentShape& shape, const float* units, float* logits,
                           float* log_sums, float* workspace, LossResult* result);

// After forward. log_sums [line()], of all samples. Overwrites the logits; dunits [anchors, width]:
// scale, and unless that is null *loss_scale, times the gradient of the whole group's summed losses
// by this process's units.
using NtXentBackward = void(const NtXentShape& shape, double scale, const double* loss_scale,
                            const float* units, const float* log_sums, float* logits,
                            float* dunits);

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_NT_XENT_H_
