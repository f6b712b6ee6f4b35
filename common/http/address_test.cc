#include "common/http/address.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/http/port_owner.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

TEST(AddressTest, ParsesAndPrints) {
  for (const char* text : {"127.0.0.1:80", "[::1]:0", "node-7.example.com:65535"}) {
    const absl::StatusOr<Address> address = ParseAddress(text);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->ToString(), text);
  }
  EXPECT_EQ(ParseAddress("[::1]:7")->host, "::1");
}

TEST(AddressTest, RejectsMalformedAddresses) {
  for (const char* text : {"", "80", ":80", "h:", "h:65536", "h:-1", "h: 1", "::1:80", "[::1:80"}) {
    EXPECT_EQ(ParseAddress(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(AddressTest, RecognizesLoopbackHosts) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "10.0.0.1", "127.example.com", "example.com"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

TEST(AddressTest, CheckListenNamesTheOwnerOfAPortInUse) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in bound = {};
  bound.sin_family = AF_INET;
  bound.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(bound);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&bound), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size), 0);
  const Address address{"127.0.0.1", ntohs(bound.sin_port)};
  const absl::Status status = CheckListen(address);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find(address.ToString()), std::string::npos);
  EXPECT_EQ(FindPortOwner(address.port), absl::StrCat("address_test (pid ", getpid(), ")"));
  EXPECT_NE(status.message().find(FindPortOwner(address.port)), std::string::npos)
      << status.message();
  close(fd);
  EXPECT_TRUE(CheckListen(address).ok());
  EXPECT_EQ(FindPortOwner(address.port), "");
}

TEST(AddressTest, ListensOnOnePortForAllAddressesOfAName) {
  const absl::StatusOr<ListeningSockets> listening = Listen({"localhost", 0});
  ASSERT_TRUE(listening.ok()) << listening.status();
  EXPECT_NE(listening->port, 0);
  ASSERT_FALSE(listening->sockets.empty());
  EXPECT_FALSE(CheckListen({"127.0.0.1", listening->port}).ok());
  for (const int fd : listening->sockets) close(fd);
  EXPECT_TRUE(CheckListen({"127.0.0.1", listening->port}).ok());
}

TEST(AddressTest, CheckListenRejectsAnAddressOfAnotherMachine) {
  // An address reserved for documentation (RFC 5737).
  const absl::Status status = CheckListen({"192.0.2.1", 0});
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("192.0.2.1:0"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace muster
