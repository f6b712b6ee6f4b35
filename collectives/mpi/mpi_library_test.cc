#include "collectives/mpi/mpi_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "collectives/factory.h"

namespace muster::collectives {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class MpiLibraryTest : public ::testing::Test {
 protected:
  void TearDown() override {
    unsetenv("MUSTER_MPI_PLUGIN");
    unsetenv("PMIX_RANK");
  }
};

TEST_F(MpiLibraryTest, FindsLibraryNextToProgramOrByEnvironment) {
  EXPECT_THAT(MpiLibraryPlaces("/opt/muster/bin"),
              ElementsAre("/opt/muster/bin/libmuster-mpi.so", "/opt/muster/lib/libmuster-mpi.so"));
  setenv("MUSTER_MPI_PLUGIN", "/elsewhere/mpi.so", 1);
  EXPECT_THAT(MpiLibraryPlaces("/opt/muster/bin"), ElementsAre("/elsewhere/mpi.so"));
}

TEST_F(MpiLibraryTest, NamesMissingLibraryInOneLine) {
  setenv("MUSTER_MPI_PLUGIN", "/nowhere/libmuster-mpi.so", 1);
  const absl::Status missing = OpenMpiLibrary().status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), "mpi: no /nowhere/libmuster-mpi.so");

  const std::string text = absl::StrCat(testing::TempDir(), "/text.so");
  std::ofstream(text) << "no library";
  setenv("MUSTER_MPI_PLUGIN", text.c_str(), 1);
  const absl::Status broken = OpenMpiLibrary().status();
  EXPECT_EQ(broken.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(broken.message()), HasSubstr(text));
  EXPECT_THAT(std::string(broken.message()), Not(HasSubstr("\n")));
}

TEST_F(MpiLibraryTest, RejectsOtherVersion) {
  setenv("MUSTER_MPI_PLUGIN", "collectives/mpi/testing/libother-version.so", 1);
  const absl::Status status = OpenMpiLibrary().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("belongs to another version of Muster (interface 4711"));
}

// Processes of a train job are started without mpirun.
TEST_F(MpiLibraryTest, RejectsProcessNotStartedByMpirun) {
  GroupOptions options;
  options.name = "WORLD";
  options.size = 2;
  options.members = {0, 1};
  options.id = "id";
  class NoKeys final : public KeyStore {
    absl::Status Put(absl::string_view, absl::string_view) override { return absl::OkStatus(); }
    absl::StatusOr<std::string> Get(absl::string_view, absl::Duration) override {
      return absl::NotFoundError("");
    }
  } store;
  options.store = &store;
  const absl::Status status = CreateCommunicator("mpi", options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("start the ranks with mpirun"));
}

}  // namespace
}  // namespace muster::collectives
