// Sums synchronized batch norm statistics over all ranks.
#ifndef MUSTER_TRAINER_OBJECTIVE_STATISTICS_REDUCER_H_
#define MUSTER_TRAINER_OBJECTIVE_STATISTICS_REDUCER_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "trainer/graph/execution.h"

namespace muster::train {

// Reduces through the ranks' processes or directly between their devices. Used by the training
// thread of one generation. A failed sum leaves undefined values in the plan, so callers must check
// status() before they use the results of a pass.
class CommunicatorReducer final : public nn::StatisticsReducer {
 public:
  // Reduces through the processes. If the device has its own memory, waits for it and copies values
  // through host memory.
  static CommunicatorReducer ByProcesses(collectives::Communicator* communicator,
                                         kernels::Device* device) {
    return CommunicatorReducer(communicator, device->host_memory() ? nullptr : device);
  }
  // Reduces between devices, in the order of other queued work; may be captured in a graph.
  // `devices`: null for a world of one, where nothing is reduced.
  static CommunicatorReducer ByDevices(collectives::Communicator* devices) {
    return CommunicatorReducer(devices, nullptr);
  }

  // No-ops after an error.
  void Sum(double* values, size_t count) override {
    Sum(values, count, sizeof(double), collectives::DataType::kFloat64);
  }
  void Sum(float* values, size_t count) override {
    Sum(values, count, sizeof(float), collectives::DataType::kFloat32);
  }

  // OK, or the communicator's first error; between devices, only errors of operations that could
  // not be started.
  const absl::Status& status() const { return status_; }

 private:
  CommunicatorReducer(collectives::Communicator* communicator, kernels::Device* staged)
      : communicator_(communicator), staged_(staged) {}
  void Sum(void* values, size_t count, size_t element_bytes, collectives::DataType type);

  // Both outlive the reducer. The communicator may have other operations in flight.
  collectives::Communicator* communicator_;
  kernels::Device* staged_;  // device whose memory the communicator cannot access; otherwise null
  std::vector<std::byte> stage_;
  absl::Status status_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OBJECTIVE_STATISTICS_REDUCER_H_
