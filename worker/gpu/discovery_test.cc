#include "worker/gpu/discovery.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/gpu/fake_machine.h"

namespace muster::gpu {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(NvmlTest, ReportsMissingLibraryOrDriver) {
  const auto none = Nvml::Open("libno-such-thing.so.1");
  EXPECT_TRUE(absl::IsNotFound(none.status()));
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("libno-such-thing.so.1"));

  FakeMachine machine({"init 9"});
  const auto no_driver = Nvml::Open(FakeMachine::Library());
  EXPECT_TRUE(absl::IsUnavailable(no_driver.status()));
  EXPECT_THAT(std::string(no_driver.status().message()), HasSubstr("Driver Not Loaded"));
}

TEST(NvmlTest, ToleratesMissingFunctions) {
  FakeMachine machine({"gpu uuid=GPU-a bus=1 memory=80 used=1 watts=300 celsius=41 clocks=0x40"});
  const auto nvml = machine.Open("libfake_nvml_old.so");
  const NvmlDevice gpu = *nvml->DeviceAt(0);
  EXPECT_THAT(nvml->missing(), Contains("nvmlDeviceGetPowerUsage"));
  EXPECT_TRUE(absl::IsUnimplemented(nvml->PowerWatts(gpu).status()));
  EXPECT_TRUE(absl::IsUnimplemented(nvml->Processes(gpu).status()));
  EXPECT_TRUE(absl::IsUnimplemented(nvml->ListenForXids({gpu})));
  EXPECT_EQ(nvml->DriverVersion(), "");
  EXPECT_EQ(*nvml->TemperatureCelsius(gpu), 41);
  // Found by its old name.
  EXPECT_EQ(*nvml->ClockReasons(gpu), NVML_CLOCKS_HW_THERMAL);
  EXPECT_THAT(nvml->missing(), Not(Contains("nvmlDeviceGetCurrentClocksEventReasons")));
  EXPECT_EQ(Discover(*nvml)->size(), 1u);
}

TEST(NvmlTest, ReadsAllProcesses) {
  std::vector<std::string> lines = {"gpu uuid=GPU-a bus=1 memory=80"};
  for (int i = 0; i < 64; ++i) lines.push_back(absl::StrCat("process 0 ", 100 + i));
  FakeMachine machine(lines);
  const auto nvml = machine.Open();
  EXPECT_EQ(nvml->Processes(*nvml->DeviceAt(0))->size(), 64u);
}

TEST(DiscoveryTest, OrdersGpusByBusId) {
  FakeMachine machine({"gpu uuid=GPU-b bus=c1 memory=40", "gpu uuid=GPU-a bus=1b memory=80",
                       "nvlink 0 1", "nvlink 0 1", "nvlink 1 0", "nvlink 1 -", "topology 0 1 10"});
  const std::string sys = testing::TempDir() + "/sys";
  const std::string place = sys + "/bus/pci/devices/0000:1b:00.0";
  std::filesystem::create_directories(place);
  std::ofstream(place + "/numa_node") << "1\n";
  std::ofstream(place + "/local_cpulist") << "4-6,12\n";
  const auto nvml = machine.Open();
  const std::vector<Gpu> gpus = *Discover(*nvml, sys);
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].index, 0u);
  EXPECT_EQ(gpus[0].uuid, "GPU-a");
  EXPECT_EQ(gpus[0].name, "Fake GPU");
  EXPECT_EQ(gpus[0].pci_bus_id, "0000:1b:00.0");
  EXPECT_EQ(gpus[0].memory_bytes, uint64_t{80} << 30);
  EXPECT_EQ(gpus[0].numa_node, 1);
  EXPECT_THAT(gpus[0].cpus, ElementsAre(4, 5, 6, 12));
  EXPECT_THAT(gpus[0].nvlinks, UnorderedElementsAre(Pair(1, 1)));
  EXPECT_EQ(gpus[0].nvswitch_links, 1u);
  EXPECT_THAT(gpus[0].paths, UnorderedElementsAre(Pair(1, "switch")));
  EXPECT_EQ(gpus[1].uuid, "GPU-b");
  EXPECT_EQ(gpus[1].numa_node, -1);
  EXPECT_THAT(gpus[1].cpus, IsEmpty());
  EXPECT_THAT(gpus[1].nvlinks, UnorderedElementsAre(Pair(0, 2)));
}

TEST(DiscoveryTest, SkipsLostGpus) {
  FakeMachine machine({"gpu uuid=GPU-a bus=1 memory=80 lost", "gpu uuid=GPU-b bus=2 memory=80"});
  const auto nvml = machine.Open();
  const std::vector<Gpu> gpus = *Discover(*nvml);
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].uuid, "GPU-b");
}

class SelectTest : public ::testing::Test {
 protected:
  SelectTest() : gpus_(4) {
    const char* const uuids[] = {"GPU-aa1", "GPU-aa2", "GPU-b", "GPU-c"};
    for (uint32_t i = 0; i < gpus_.size(); ++i) {
      gpus_[i].index = i;
      gpus_[i].uuid = uuids[i];
    }
  }
  std::vector<uint32_t> Chosen(const char* choice) const {
    std::vector<uint32_t> indices;
    const auto chosen = Select(choice, gpus_);
    EXPECT_TRUE(chosen.ok()) << chosen.status();
    for (const Gpu& gpu : chosen.value_or(std::vector<Gpu>())) indices.push_back(gpu.index);
    return indices;
  }
  std::string Error(const char* choice) const {
    const auto chosen = Select(choice, gpus_);
    EXPECT_TRUE(absl::IsInvalidArgument(chosen.status())) << choice;
    return std::string(chosen.status().message());
  }

  std::vector<Gpu> gpus_;
};

TEST_F(SelectTest, SelectsByIndexAndUuid) {
  EXPECT_THAT(Chosen("0,1,3"), ElementsAre(0, 1, 3));
  EXPECT_THAT(Chosen("3, 0"), ElementsAre(3, 0));
  EXPECT_THAT(Chosen("GPU-aa2,2"), ElementsAre(1, 2));
  EXPECT_THAT(Chosen("GPU-b"), ElementsAre(2));
}

TEST_F(SelectTest, ErrorsNameExistingGpus) {
  const std::string known = "this machine has 0 (GPU-aa1), 1 (GPU-aa2), 2 (GPU-b), 3 (GPU-c)";
  EXPECT_EQ(Error("0,7"), "there is no GPU 7; " + known);
  EXPECT_EQ(Error("1,GPU-aa2"), "GPU 1 is listed twice; " + known);
  EXPECT_EQ(Error("GPU-a"), "'GPU-a' matches several GPUs; " + known);
  EXPECT_EQ(Error("0,,1"), "'' is neither an index nor a UUID of a GPU; " + known);
  EXPECT_EQ(Error("-1"), "'-1' is neither an index nor a UUID of a GPU; " + known);
  EXPECT_THAT(Error("fast"), HasSubstr("'fast' is neither"));
  gpus_.clear();
  EXPECT_EQ(Error("0"), "there is no GPU 0; this machine has no GPU");
}

TEST_F(SelectTest, VisibleDevicesAreThoseThatCudaWouldUse) {
  const auto visible = [this](const char* variable) {
    std::vector<uint32_t> indices;
    const auto gpus = Visible(variable, gpus_);
    EXPECT_TRUE(gpus.ok()) << gpus.status();
    for (const Gpu& gpu : gpus.value_or(std::vector<Gpu>())) indices.push_back(gpu.index);
    return indices;
  };
  EXPECT_THAT(visible("3, 1"), ElementsAre(3, 1));
  EXPECT_THAT(visible("GPU-aa2,GPU-c"), ElementsAre(1, 3));
  EXPECT_THAT(visible(""), IsEmpty());
  EXPECT_THAT(visible("-1"), IsEmpty());
  // Slurm's value for a job step without GPUs.
  EXPECT_THAT(visible("NoDevFiles"), IsEmpty());
  // The list ends at an unknown, ambiguous or repeated entry.
  EXPECT_THAT(visible("0,9,1"), ElementsAre(0));
  EXPECT_THAT(visible("2,GPU-aa,1"), ElementsAre(2));
  EXPECT_THAT(visible("1,1,2"), ElementsAre(1));
}

TEST_F(SelectTest, VisibleDevicesMustNotBeMigInstances) {
  for (const char* variable : {"MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f", "0,MIG-GPU-b/1/0"}) {
    const absl::Status status = Visible(variable, gpus_).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << variable;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is a MIG instance"));
  }
}

TEST(CpuListTest, ParsesListsOfSysfs) {
  EXPECT_THAT(ParseCpuList("0-2,8"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(ParseCpuList(""), IsEmpty());
  EXPECT_THAT(ParseCpuList("x,3,1-y"), ElementsAre(3));
}

TEST(ParseRequiredCudaTest, ReadsVersions) {
  EXPECT_EQ(*ParseRequiredCuda("12.8"), 12080);
  EXPECT_EQ(*ParseRequiredCuda("13.0"), 13000);
  EXPECT_EQ(*ParseRequiredCuda("none"), 0);
  EXPECT_TRUE(ParseRequiredCuda("auto").ok());
  for (const char* wrong : {"", "13", "13.", "13.0.1", "-1.0", "new"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseRequiredCuda(wrong).status())) << wrong;
  }
}

TEST(DriverProblemTest, ComparesMajorVersions) {
  struct Case {
    int required;
    std::optional<int> supported;
    bool good;
  };
  for (const Case& c :
       {Case{13000, 13000, true}, Case{13010, 13000, true}, Case{13000, 12080, false},
        Case{12080, 13000, true}, Case{12080, 12020, true}, Case{12080, 11080, false},
        Case{0, 11000, true}, Case{13000, std::nullopt, true}}) {
    EXPECT_EQ(DriverProblem(c.required, c.supported, "1.2").empty(), c.good)
        << c.required << " on " << c.supported.value_or(0);
  }
}

TEST(DriverProblemTest, NamesTheRemedies) {
  EXPECT_EQ(DriverProblem(13000, 12040, "550.54.15"),
            "driver 550.54.15 supports CUDA 12.4, train jobs need CUDA 13.0: install driver "
            "580.65.06 or newer, or set --required-cuda=none if this node runs command jobs only");
}

}  // namespace

}  // namespace muster::gpu
