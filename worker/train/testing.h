// For tests: a world of ranks that are threads of the test.
#ifndef MUSTER_WORKER_TRAIN_TESTING_H_
#define MUSTER_WORKER_TRAIN_TESTING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/collectives/communicator.h"

namespace muster::train {

// By rank. A failed test, and null, where a communicator cannot be made.
std::vector<std::unique_ptr<collectives::Communicator>> MakeLoopbackGroup(uint32_t size);

}  // namespace muster::train

#endif  // MUSTER_WORKER_TRAIN_TESTING_H_
