#include "worker/agent/generation/store/master_endpoint.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::agent {
namespace {

using ::testing::HasSubstr;

TEST(MasterEndpointTest, RoundTripsAndRejectsInvalidText) {
  MasterEndpoint endpoint{{"fe80::1", 4711}, "boot/net:[1]"};
  const auto decoded = DecodeMasterEndpoint(EncodeMasterEndpoint(endpoint));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->address.host, "fe80::1");
  EXPECT_EQ(decoded->address.port, 4711);
  EXPECT_EQ(decoded->network, "boot/net:[1]");
  EXPECT_FALSE(DecodeMasterEndpoint("").ok());
  EXPECT_FALSE(DecodeMasterEndpoint("nonsense\n").ok());
}

TEST(MasterEndpointTest, RejectsLoopbackOfAnotherMachine) {
  const MasterEndpoint loopback{{"127.0.0.1", 1}, "a"};
  const MasterEndpoint remote{{"10.0.0.1", 1}, "a"};
  EXPECT_TRUE(CheckReachable(loopback, "127.0.0.1", "a").ok());
  EXPECT_TRUE(CheckReachable(remote, "127.0.0.1", "a").ok());
  EXPECT_TRUE(CheckReachable(remote, "10.0.0.2", "b").ok());
  for (const char* own : {"127.0.0.1", "10.0.0.2"}) {
    const absl::Status status = CheckReachable(loopback, own, "b");
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("start its worker with --advertise"));
  }
  EXPECT_THAT(std::string(CheckReachable(remote, "127.0.0.1", "b").message()),
              HasSubstr("start this worker with --advertise"));
}

}  // namespace
}  // namespace muster::agent
