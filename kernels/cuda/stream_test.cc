#include "kernels/cuda/stream.h"

#include <memory>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

struct MusterCudaEvent {};

namespace muster::kernels::cuda {
namespace {

// Of the stream of a device whose queue is full: the next call that adds to it waits.
struct FullQueue {
  absl::Notification waits;
  absl::Notification has_space;
  int events = 0;  // that exist
};
FullQueue* queue = nullptr;

MusterCudaApi MakeApi() {
  MusterCudaApi api = {};
  api.enter = [](MusterCudaContext*) {};
  api.stream = [](MusterCudaContext*) -> void* { return nullptr; };
  api.use_device = [](const MusterCudaContext*) -> const char* { return nullptr; };
  api.make_stream = [](void**) -> const char* { return nullptr; };
  api.release_stream = [](void*) -> const char* { return nullptr; };
  api.make_stream_event = [](MusterCudaEvent** event) -> const char* {
    *event = new MusterCudaEvent;
    ++queue->events;
    return nullptr;
  };
  api.release_stream_event = [](MusterCudaEvent* event) {
    --queue->events;
    delete event;
  };
  api.record_on_stream = [](void*, MusterCudaEvent*) -> const char* { return nullptr; };
  api.stream_wait_event = [](void*, MusterCudaEvent*) -> const char* {
    queue->waits.Notify();
    queue->has_space.WaitForNotification();
    return nullptr;
  };
  api.query_stream_event = [](MusterCudaEvent*, int* reached) -> const char* {
    *reached = 1;
    return nullptr;
  };
  return api;
}

// The thread that polls marks also ends the kernels that keep the queue full.
TEST(CudaStream, MarksCanBePolledWhileTheQueueIsFull) {
  FullQueue full;
  queue = &full;
  const MusterCudaApi api = MakeApi();
  const Capture capture;
  auto flag = CpuDevice().AllocateHost(sizeof(std::atomic<uint32_t>));
  ASSERT_TRUE(flag.ok()) << flag.status();
  auto stream = MakeStream(api, nullptr, &capture, *std::move(flag));
  ASSERT_TRUE(stream.ok()) << stream.status();
  const absl::StatusOr<DeviceStream::Mark> mark = (*stream)->Record();
  ASSERT_TRUE(mark.ok()) << mark.status();
  std::thread compute([&] { EXPECT_TRUE((*stream)->MakeComputeWait(*mark).ok()); });
  full.waits.WaitForNotification();
  EXPECT_TRUE(*(*stream)->Reached(*mark));
  EXPECT_EQ(full.events, 1) << "the compute thread still uses the event";
  // It is not the event that the next mark gets, either.
  EXPECT_TRUE((*stream)->Record().ok());
  EXPECT_EQ(full.events, 2);
  full.has_space.Notify();
  compute.join();
  EXPECT_EQ(full.events, 1);
  stream->reset();
  EXPECT_EQ(full.events, 0);
}

}  // namespace
}  // namespace muster::kernels::cuda
