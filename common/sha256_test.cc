#include "common/sha256.h"

#include "gtest/gtest.h"

namespace muster {
namespace {

// FIPS 180-4's own examples.
TEST(Sha256Test, MatchesTheStandard) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Sha256Test, PiecesAreTheWhole) {
  Sha256 hasher;
  hasher.Update("a");
  hasher.Update("bc");
  EXPECT_EQ(hasher.HexDigest(), Sha256Hex("abc"));
}

}  // namespace
}  // namespace muster
