#include "trainer/rank/gpu_fingerprint.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::rank {
namespace {

using ::testing::ElementsAre;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

std::vector<std::string> Texts(const std::string& nccl, const std::string& driver,
                               const std::vector<const char*>& variables) {
  std::vector<const char*> environment = variables;
  environment.push_back(nullptr);
  std::vector<std::string> texts;
  for (const auto& entry : GpuFingerprint(nccl, driver, environment.data())) {
    texts.push_back(absl::StrCat(entry.name(), " ", entry.value()));
  }
  return texts;
}

TEST(GpuFingerprintTest, ReturnsVersionsAndVariables) {
  EXPECT_THAT(Texts("2.28.9", "580.65.06", {"PATH=/bin", "NCCL_PROTO=Simple", "NCCL_ALGO=Ring"}),
              ElementsAre("NCCL 2.28.9", "driver 580.65.06",
                          "NCCL variables NCCL_ALGO=Ring NCCL_PROTO=Simple"));
  EXPECT_THAT(Texts("", "", {"PATH=/bin"}), ElementsAre());
}

TEST(GpuFingerprintTest, ExcludesPerNodeVariables) {
  EXPECT_THAT(Texts("", "",
                    {"NCCL_SOCKET_IFNAME=eth1", "NCCL_HOSTID=a", "NCCL_DEBUG=INFO",
                     "NCCL_DEBUG_FILE=/tmp/%h", "NCCL_SOCKET_FAMILY=AF_INET"}),
              ElementsAre("NCCL variables NCCL_SOCKET_FAMILY=AF_INET"));
}

TEST(GpuFingerprintTest, EscapesUnprintableText) {
  EXPECT_THAT(Texts("", "", {"NCCL_A=1\n\xff"}), ElementsAre(R"(NCCL variables NCCL_A=1\n\xff)"));
}

TEST(GpuFingerprintTest, TruncatesLongTextWithDigest) {
  const std::string shared = absl::StrCat("NCCL_A=", std::string(limits::kLabelBytes, 'x'));
  const auto value = [](const std::string& variable) {
    const std::vector<const char*> environment = {variable.c_str(), nullptr};
    return GpuFingerprint("", "", environment.data()).front().value();
  };
  EXPECT_EQ(value(shared).size(), limits::kLabelBytes);
  EXPECT_THAT(value(shared), StartsWith("NCCL_A=xxx"));
  EXPECT_THAT(value(shared), MatchesRegex(".*x\\.\\.\\. sha256 [0-9a-f]{16}"));
  EXPECT_NE(value(shared + "y"), value(shared + "z"));
  const std::string fits = shared.substr(0, limits::kLabelBytes);
  EXPECT_EQ(value(fits), fits);
}

}  // namespace
}  // namespace muster::rank
