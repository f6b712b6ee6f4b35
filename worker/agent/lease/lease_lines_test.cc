#include "worker/agent/lease/lease_lines.h"

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/time/time.h"
#include "gtest/gtest.h"
#include "worker/agent/generation/ranks/shim_line.h"

namespace muster::agent {
namespace {

constexpr char kJob[] = "job-1";

SteadyTime At(int seconds) { return SteadyTime(absl::Seconds(seconds)); }

// A rank of generation 1 with a lease of 30 seconds, which ends 27 seconds after evidence.
class LeaseLinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets_), 0);
    line_->Open(sockets_[0]);
    lines_.Add(kJob, 1, absl::Seconds(30), line_);
  }
  void TearDown() override {
    for (const int socket : sockets_) close(socket);
  }
  // Returns the bytes that the shim has received since the last call.
  std::string Received() {
    char buffer[1024];
    const ssize_t n = read(sockets_[1], buffer, sizeof(buffer));
    return n < 0 ? "" : std::string(buffer, static_cast<size_t>(n));
  }

  int sockets_[2];
  std::shared_ptr<ShimLine> line_ = std::make_shared<ShimLine>();
  LeaseLines lines_;
};

TEST_F(LeaseLinesTest, AcknowledgementsExtendLease) {
  lines_.OnAcknowledged(At(100));
  EXPECT_EQ(Received(), "lease 127000\n");
  lines_.OnAcknowledged(At(101));
  EXPECT_EQ(Received(), "lease 128000\n");
  EXPECT_EQ(lines_.acknowledged(), At(101));
}

// The loop handles acknowledgements later, in whatever order the threads run.
TEST_F(LeaseLinesTest, OlderEvidenceDoesNotShortenLease) {
  lines_.OnAcknowledged(At(100));
  Received();
  line_->SetLeaseDeadline(110'000);
  line_->SetLeaseDeadline(127'000);
  lines_.OnAcknowledged(At(99));
  EXPECT_EQ(Received(), "");
  EXPECT_EQ(lines_.acknowledged(), At(100));
}

TEST_F(LeaseLinesTest, RemovedDeadlineStaysRemoved) {
  line_->SetLeaseDeadline(0);
  EXPECT_EQ(Received(), "lease 0\n");
  lines_.OnAcknowledged(At(100));
  EXPECT_EQ(Received(), "");
}

TEST_F(LeaseLinesTest, DirectiveThatWaitsHoldsItsGenerationOnly) {
  lines_.Hold("job-2", 1);
  lines_.Hold(kJob, 2);
  lines_.OnAcknowledged(At(100));
  EXPECT_EQ(Received(), "lease 127000\n");
  lines_.Hold(kJob, 1);
  lines_.OnAcknowledged(At(101));
  EXPECT_EQ(Received(), "");
  lines_.Release(kJob, 1);
  lines_.OnAcknowledged(At(102));
  EXPECT_EQ(Received(), "lease 129000\n");
}

TEST_F(LeaseLinesTest, ShimThatDoesNotReadBlocksNothing) {
  while (!line_->Send(std::string(1000, 'x'), /*essential=*/true)) {
  }
  lines_.OnAcknowledged(At(100));
  while (!Received().empty()) {
  }
  while (line_->Flush()) {
  }
  while (!Received().empty()) {
  }
  lines_.OnAcknowledged(At(101));
  EXPECT_EQ(Received(), "lease 128000\n");
}

TEST_F(LeaseLinesTest, ClosedLineReceivesNothing) {
  line_->Close();
  lines_.OnAcknowledged(At(100));
  EXPECT_EQ(Received(), "");
  line_.reset();
  lines_.OnAcknowledged(At(101));
}

}  // namespace
}  // namespace muster::agent
