// Long work of one rank, e.g. writing a checkpoint, while the other ranks wait for it.
#ifndef MUSTER_TRAINER_LOOP_ONE_RANK_WORK_H_
#define MUSTER_TRAINER_LOOP_ONE_RANK_WORK_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "collectives/communicator.h"

namespace muster::train {

// Collective. Runs `work` on rank `worker`; returns on the others when it is done.
//
// The waiting ranks take part in a series of small broadcasts, one per `interval` in which the work
// reports progress, instead of waiting in the next collective of the training. Each broadcast has
// the group's timeout. The work may therefore last any time, but a rank that makes no progress for
// the timeout, or that does not wait for the others, is named as in any other collective. No
// backend needs to know about it, and no other operation is in flight meanwhile.
//
// `work` receives a function to call regularly, from the calling thread. If a waiting rank is lost,
// the work is finished all the same, so that a checkpoint is not lost with it; then its failure is
// returned. If `work` fails, the others learn of it when the worker leaves the group.
absl::Status RunOnOneRank(collectives::Communicator& world, uint32_t worker,
                          absl::Duration interval,
                          absl::FunctionRef<absl::Status(const std::function<void()>&)> work);

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_ONE_RANK_WORK_H_
