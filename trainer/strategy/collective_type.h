// What ranks send of their gradients.
#ifndef MUSTER_TRAINER_STRATEGY_COLLECTIVE_TYPE_H_
#define MUSTER_TRAINER_STRATEGY_COLLECTIVE_TYPE_H_

#include <cstdint>

#include "collectives/communicator.h"
#include "kernels/data_type.h"

namespace muster::train {

constexpr collectives::DataType CollectiveType(kernels::DataType type) {
  switch (type) {
    case kernels::DataType::kBfloat16:
      return collectives::DataType::kBfloat16;
    case kernels::DataType::kFloat16:
      return collectives::DataType::kFloat16;
    case kernels::DataType::kFloat32:
      break;
  }
  return collectives::DataType::kFloat32;
}

// What each rank's gradients are divided by before they are added, and the sums are multiplied by:
// in float16 the sum of so many ranks' is to overflow no sooner than they do.
constexpr float RankScale(kernels::DataType type, uint32_t ranks) {
  return type == kernels::DataType::kFloat16 ? static_cast<float>(ranks) : 1.0f;
}

}  // namespace muster::train

#endif  // MUSTER_TRAINER_STRATEGY_COLLECTIVE_TYPE_H_
