#include "worker/agent/generation/devices.h"

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/gpu/fake_machine.h"

namespace muster::agent {
namespace {

using gpu::FakeMachine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kA[] = "gpu uuid=GPU-a bus=1 memory=80 used=1";
constexpr char kB[] = "gpu uuid=GPU-b bus=2 memory=80 used=1";
constexpr char kC[] = "gpu uuid=GPU-c bus=3 memory=80 used=1";

class DevicesTest : public ::testing::Test {
 protected:
  static absl::StatusOr<std::unique_ptr<Devices>> Open(const std::string& choice,
                                                       std::optional<uint32_t> slots) {
    DeviceOptions options;
    options.devices = choice;
    options.slots = slots;
    options.nvml_library = FakeMachine::Library();
    return Devices::Open(options);
  }
  // "gpu GPU-a 0" by slot.
  static std::vector<std::string> Slots(const std::string& choice,
                                        std::optional<uint32_t> slots = std::nullopt) {
    std::vector<std::string> texts;
    const auto devices = Open(choice, slots);
    EXPECT_TRUE(devices.ok()) << devices.status();
    if (!devices.ok()) return texts;
    for (const v1::Slot& slot : (*devices)->slots()) {
      EXPECT_EQ(slot.index(), texts.size());
      std::string text = slot.kind();
      if (slot.has_device()) absl::StrAppend(&text, " ", slot.uuid(), " ", slot.device().index());
      texts.push_back(text);
    }
    return texts;
  }

  FakeMachine machine_{{kA, kB, kC, "nvlink 0 1", "topology 0 1 20", "topology 0 2 50"}};
};

TEST_F(DevicesTest, SelectsDevices) {
  EXPECT_THAT(Slots("auto"), ElementsAre("gpu GPU-a 0", "gpu GPU-b 1", "gpu GPU-c 2"));
  EXPECT_THAT(Slots("auto", 1), ElementsAre("gpu GPU-a 0", "gpu GPU-b 1", "gpu GPU-c 2", "cpu"));
  EXPECT_THAT(Slots("0,2"), ElementsAre("gpu GPU-a 0", "gpu GPU-c 2"));
  EXPECT_THAT(Slots("GPU-c,0", 1), ElementsAre("gpu GPU-c 2", "gpu GPU-a 0", "cpu"));
  EXPECT_THAT(Slots("cpu", 2), ElementsAre("cpu", "cpu"));
  const auto wrong = Open("0,3", std::nullopt);
  EXPECT_TRUE(absl::IsInvalidArgument(wrong.status()));
  EXPECT_EQ(wrong.status().message(),
            "--devices=0,3: there is no GPU 3; this machine has 0 (GPU-a), 1 (GPU-b), 2 (GPU-c)");
}

TEST_F(DevicesTest, OffersVisibleGpus) {
  const auto slots = [](const std::string& choice, const std::string& visible) {
    DeviceOptions options;
    options.devices = choice;
    options.visible = visible;
    options.nvml_library = FakeMachine::Library();
    options.slots = 1;
    std::vector<std::string> texts;
    const auto devices = Devices::Open(options);
    EXPECT_TRUE(devices.ok()) << devices.status();
    if (!devices.ok()) return texts;
    for (const v1::Slot& slot : (*devices)->slots()) {
      texts.push_back(slot.has_device() ? slot.uuid() : slot.kind());
    }
    return texts;
  };
  EXPECT_THAT(slots("auto", "2,0"), ElementsAre("GPU-c", "GPU-a", "cpu"));
  EXPECT_THAT(slots("auto", "GPU-b"), ElementsAre("GPU-b", "cpu"));
  EXPECT_THAT(slots("auto", ""), ElementsAre("cpu"));
  // The flag has precedence.
  EXPECT_THAT(slots("0,1", "2"), ElementsAre("GPU-a", "GPU-b", "cpu"));
  DeviceOptions mig;
  mig.visible = "MIG-1";
  mig.nvml_library = FakeMachine::Library();
  const absl::Status status = Devices::Open(mig).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_VISIBLE_DEVICES=MIG-1: 'MIG-1' is"));
}

TEST_F(DevicesTest, UsesCpusWithoutTheLibrary) {
  DeviceOptions options;
  options.nvml_library = "libno-such-thing.so.1";
  options.slots = 3;
  EXPECT_EQ((*Devices::Open(options))->slots().size(), 3u);
  options.slots.reset();
  const auto devices = Devices::Open(options);
  ASSERT_FALSE((*devices)->slots().empty());
  EXPECT_EQ((*devices)->slots()[0].kind(), "cpu");
  options.devices = "0";
  const absl::Status none = Devices::Open(options).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr("libno-such-thing.so.1"));
}

TEST_F(DevicesTest, AutoUsesCpusWithoutGpus) {
  machine_.Become({});
  EXPECT_THAT(Slots("auto", 2), ElementsAre("cpu", "cpu"));
  machine_.Become({"init 9"});
  EXPECT_THAT(Slots("auto", 2), ElementsAre("cpu", "cpu"));
}

TEST_F(DevicesTest, ReportsGpuConnections) {
  const auto devices = Open("auto", std::nullopt);
  const v1::Device& device = (*devices)->slots()[0].device();
  EXPECT_EQ(device.name(), "Fake GPU");
  EXPECT_EQ(device.driver_version(), "580.65.06");
  ASSERT_EQ(device.links_size(), 2);
  EXPECT_EQ(device.links(0).path(), "switches");
  EXPECT_EQ(device.links(0).nvlinks(), 1u);
  EXPECT_EQ(device.links(1).path(), "system");
  EXPECT_EQ(device.links(1).nvlinks(), 0u);
}

// GPUs whose driver is too old for train jobs are offered, but not available.
TEST_F(DevicesTest, WithholdsGpusOfAnOldDriver) {
  const auto unavailable = [](const std::string& required) {
    DeviceOptions options;
    options.nvml_library = FakeMachine::Library();
    options.required_cuda = required;
    options.slots = 1;
    auto devices = *Devices::Open(options);
    EventLoop loop("test");
    std::vector<std::string> reasons;
    loop.RunAndWait([&] {
      devices->Start(loop, [](const v1::SlotReport&) {});
      for (const v1::Slot& slot : devices->ReportSlots()) reasons.push_back(slot.unavailable());
      devices.reset();
    });
    return reasons;
  };
  machine_.Become({kA, kB, "driver 550.54.15", "cuda 12040"});
  const auto old = HasSubstr("driver 550.54.15 supports CUDA 12.4, train jobs need CUDA 13.0");
  EXPECT_THAT(unavailable("13.0"), ElementsAre(old, old, ""));
  EXPECT_THAT(unavailable("12.8"), ElementsAre("", "", ""));
  EXPECT_THAT(unavailable("none"), ElementsAre("", "", ""));
  machine_.Become({kA, "cuda 13000"});
  EXPECT_THAT(unavailable("13.0"), ElementsAre("", ""));
  DeviceOptions wrong;
  wrong.required_cuda = "new";
  EXPECT_TRUE(absl::IsInvalidArgument(Devices::Open(wrong).status()));
}

TEST(DivideTest, DividesEvenly) {
  EXPECT_THAT(Divide({1, 2, 3, 8, 9}, 2), ElementsAre(ElementsAre(1, 2), ElementsAre(3, 8, 9)));
  EXPECT_THAT(Divide({1}, 2), IsEmpty());
}

// Devices that run on a loop, as in the agent.
class WatchedDevicesTest : public DevicesTest {
 protected:
  void SetUp() override {
    devices_ = *Open("0,2", 1);
    loop_.RunAndWait([this] {
      devices_->Start(loop_,
                      [this](v1::SlotReport report) { reports_.push_back(std::move(report)); });
    });
  }
  void TearDown() override {
    loop_.RunAndWait([this] { devices_.reset(); });
  }
  // The reports up to the time at which the rank's exit may be reported.
  std::vector<v1::SlotReport> Release(const std::vector<uint32_t>& slots) {
    absl::Notification done;
    std::vector<v1::SlotReport> reports;
    loop_.RunAndWait([&] {
      reports_.clear();
      devices_->Release(slots, [&] {
        reports = reports_;
        done.Notify();
      });
    });
    done.WaitForNotification();
    return reports;
  }
  void Occupy(const std::vector<uint32_t>& slots) {
    loop_.RunAndWait([&] { devices_->Occupy(slots, /*adopted=*/false); });
  }
  std::string Evidence(const std::vector<uint32_t>& slots) {
    std::string evidence;
    loop_.RunAndWait([&] { evidence = devices_->Evidence(slots); });
    return evidence;
  }

  EventLoop loop_{"test"};
  std::unique_ptr<Devices> devices_;
  std::vector<v1::SlotReport> reports_;  // used on the loop only
};

TEST_F(WatchedDevicesTest, DoesNotReportFreedMemory) {
  Occupy({0});
  EXPECT_THAT(Release({0}), IsEmpty());
  EXPECT_THAT(Release({2}), IsEmpty());
}

TEST_F(WatchedDevicesTest, ReportsHeldMemoryBeforeTheRanksExit) {
  Occupy({0, 1});
  machine_.Become({kA, kB, kC, "process 2 999999"});
  const std::vector<v1::SlotReport> reports = Release({0, 1});
  ASSERT_EQ(reports.size(), 1u);
  ASSERT_EQ(reports[0].conditions_size(), 1);
  // GPU 2 is slot 1.
  EXPECT_EQ(reports[0].conditions(0).index(), 1u);
  EXPECT_TRUE(reports[0].conditions(0).returning());
  EXPECT_THAT(reports[0].conditions(0).unavailable(), HasSubstr("memory"));
  loop_.RunAndWait([this] {
    EXPECT_EQ(devices_->ReportSlots()[1].returning(), true);
    EXPECT_EQ(devices_->ReportSlots()[0].unavailable(), "");
  });
  EXPECT_EQ(Evidence({0, 1}), "");
}

TEST_F(WatchedDevicesTest, ReportsLostGpuAsEvidence) {
  Occupy({0, 1});
  machine_.Become({std::string(kA) + " lost", kB, kC});
  ASSERT_FALSE(Release({0}).empty());
  EXPECT_EQ(Evidence({0}), "GPU 0 (GPU-a): lost: it has fallen off the bus");
  EXPECT_EQ(Evidence({1}), "");
  EXPECT_EQ(Evidence({2}), "");
}

}  // namespace
}  // namespace muster::agent
