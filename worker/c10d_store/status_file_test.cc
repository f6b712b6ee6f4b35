#include "worker/c10d_store/status_file.h"

#include "gtest/gtest.h"

namespace muster::c10d_store {
namespace {

TEST(StatusFileTest, RoundTrip) {
  Status status;
  status.waits.push_back({"c10d key \"a\" (awaited by rank 0)", 1234, {1, 3}, ""});
  status.waits.push_back({"c10d key \"b\" (awaited by rank 2)", 5678, {}, "any rank to set it"});
  status.problems.push_back({"rank 2", "disconnected", 2});
  status.problems.push_back({"the process at 10.0.0.2:4711", "disconnected", std::nullopt});
  EXPECT_EQ(DecodeStatus(EncodeStatus(status)), status);
  EXPECT_EQ(DecodeStatus(EncodeStatus({})), Status());
}

TEST(StatusFileTest, RejectsDamage) {
  const std::string wait = "wait=x";
  EXPECT_FALSE(DecodeStatus(wait).has_value());
  for (const char* text : {"since_boot_ms=1", "problem_rank=1", "client=x", "unknown=1"}) {
    EXPECT_FALSE(DecodeStatus(text + std::string(1, '\0')).has_value()) << text;
  }
  EXPECT_FALSE(
      DecodeStatus(wait + std::string(1, '\0') + "missing=one" + std::string(1, '\0')).has_value());
}

}  // namespace
}  // namespace muster::c10d_store
