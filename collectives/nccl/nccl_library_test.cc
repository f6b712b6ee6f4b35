// Search path and errors of the NCCL library, and assignment of unique ids.
#include "collectives/nccl/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/nccl/testing/fake_nccl_parts.h"
#include "collectives/nccl/unique_ids.h"
#include "collectives/testing.h"
#include "common/status.h"
#include "common/time/deadline.h"

namespace muster::collectives {
namespace {

using ::testing::HasSubstr;

TEST(NcclLibraryTest, SearchesConfiguredFolderFirst) {
  const std::filesystem::path folder = ::testing::TempDir() + "/cuda";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(FakeNcclPath(), folder / "libnccl.so.2",
                             std::filesystem::copy_options::overwrite_existing);
  setenv("MUSTER_CUDA_LIBRARY_PATH", absl::StrCat("/nowhere:", folder.string()).c_str(), 1);
  const auto library = OpenNcclLibrary();
  unsetenv("MUSTER_CUDA_LIBRARY_PATH");
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ((*library)->path, folder / "libnccl.so.2");
  EXPECT_EQ((*library)->VersionText(), "2.28.9");
  EXPECT_NE((*library)->init_rank_scalable, nullptr);
}

TEST(NcclLibraryTest, SearchesLinkerPathAndCudaInstallation) {
  unsetenv("MUSTER_CUDA_LIBRARY_PATH");
  EXPECT_THAT(NcclLibraryPlaces(),
              ::testing::ElementsAre("libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2",
                                     "/usr/local/cuda/lib/libnccl.so.2"));
}

TEST(NcclLibraryTest, NamesMissingFileInOneLine) {
  const auto library = OpenNcclLibrary("/nowhere/libnccl.so.2");
  EXPECT_TRUE(absl::IsNotFound(library.status()));
  EXPECT_THAT(std::string(library.status().message()), HasSubstr("/nowhere/libnccl.so.2"));
  EXPECT_THAT(std::string(library.status().message()), ::testing::Not(HasSubstr("\n")));
}

TEST(NcclLibraryTest, RejectsOtherLibrary) {
  const auto library = OpenNcclLibrary("libdl.so.2");
  EXPECT_TRUE(absl::IsFailedPrecondition(library.status()));
  EXPECT_EQ(library.status().message(), "NCCL: libdl.so.2 does not export ncclGetVersion");
}

TEST(NcclLibraryTest, RejectsOldVersion) {
  FakeNcclRules rules;
  rules.Become({"version 21703"});
  const auto library = OpenNcclLibrary(FakeNcclPath());
  EXPECT_TRUE(absl::IsFailedPrecondition(library.status()));
  EXPECT_THAT(std::string(library.status().message()),
              HasSubstr("is version 2.17.3; 2.18 or newer"));
  rules.Become({"version 2708"});
  EXPECT_THAT(std::string(OpenNcclLibrary(FakeNcclPath()).status().message()),
              HasSubstr("is version 2.7.8"));
}

TEST(NcclLibraryTest, OlderVersionLacksOptionalFunctions) {
  const auto library = OpenNcclLibrary(FakeNcclPath("libfake_nccl_2.18.so"));
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ((*library)->init_rank_scalable, nullptr);
  EXPECT_EQ(NcclRootCount(1000, **library), 1u);
}

TEST(NcclLibraryTest, ErrorsContainNcclMessage) {
  const auto library = OpenNcclLibrary(FakeNcclPath());
  ASSERT_TRUE(library.ok()) << library.status();
  const auto status = [&library](NcclResult code) {
    return (*library)->StatusOf(code, "ncclSend", nullptr);
  };
  EXPECT_TRUE(status(kNcclSuccess).ok());
  EXPECT_TRUE(status(kNcclInProgress).ok());
  EXPECT_EQ(status(kNcclInternalError).ToString(), "INTERNAL: NCCL: ncclSend: internal error");
  EXPECT_TRUE(absl::IsUnavailable(status(kNcclRemoteError)));
  EXPECT_TRUE(absl::IsUnavailable(status(kNcclSystemError)));
  EXPECT_TRUE(absl::IsFailedPrecondition(status(kNcclInvalidUsage)));
}

TEST(NcclLibraryTest, EnablesWarningsUnlessConfigured) {
  unsetenv("NCCL_DEBUG");
  SetNcclEnvironment();
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "WARN");
  setenv("NCCL_DEBUG", "INFO", 1);
  SetNcclEnvironment();
  EXPECT_STREQ(std::getenv("NCCL_DEBUG"), "INFO");
}

TEST(UniqueIdsTest, UsesOneRootPer256Ranks) {
  const auto library = OpenNcclLibrary(FakeNcclPath());
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(NcclRootCount(1, **library), 1u);
  EXPECT_EQ(NcclRootCount(256, **library), 1u);
  EXPECT_EQ(NcclRootCount(257, **library), 2u);
  EXPECT_EQ(NcclRootCount(10000, **library), 40u);
}

// Roots serve consecutive ranks, the first ones one more if the ranks do not divide evenly.
TEST(UniqueIdsTest, RootIsFirstRankOfItsRange) {
  EXPECT_EQ(NcclRootRank(0, 1, 7), 0u);
  EXPECT_EQ(NcclRootRank(1, 2, 300), 150u);
  EXPECT_EQ(NcclRootRank(1, 3, 11), 4u);  // 4, 4 and 3
  EXPECT_EQ(NcclRootRank(2, 3, 11), 8u);
}

// In a group of 5,000 ranks: the roots and one other rank.
TEST(UniqueIdsTest, AllRanksReceiveIdsInSameOrder) {
  const auto library = OpenNcclLibrary(FakeNcclPath());
  ASSERT_TRUE(library.ok()) << library.status();
  constexpr uint32_t kSize = 5000;
  const uint32_t roots = NcclRootCount(kSize, **library);
  ASSERT_EQ(roots, 20u);
  FileKeyStore store;
  std::vector<std::vector<NcclUniqueId>> ids(roots + 1);
  const auto results = RunRankThreads(roots + 1, [&](uint32_t i) -> absl::Status {
    GroupOptions options;
    options.id = "id";
    options.size = kSize;
    options.rank = i < roots ? NcclRootRank(i, roots, kSize) : 1;
    options.members.resize(kSize);
    options.store = &store;
    ASSIGN_OR_RETURN(ids[i], ExchangeNcclUniqueIds(options, **library, Deadline(absl::Seconds(20)),
                                                   [] { return absl::OkStatus(); }));
    return absl::OkStatus();
  });
  EXPECT_THAT(results, ::testing::Each(""));
  const auto text = [](const NcclUniqueId& id) { return std::string(id.internal, sizeof(id)); };
  std::set<std::string> different;
  for (uint32_t root = 0; root < roots; ++root) {
    different.insert(text(ids[0][root]));
    for (const auto& others : ids) EXPECT_EQ(text(others[root]), text(ids[0][root]));
    if (root == 0) continue;
    EXPECT_EQ(store.Get(NcclRootIdKey("id", root), absl::ZeroDuration()).value_or(""),
              text(ids[0][root]));
  }
  EXPECT_EQ(different.size(), roots);
}

}  // namespace
}  // namespace muster::collectives
