#include "common/network/network.h"

#include <net/if.h>

#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(NetworkTest, LoopbackAddressesAreOnTheLoopbackInterface) {
  const std::string name = InterfaceOf("127.0.0.1");
  ASSERT_NE(name, "");
  EXPECT_NE(if_nametoindex(name.c_str()), 0u);
  EXPECT_EQ(InterfaceOf("127.3.2.1"), name);
  EXPECT_EQ(InterfaceOf("localhost"), name);
}

TEST(NetworkTest, ReturnsNoInterfaceForForeignAddresses) {
  EXPECT_EQ(InterfaceOf("203.0.113.77"), "");
  EXPECT_EQ(InterfaceOf("not an address"), "");
  EXPECT_EQ(InterfaceOf(""), "");
}

TEST(NetworkTest, IdentityIsStable) {
  EXPECT_NE(NetworkIdentity(), "");
  EXPECT_EQ(NetworkIdentity(), NetworkIdentity());
}

}  // namespace
}  // namespace muster
