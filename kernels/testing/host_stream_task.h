// For fake GPU libraries: queues a function in a host stream.
#ifndef MUSTER_KERNELS_TESTING_HOST_STREAM_TASK_H_
#define MUSTER_KERNELS_TESTING_HOST_STREAM_TASK_H_

#include <functional>
#include <utility>
#include <vector>

#include "kernels/testing/host_stream_abi.h"

namespace muster::kernels {

// `stream` is a HostStreamAbi. `step` and `accesses`: see HostStreamTask.
inline void EnqueueHostTask(void* stream, std::function<bool()> step,
                            const std::vector<HostStreamAccess>& accesses) {
  using Step = std::function<bool()>;
  auto* const queue = static_cast<HostStreamAbi*>(stream);
  queue->enqueue(queue, {.step = [](void* data) { return (*static_cast<Step*>(data))() ? 1 : 0; },
                         .release = [](void* data) { delete static_cast<Step*>(data); },
                         .data = new Step(std::move(step)),
                         .accesses = accesses.data(),
                         .access_count = accesses.size()});
}

}  // namespace muster::kernels

#endif  // MUSTER_KERNELS_TESTING_HOST_STREAM_TASK_H_
