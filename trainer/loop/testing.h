// Test support: worlds whose ranks are threads of the test, and updates without a training.
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

// Communicators by rank. If one cannot be created, the test fails and its entry is null.
std::vector<std::unique_ptr<collectives::Communicator>> MakeLoopbackGroup(uint32_t size);

// Process groups by rank, with such a group as WORLD.
std::vector<ProcessGroups> MakeLoopbackWorld(uint32_t size);

// Computes the scalars of consecutive updates on the CPU, as a training does.
class TestUpdates {
 public:
  explicit TestUpdates(const kernels::UpdateRules& rules);

  // Returns the scalars of step number `step` (from 0) for gradients [count], which are scaled by
  // `loss_scale`.
  const kernels::UpdateScalars* Decide(double learning_rate, uint64_t step, const float* gradients,
                                       size_t count, double loss_scale = 1);
  // Norm of the last gradients, if the rules clip.
  std::optional<double> gradient_norm() const;

 private:
  const bool clips_;
  const std::unique_ptr<UpdateController> control_;
  double gradient_norm_ = 0;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_TESTING_H_
