#include "worker/mpi/open_mpi.h"

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::mpi {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const NodeOptions kNode = {.program_folder = "/opt/muster/bin",
                           .directory = "/data/mpi",
                           .interface = "eth1",
                           .shared_memory = "/shm"};

Environment ForProgram(const Environment& own, const Environment& launched,
                       bool oversubscribed = false) {
  return ProgramEnvironment(own, launched, kNode, {"./solver", "-n", "3"}, oversubscribed);
}

TEST(HostFileTest, NamesNodesByTheirRank) {
  EXPECT_EQ(HostFile({2}), "localhost slots=2\n");
  EXPECT_EQ(HostFile({2, 2, 1}), "localhost slots=2\nnode-rank-1 slots=2\nnode-rank-2 slots=1\n");
}

TEST(HostFileTest, NamesAreReadBack) {
  EXPECT_EQ(NodeRankOf("node-rank-1"), 1u);
  EXPECT_EQ(NodeRankOf("node-rank-16383"), 16383u);
  for (const char* other : {"localhost", "", "node-rank-", "node-rank-0", "node-rank-1x", "1"}) {
    EXPECT_EQ(NodeRankOf(other), std::nullopt) << other;
  }
}

TEST(MpirunCommandTest, StartsAProxyPerRank) {
  const std::string command = absl::StrJoin(MpirunCommand("/data/mpi/hosts", 5), " ");
  EXPECT_THAT(command, StartsWith("mpirun "));
  EXPECT_THAT(command, HasSubstr("--hostfile /data/mpi/hosts -np 5 "));
  EXPECT_THAT(command, HasSubstr("plm_rsh_agent muster-mpi remote-shell "));
  EXPECT_THAT(command, ::testing::EndsWith(" muster-mpi proxy"));
}

TEST(DaemonEnvironmentTest, HasTheSettingsOfTheNode) {
  const Environment environment = DaemonEnvironment({"PATH=/bin", "A=1"}, kNode);
  EXPECT_THAT(
      environment,
      ElementsAre("A=1", "MUSTER_MPI_DIRECTORY=/data/mpi", "OMPI_MCA_oob_tcp_if_include=eth1",
                  "OMPI_MCA_orte_tmpdir_base=/data/mpi", "PATH=/opt/muster/bin:/bin"));
}

TEST(DaemonEnvironmentTest, NamesTheNodeAsTheHostFile) {
  EXPECT_THAT(DaemonEnvironment({"NODE_RANK=2"}, kNode), Contains("PMIX_HOSTNAME=node-rank-2"));
  EXPECT_THAT(DaemonEnvironment({"NODE_RANK=0"}, kNode),
              Not(Contains(StartsWith("PMIX_HOSTNAME="))));
}

TEST(DaemonEnvironmentTest, HidesTheBatchSystem) {
  const Environment environment =
      DaemonEnvironment({"SLURM_JOB_ID=7", "PBS_NODEFILE=/n", "SLURMY=1"}, kNode);
  EXPECT_THAT(environment, Not(Contains(StartsWith("SLURM_"))));
  EXPECT_THAT(environment, Not(Contains(StartsWith("PBS_"))));
  EXPECT_THAT(environment, Contains("SLURMY=1"));
}

TEST(DaemonEnvironmentTest, LeavesTheChoiceOfInterfacesToTheJob) {
  EXPECT_THAT(DaemonEnvironment({"OMPI_MCA_oob_tcp_if_include=ib0"}, kNode),
              Contains("OMPI_MCA_oob_tcp_if_include=ib0"));
  EXPECT_THAT(DaemonEnvironment({"OMPI_MCA_oob_tcp_if_exclude=lo"}, kNode),
              Not(Contains(StartsWith("OMPI_MCA_oob_tcp_if_include="))));
  NodeOptions unknown = kNode;
  unknown.interface = "";
  EXPECT_THAT(DaemonEnvironment({}, unknown), Not(Contains(HasSubstr("_if_include"))));
}

TEST(ProgramEnvironmentTest, AddsWhatOpenMpiHasSet) {
  const Environment environment =
      ForProgram({"RANK=3", "PWD=/work", "HOME=/root"},
                 {"PMIX_RANK=3", "OMPI_COMM_WORLD_RANK=3", "RANK=0", "HOME=/", "LS_COLORS=x"});
  EXPECT_THAT(
      environment,
      ElementsAre("HOME=/root", "OMPI_ARGV=-n 3", "OMPI_COMMAND=./solver", "OMPI_COMM_WORLD_RANK=3",
                  "OMPI_MCA_btl_tcp_if_include=eth1", "OMPI_MCA_btl_vader_backing_directory=/shm",
                  "OMPI_MCA_initial_wdir=/work", "PMIX_RANK=3", "PWD=/work", "RANK=3"));
}

TEST(ProgramEnvironmentTest, KeepsSettingsOfTheJob) {
  const Environment environment =
      ForProgram({"OMPI_MCA_btl_tcp_if_exclude=lo", "OMPI_MCA_btl_vader_backing_directory=/mem",
                  "OMPI_MCA_mpi_yield_when_idle=0"},
                 {}, /*oversubscribed=*/true);
  EXPECT_THAT(environment, Not(Contains(StartsWith("OMPI_MCA_btl_tcp_if_include="))));
  EXPECT_THAT(environment, Contains("OMPI_MCA_btl_vader_backing_directory=/mem"));
  EXPECT_THAT(environment, Contains("OMPI_MCA_mpi_yield_when_idle=0"));
}

TEST(ProgramEnvironmentTest, YieldsOnANodeWithFewCpus) {
  EXPECT_THAT(ForProgram({}, {}, true), Contains("OMPI_MCA_mpi_yield_when_idle=1"));
  EXPECT_THAT(ForProgram({}, {}, false), Not(Contains(HasSubstr("yield"))));
}

}  // namespace
}  // namespace muster::mpi
