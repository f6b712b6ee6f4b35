#include "worker/agent/generation/launcher.h"

#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/agent/storage/data_directory.h"

namespace muster::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // Short, because the directory must leave room for the path of a socket.
    char path[] = "/tmp/launcher-XXXXXX";
    folder_ = mkdtemp(path);
    auto directory = DataDirectory::Open(folder_ + "/data");
    ASSERT_TRUE(directory.ok()) << directory.status();
    directory_ = *std::move(directory);
    context_.directory = directory_.get();
    context_.mpi_binary = "/opt/muster-mpi";
    context_.environment.node_name = "gpu07";
    context_.environment.interface = "eth1";
    launch_.set_job_id("solver-x7k2q");
    launch_.set_generation(2);
    launch_.mutable_spec()->set_launcher("mpi");
    instructions_.environment = {"A=1", "PATH=/nowhere:" + folder_ + "/bin"};
  }
  void TearDown() override {
    directory_ = nullptr;
    std::filesystem::remove_all(folder_);
  }

  void Install(const std::string& program) {
    std::filesystem::create_directories(folder_ + "/bin");
    const std::string path = folder_ + "/bin/" + program;
    std::ofstream(path) << "#!/bin/sh\n";
    chmod(path.c_str(), 0700);
  }
  std::string Problem(uint32_t local_rank) {
    v1::RankPlacement placement;
    placement.set_local_rank(local_rank);
    const absl::Status status =
        MakeLauncher(context_, launch_)->CheckNode(placement, instructions_);
    EXPECT_TRUE(status.ok() || absl::IsFailedPrecondition(status)) << status;
    return std::string(status.message());
  }

  std::string folder_;
  std::unique_ptr<DataDirectory> directory_;
  GenerationContext context_;
  v1::Launch launch_;
  shim::Instructions instructions_;
};

TEST_F(LauncherTest, RunsTheProgramItselfByDefault) {
  for (const char* launcher : {"", "muster"}) {
    launch_.mutable_spec()->set_launcher(launcher);
    EXPECT_THAT(MakeLauncher(context_, launch_)->CommandFor({"./solver", "-v"}),
                ElementsAre("./solver", "-v"));
    EXPECT_EQ(Problem(0), "");
  }
}

TEST_F(LauncherTest, RunsMusterMpiAsTheMainProcess) {
  const std::string node = directory_->Generation("solver-x7k2q", 2) + "/mpi";
  EXPECT_THAT(MakeLauncher(context_, launch_)->CommandFor({"./solver", "-v"}),
              ElementsAre("/opt/muster-mpi", "rank", node, "eth1", "", "./solver", "-v"));
  context_.environment.memory_dir = "/dev/shm/muster-1";
  EXPECT_THAT(MakeLauncher(context_, launch_)->CommandFor({"./solver"}),
              ElementsAre("/opt/muster-mpi", "rank", node, "eth1",
                          "/dev/shm/muster-1/solver-x7k2q/mpi-2", "./solver"));
}

TEST_F(LauncherTest, NamesTheDirectoriesThatRanksShare) {
  const std::string mpi = directory_->Generation("solver-x7k2q", 2) + "/mpi";
  EXPECT_THAT(MakeLauncher(context_, launch_)->Directories(), ElementsAre(mpi));
  context_.environment.memory_dir = "/dev/shm/muster-1";
  EXPECT_THAT(MakeLauncher(context_, launch_)->Directories(),
              ElementsAre("/dev/shm/muster-1/solver-x7k2q", mpi));
  launch_.mutable_spec()->clear_launcher();
  EXPECT_THAT(MakeLauncher(context_, launch_)->Directories(), ElementsAre());
  launch_.mutable_spec()->mutable_train();
  EXPECT_THAT(MakeLauncher(context_, launch_)->Directories(),
              ElementsAre("/dev/shm/muster-1/solver-x7k2q"));
}

TEST_F(LauncherTest, NamesTheMissingProgramTheNodeAndThePackage) {
  EXPECT_EQ(Problem(0),
            "launcher mpi needs Open MPI on each node, but mpirun was not found on gpu07 in "
            "PATH=/nowhere:" +
                folder_ + "/bin; install it there (Debian's package openmpi-bin)");
  Install("mpirun");
  EXPECT_EQ(Problem(0), "");
  launch_.set_node_rank(1);
  EXPECT_THAT(Problem(0), HasSubstr("but orted was not found on gpu07"));
  Install("orted");
  EXPECT_EQ(Problem(0), "");
}

TEST_F(LauncherTest, OnlyTheFirstRankOfANodeNeedsOpenMpi) { EXPECT_EQ(Problem(1), ""); }

}  // namespace
}  // namespace muster::agent
