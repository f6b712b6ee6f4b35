// For tests: a host stream that runs each task when it is queued.
#ifndef MUSTER_KERNELS_TESTING_IMMEDIATE_STREAM_H_
#define MUSTER_KERNELS_TESTING_IMMEDIATE_STREAM_H_

#include <thread>

#include "kernels/testing/host_stream_abi.h"

namespace muster::kernels {

class ImmediateStream {
 public:
  // The handle that fakes use as cudaStream_t.
  HostStreamAbi* native() { return &abi_; }

 private:
  HostStreamAbi abi_ = {[](HostStreamAbi*, HostStreamTask task) {
    while (task.step(task.data) == 0) std::this_thread::yield();
    task.release(task.data);
  }};
};

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_IMMEDIATE_STREAM_H_
