// Sums over all ranks for a plan whose batch norm's statistics are of all ranks' rows.
#ifndef MUSTER_TRAINER_OBJECTIVE_STATISTICS_REDUCER_H_
#define MUSTER_TRAINER_OBJECTIVE_STATISTICS_REDUCER_H_

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "collectives/communicator.h"
#include "kernels/device.h"
#include "trainer/graph/execution.h"

namespace muster::train {

// By the ranks' processes, or by their devices. For the training thread of one generation. A failed
// sum leaves worthless values to the plan, so that whoever runs the plan asks for the status before
// it uses what came of it.
class CommunicatorReducer final : public nn::StatisticsReducer {
 public:
  // The processes sum: values go through their memory where the device has its own, and the device
  // is waited for.
  static CommunicatorReducer ByProcesses(collectives::Communicator* communicator,
                                         kernels::Device* device) {
    return CommunicatorReducer(communicator, device->host_memory() ? nullptr : device);
  }
  // The devices sum, as what else they are given to compute; it may be recorded. null: a world of
  // one, where there is nothing to add.
  static CommunicatorReducer ByDevices(collectives::Communicator* devices) {
    return CommunicatorReducer(devices, nullptr);
  }

  // Do nothing after an error.
  void Sum(double* values, size_t count) override {
    Sum(values, count, sizeof(double), collectives::DataType::kFloat64);
  }
  void Sum(float* values, size_t count) override {
    Sum(values, count, sizeof(float), collectives::DataType::kFloat32);
  }

  // OK, or the communicator's first error; of devices, of what they could not begin.
  const absl::Status& status() const { return status_; }

 private:
  CommunicatorReducer(collectives::Communicator* communicator, kernels::Device* staged)
      : communicator_(communicator), staged_(staged) {}
  void Sum(void* values, size_t count, size_t element_bytes, collectives::DataType type);

  // Outlive the reducer; the communicator may have other operations under way.
  collectives::Communicator* communicator_;
  kernels::Device* staged_;  // whose memory the communicator does not reach; else null
  std::vector<std::byte> stage_;
  absl::Status status_;
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_OBJECTIVE_STATISTICS_REDUCER_H_
