#include "trainer/strategy/zero1/sharded_parameters.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "kernels/aligned_floats.h"

namespace muster::train {

ShardedParameters::ShardedParameters(collectives::Communicator* communicator,
                                     kernels::Device* device, bool by_devices, size_t elements)
    : communicator_(communicator),
      device_(*device),
      by_devices_(by_devices),
      shares_(elements, communicator->size()) {}

absl::StatusOr<std::unique_ptr<ShardedParameters>> ShardedParameters::Create(
    collectives::Communicator* communicator, kernels::Device* device, bool by_devices,
    size_t elements) {
  std::unique_ptr<ShardedParameters> shares(
      new ShardedParameters(communicator, device, by_devices, elements));
  RETURN_IF_ERROR(shares->Allocate());
  return shares;
}

absl::Status ShardedParameters::Allocate() {
  ASSIGN_OR_RETURN(memory_, communicator_->Allocate(shares_.padded() * sizeof(float)));
  gathered_ = static_cast<float*>(memory_->data());
  if (staged()) {
    ASSIGN_OR_RETURN(own_parameters_,
                     kernels::DeviceFloats::Create(device_, shares_.elements(), "parameters"));
    parameters_ = own_parameters_.get();
    std::fill_n(gathered_, shares_.padded(), 0.0f);
  } else {
    parameters_ = gathered_;
    device_.Zero(gathered_, shares_.padded() * sizeof(float));
  }
  return absl::OkStatus();
}

absl::Status ShardedParameters::Gather() {
  const Shares::Share own = this->own();
  if (staged()) {
    device_.CopyToHost(gathered_ + own.begin, parameters_ + own.begin, own.count() * sizeof(float));
  }
  RETURN_IF_ERROR(communicator_
                      ->AllGather(gathered_ + communicator_->rank() * shares_.length(), gathered_,
                                  shares_.length(), collectives::DataType::kFloat32)
                      ->Join());
  if (staged()) device_.CopyToDevice(parameters_, gathered_, shares_.elements() * sizeof(float));
  return absl::OkStatus();
}

absl::Status ShardedParameters::Sum(double* sum) {
  const auto reduce = [this](double* value) {
    return communicator_
        ->AllReduce(value, value, 1, collectives::DataType::kFloat64, collectives::ReduceOp::kSum)
        ->Join();
  };
  if (!staged()) return reduce(sum);
  double value = 0;
  device_.CopyToHost(&value, sum, sizeof(value));
  RETURN_IF_ERROR(reduce(&value));
  device_.CopyToDevice(sum, &value, sizeof(value));
  return absl::OkStatus();
}

}  // namespace muster::train
