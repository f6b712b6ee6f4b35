#include "collectives/communicator.h"

namespace muster::collectives {

size_t SizeOf(DataType type) {
  switch (type) {
    case DataType::kFloat64:
    case DataType::kInt64:
      return 8;
    case DataType::kFloat32:
    case DataType::kInt32:
      return 4;
    case DataType::kBfloat16:
    case DataType::kFloat16:
      return 2;
    case DataType::kUint8:
      return 1;
  }
  return 1;
}

}  // namespace muster::collectives
