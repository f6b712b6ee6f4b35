#include "coordinator/core/store_identity.h"

#include "gtest/gtest.h"

namespace muster::core {
namespace {

TEST(StoreIdentity, NamesLastCommitOfEachStart) {
  const StoreIdentity store{"cluster", 25, {{"first", 1}, {"second", 8}, {"third", 20}}};
  EXPECT_EQ(store.LastCommitOf("first"), 7u);
  EXPECT_EQ(store.LastCommitOf("second"), 19u);
  EXPECT_EQ(store.LastCommitOf("third"), 25u);
  EXPECT_EQ(store.LastCommitOf("other"), 0u);
}

TEST(StoreIdentity, StoreOfEarlierBuildHasCommitsOfNoStart) {
  const StoreIdentity store{"cluster", 25, {{"first", 20}}};
  EXPECT_EQ(store.LastCommitOf("first"), 25u);
  EXPECT_EQ(store.LastCommitOf(""), 0u);
}

}  // namespace
}  // namespace muster::core
