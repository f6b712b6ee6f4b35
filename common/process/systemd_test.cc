#include "common/process/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace muster {
namespace {

// Listens on socket `name` (a leading '@' denotes an abstract socket), sends a notification to it,
// and returns the received text.
std::string NotifyAndReceive(const std::string& name, absl::string_view state) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, name.data(), name.size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address),
                 offsetof(sockaddr_un, sun_path) + name.size()),
            0);
  const absl::Status status = NotifySystemd(name, state);
  EXPECT_TRUE(status.ok()) << status;
  std::array<char, 64> buffer = {};
  const ssize_t size = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  close(fd);
  return size < 0 ? "" : std::string(buffer.data(), size);
}

TEST(SystemdTest, Notifies) {
  // Socket names must be short; the path of the test's directory may be too long.
  const std::string path = absl::StrCat("/tmp/muster-notify-", getpid());
  EXPECT_EQ(NotifyAndReceive(path, "READY=1"), "READY=1");
  unlink(path.c_str());
  EXPECT_EQ(NotifyAndReceive(absl::StrCat("@muster-notify-", getpid()), "WATCHDOG=1"),
            "WATCHDOG=1");
}

TEST(SystemdTest, DoesNothingWithoutSystemd) {
  EXPECT_TRUE(NotifySystemd("", "READY=1").ok());
  EXPECT_FALSE(NotifySystemd("/nonexistent/socket", "READY=1").ok());
  EXPECT_FALSE(NotifySystemd(std::string(200, 'x'), "READY=1").ok());
}

TEST(SystemdTest, WatchdogInterval) {
  unsetenv("WATCHDOG_PID");
  unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(WatchdogInterval(), absl::InfiniteDuration());
  setenv("WATCHDOG_USEC", "3000000", 1);
  EXPECT_EQ(WatchdogInterval(), absl::Milliseconds(1500));
  setenv("WATCHDOG_PID", "1", 1);
  EXPECT_EQ(WatchdogInterval(), absl::InfiniteDuration());
  setenv("WATCHDOG_USEC", "soon", 1);
  EXPECT_EQ(WatchdogInterval(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace muster
