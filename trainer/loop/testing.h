// For tests: a world of ranks that are threads of the test, and updates without a training.
#ifndef MUSTER_TRAINER_LOOP_TESTING_H_
#define MUSTER_TRAINER_LOOP_TESTING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/communicator.h"
#include "trainer/optim/optimizer.h"
#include "trainer/optim/update_controller.h"
#include "trainer/strategy/process_groups.h"

namespace muster::train {

// By rank. A failed test, and null, where a communicator cannot be made.
std::vector<std::unique_ptr<collectives::Communicator>> MakeLoopbackGroup(uint32_t size);

// By rank: a WORLD of such a group.
std::vector<ProcessGroups> MakeLoopbackWorld(uint32_t size);

// Decides updates on the processor as a training does, one after the other.
class TestUpdates {
 public:
  explicit TestUpdates(const kernels::UpdateRules& rules);

  // Of step number `step`, counted from 0, with these gradients [count], which are `loss_scale`
  // times as large as they are.
  const kernels::UpdateScalars* Decide(double learning_rate, uint64_t step, const float* gradients,
                                       size_t count, double loss_scale = 1);
  // Of the gradients of the last one, where the rules clip.
  std::optional<double> gradient_norm() const;

 private:
  const bool clips_;
  const std::unique_ptr<UpdateController> control_;
  double gradient_norm_ = 0;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_TESTING_H_
