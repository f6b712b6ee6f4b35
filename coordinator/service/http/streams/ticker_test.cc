#include "coordinator/service/http/streams/ticker.h"

#include "gtest/gtest.h"

namespace muster::service {
namespace {

// A body that is open at the first looks.
class Body final : public http::BodyStream {
 public:
  explicit Body(int open_looks) : open_looks_(open_looks) {}
  bool Write(absl::string_view /*bytes*/) override { return IsOpen(); }
  bool IsOpen() const override { return ++looks_ <= open_looks_; }
  int looks() const { return looks_; }

 private:
  const int open_looks_;
  mutable int looks_ = 0;
};

// A viewer who has lost the right to a stream does not keep it until the next event.
TEST(Ticker, LooksWhetherTheStreamIsOpenFourTimesPerInterval) {
  Ticker ticker;
  Body ends(2);
  EXPECT_FALSE(ticker.Wait(EventWriter(ends)));
  EXPECT_EQ(ends.looks(), 3);
  Body stays(100);
  EXPECT_TRUE(ticker.Wait(EventWriter(stays)));
  EXPECT_EQ(stays.looks(), 5) << "the last one after the interval";
  EXPECT_LE(kLookInterval, absl::Milliseconds(250));
}

TEST(Ticker, StopEndsTheWait) {
  Ticker ticker;
  ticker.Stop();
  Body body(100);
  EXPECT_FALSE(ticker.Wait(EventWriter(body)));
  EXPECT_TRUE(ticker.stopped());
}

}  // namespace
}  // namespace muster::service
