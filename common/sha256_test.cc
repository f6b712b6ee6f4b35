#include "common/sha256.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

// Test vectors of FIPS 180-4.
TEST(Sha256Test, MatchesTheStandard) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, SplitUpdatesMatchASingleUpdate) {
  Sha256 hasher;
  hasher.Update("a");
  hasher.Update("bc");
  EXPECT_EQ(hasher.HexDigest(), Sha256Hex("abc"));
}

}  // namespace
}  // namespace muster
