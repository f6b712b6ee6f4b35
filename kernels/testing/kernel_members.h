// For devices of tests that wrap another device's kernels: X(member) for each kernel of KernelTable
// that a device calls, i.e. except those that only convolutions call.
#ifndef MUSTER_KERNELS_TESTING_KERNEL_MEMBERS_H_
#define MUSTER_KERNELS_TESTING_KERNEL_MEMBERS_H_

#include "kernels/kernel_table.h"

#define MUSTER_KERNEL_MEMBERS(X)    \
  X(batch_norm_statistics)          \
  X(batch_norm_scale)               \
  X(batch_norm_to_sums)             \
  X(batch_norm_from_sums)           \
  X(batch_norm_running)             \
  X(batch_norm_prepare)             \
  X(batch_norm_apply)               \
  X(batch_norm_backward_parameters) \
  X(batch_norm_backward_data)       \
  X(max_pool_forward)               \
  X(max_pool_backward)              \
  X(average_pool_forward)           \
  X(average_pool_backward)          \
  X(activation_forward)             \
  X(activation_backward)            \
  X(add_forward)                    \
  X(accumulate)                     \
  X(scaled_copy)                    \
  X(cast)                           \
  X(cast_ranges)                    \
  X(all_finite)                     \
  X(dropout)                        \
  X(draw_blocks)                    \
  X(softmax_cross_entropy)          \
  X(l2_normalize_forward)           \
  X(l2_normalize_backward)          \
  X(nt_xent_forward)                \
  X(nt_xent_backward)               \
  X(load_images)                    \
  X(sgd_step)                       \
  X(adamw_step)                     \
  X(sum_of_squares)                 \
  X(lerp)                           \
  X(lars_rates)                     \
  X(lars_step)                      \
  X(begin_update)                   \
  X(restore_skipped)

#endif  // MUSTER_KERNELS_TESTING_KERNEL_MEMBERS_H_
