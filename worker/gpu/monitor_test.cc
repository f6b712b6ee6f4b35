#include "worker/gpu/monitor.h"

#include <memory>

#include "absl/synchronization/notification.h"
#include "common/metrics/differences.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/text_serializer.h"
#include "worker/gpu/fake_machine.h"
#include "worker/metric_families.h"

namespace muster::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kGpu[] = "gpu uuid=GPU-a bus=1 memory=80 used=1 util=50 celsius=41 watts=300 ecc=0";

// Waits for readings through the monitor's own calls, without clocks or sleeps.
class MonitorTest : public ::testing::Test {
 protected:
  void Watch(const char* library = "libfake_nvml.so") {
    auto nvml = machine_.Open(library);
    std::vector<Gpu> gpus = *Discover(*nvml);
    monitor_ = std::make_unique<Monitor>(std::move(nvml), std::move(gpus), driver_problem_, [this] {
      absl::MutexLock lock(&mutex_);
      ++changes_;
    });
  }
  // Returns once each device has been polled.
  void AwaitPoll(const std::vector<size_t>& released = {}) {
    absl::Notification polled;
    monitor_->Release(released, [&polled] { polled.Notify(); });
    polled.WaitForNotification();
  }
  void AwaitChanges(int count) {
    absl::MutexLock lock(&mutex_);
    const auto enough = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return changes_ >= count; };
    mutex_.Await(absl::Condition(&enough));
  }
  std::string Scrape() const {
    return prometheus::TextSerializer().Serialize(GpuMetrics(*monitor_).Collect());
  }

  std::string driver_problem_;
  FakeMachine machine_{{kGpu, "gpu uuid=GPU-b bus=2 memory=80 clocks=0x44"}};
  absl::Mutex mutex_;
  int changes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Monitor> monitor_;
};

TEST_F(MonitorTest, DetectsLostAndRecoveredGpu) {
  Watch();
  EXPECT_EQ(monitor_->States()[0].problem, "");
  machine_.Become({std::string(kGpu) + " lost", "gpu uuid=GPU-b bus=2 memory=80"});
  AwaitPoll();
  EXPECT_EQ(monitor_->States()[0].problem, "lost: it has fallen off the bus");
  EXPECT_EQ(monitor_->States()[1].problem, "");
  AwaitChanges(1);
  machine_.Become({kGpu, "gpu uuid=GPU-b bus=2 memory=80"});
  AwaitPoll();
  EXPECT_EQ(monitor_->States()[0].problem, "");
  AwaitChanges(2);
}

TEST_F(MonitorTest, ReportsTheDriversProblemForEachDevice) {
  driver_problem_ = "driver too old";
  Watch();
  EXPECT_EQ(monitor_->States()[0].problem, "driver too old");
  EXPECT_EQ(monitor_->States()[1].problem, "driver too old");
  EXPECT_THAT(Scrape(), HasSubstr(R"(muster_gpu_healthy{gpu="0",uuid="GPU-a"} 0)"));
  machine_.Become({std::string(kGpu) + " lost", "gpu uuid=GPU-b bus=2 memory=80"});
  AwaitPoll();
  EXPECT_EQ(monitor_->States()[0].problem, "lost: it has fallen off the bus");
}

TEST_F(MonitorTest, ReceivesXids) {
  Watch();
  monitor_->Occupy(1, /*fresh=*/true);
  machine_.Become({kGpu, "gpu uuid=GPU-b bus=2 memory=80", "xid 1 31", "xid 1 79"});
  AwaitChanges(1);
  const DeviceState state = monitor_->States()[1];
  EXPECT_THAT(state.problem, HasSubstr("Xid 79"));
  EXPECT_THAT(state.rank_xids, ElementsAre(31, 79));
  EXPECT_EQ(monitor_->States()[0].problem, "");
  EXPECT_THAT(Scrape(),
              HasSubstr(R"(muster_gpu_xid_errors_total{gpu="1",uuid="GPU-b",xid="79"} 1)"));
  EXPECT_THAT(metrics::Differences(GpuMetrics(*monitor_).Collect(), kGpuFamilies), IsEmpty());
}

TEST_F(MonitorTest, TracksTheMemoryOfARank) {
  Watch();
  monitor_->Occupy(0, /*fresh=*/true);
  machine_.Become({kGpu, "gpu uuid=GPU-b bus=2 memory=80", "process 0 999999"});
  AwaitPoll({0});
  EXPECT_EQ(monitor_->States()[0].memory, MemoryWatch::State::kReturning);
  EXPECT_EQ(monitor_->States()[1].memory, MemoryWatch::State::kFree);
  machine_.Become({kGpu, "gpu uuid=GPU-b bus=2 memory=80"});
  AwaitPoll();
  EXPECT_EQ(monitor_->States()[0].memory, MemoryWatch::State::kFree);
}

TEST_F(MonitorTest, ExportsReadings) {
  Watch();
  const std::string text = Scrape();
  EXPECT_THAT(text, HasSubstr(R"(muster_gpu_info{gpu="0",uuid="GPU-a",name="Fake GPU",)"
                              R"(pci_bus_id="0000:01:00.0",driver_version="580.65.06"} 1)"));
  const std::string a = R"({gpu="0",uuid="GPU-a"})";
  EXPECT_THAT(text, HasSubstr("muster_gpu_healthy" + a + " 1\n"));
  EXPECT_THAT(text, HasSubstr("muster_gpu_utilization_ratio" + a + " 0.5\n"));
  EXPECT_THAT(text, HasSubstr("muster_gpu_memory_used_bytes" + a + " 1073741824\n"));
  EXPECT_THAT(text, HasSubstr("muster_gpu_memory_total_bytes" + a + " 85899345920\n"));
  EXPECT_THAT(text, HasSubstr("muster_gpu_temperature_celsius" + a + " 41\n"));
  EXPECT_THAT(text, HasSubstr("muster_gpu_power_watts" + a + " 300\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE muster_gpu_ecc_errors_total counter\n"));
  EXPECT_THAT(text, HasSubstr(R"(throttled{gpu="1",uuid="GPU-b",reason="hw_thermal"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(throttled{gpu="1",uuid="GPU-b",reason="sw_power_cap"} 1)"));
  EXPECT_THAT(text, HasSubstr(R"(throttled{gpu="1",uuid="GPU-b",reason="sw_thermal"} 0)"));

  machine_.Become({std::string(kGpu) + " lost", "gpu uuid=GPU-b bus=2 memory=80"});
  AwaitPoll();
  EXPECT_THAT(Scrape(), HasSubstr("muster_gpu_healthy" + a + " 0\n"));
  EXPECT_THAT(Scrape(), Not(HasSubstr("muster_gpu_temperature_celsius" + a)));
}

TEST_F(MonitorTest, ToleratesOldDriver) {
  Watch("libfake_nvml_old.so");
  AwaitPoll();
  EXPECT_EQ(monitor_->States()[0].problem, "");
  EXPECT_THAT(Scrape(), Not(HasSubstr("muster_gpu_power_watts")));
  EXPECT_THAT(Scrape(), HasSubstr("muster_gpu_temperature_celsius"));
}

}  // namespace
}  // namespace muster::gpu
