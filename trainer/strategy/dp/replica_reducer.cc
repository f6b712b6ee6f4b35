#include "trainer/strategy/dp/replica_reducer.h"

#include <cstring>

namespace muster::train {

template <typename T>
void ReplicaReducer::SumAll(T* values, size_t count) {
  const size_t bytes = count * sizeof(T);
  T* own = values;
  if (!device_.host_memory()) {
    if (stage_.size() < bytes) stage_.resize(bytes);
    own = reinterpret_cast<T*>(stage_.data());
    device_.CopyToHost(own, values, bytes);
  }
  sum_.arrays_[replica_] = own;
  sum_.barrier_.arrive_and_wait();
  if (replica_ == 0) {
    for (size_t from = 1; from < sum_.arrays_.size(); ++from) {
      const T* const other = static_cast<const T*>(sum_.arrays_[from]);
      for (size_t i = 0; i < count; ++i) own[i] += other[i];
    }
    if (own != values) device_.CopyToDevice(values, own, bytes);
    if (sum_.outer_ != nullptr) {
      sum_.outer_->Sum(values, count);
      if (own != values) device_.CopyToHost(own, values, bytes);
    }
  }
  sum_.barrier_.arrive_and_wait();
  if (replica_ != 0) {
    std::memcpy(own, sum_.arrays_[0], bytes);
    if (own != values) device_.CopyToDevice(values, own, bytes);
  }
  // From here on the first replica may modify its array again.
  sum_.barrier_.arrive_and_wait();
}

template void ReplicaReducer::SumAll<double>(double* values, size_t count);
template void ReplicaReducer::SumAll<float>(float* values, size_t count);

}  // namespace muster::train
