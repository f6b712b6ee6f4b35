#include "coordinator/core/owners/secret_table.h"

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::HasSubstr;

const Actor kAlice{"alice", false};
const Actor kBob{"bob", false};
const Actor kAdmin{"root", true};

class SecretTableTest : public ::testing::Test {
 protected:
  absl::Status Set(const Actor& actor, const std::string& name, const std::string& value) {
    context_.effects = Effects();
    secrets_.Handle({RequestId(1), name, value, actor});
    EXPECT_EQ(context_.effects.replies.size(), 1u);
    return context_.effects.replies[0].job.status();
  }
  std::map<std::string, std::string> SecretsFor(const std::string& owner) const {
    v1::JobSpec spec;
    (*spec.mutable_secret_env())["TOKEN"] = "token";
    (*spec.mutable_secret_env())["OTHER"] = "other";
    v1::Launch launch;
    secrets_.AddTo(owner, spec, launch);
    return {launch.secrets().begin(), launch.secrets().end()};
  }

  Context context_ = testing::MakeContext();
  SecretTable secrets_{context_};
};

TEST_F(SecretTableTest, GivesSecretsOnlyToJobsOfTheirOwner) {
  EXPECT_TRUE(Set(kAlice, "token", "hunter2").ok());
  EXPECT_TRUE(Set(kAlice, "unused", "x").ok());
  EXPECT_TRUE(Set(kBob, "other", "y").ok());
  EXPECT_THAT(SecretsFor("alice"), ::testing::ElementsAre(::testing::Pair("token", "hunter2")));
  EXPECT_THAT(SecretsFor("bob"), ::testing::ElementsAre(::testing::Pair("other", "y")));
  EXPECT_THAT(SecretsFor(""), ::testing::IsEmpty());
}

TEST_F(SecretTableTest, StoresSecretsAndLogsOnlyNames) {
  EXPECT_TRUE(Set(kAlice, "token", "hunter2").ok());
  ASSERT_EQ(context_.effects.writes.size(), 1u);
  EXPECT_EQ(context_.effects.writes[0].key, "secret/alice/token");
  EXPECT_THAT(context_.effects.logs, ::testing::ElementsAre("secret token was set by alice"));

  v1::SecretRecord record;
  ASSERT_TRUE(record.ParseFromString(*context_.effects.writes[0].value));
  SecretTable loaded(context_);
  loaded.Restore(record);
  EXPECT_EQ(loaded.List(kAlice).secrets_size(), 1);
}

TEST_F(SecretTableTest, EmptyValueRemoves) {
  EXPECT_TRUE(Set(kAlice, "token", "hunter2").ok());
  EXPECT_TRUE(Set(kAlice, "token", "").ok());
  ASSERT_EQ(context_.effects.writes.size(), 1u);
  EXPECT_FALSE(context_.effects.writes[0].value.has_value());
  EXPECT_EQ(secrets_.List(kAlice).secrets_size(), 0);
  EXPECT_TRUE(Set(kAlice, "token", "").ok()) << "idempotent";
  EXPECT_TRUE(context_.effects.writes.empty());
}

TEST_F(SecretTableTest, ListsOwnNamesAndAllForAdmins) {
  EXPECT_TRUE(Set(kAlice, "token", "hunter2").ok());
  EXPECT_TRUE(Set(kBob, "token", "hunter3").ok());
  ASSERT_EQ(secrets_.List(kAlice).secrets_size(), 1);
  EXPECT_EQ(secrets_.List(kAlice).secrets(0).owner(), "alice");
  EXPECT_EQ(secrets_.List(kAdmin).secrets_size(), 2);
}

TEST_F(SecretTableTest, RefusesNamesThatAreNoFileNames) {
  for (const std::string name : {"", ".", "..", ".hidden", "a/b", "a b", "a\n"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Set(kAlice, name, "x"))) << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Set(kAlice, std::string(64, 'a'), "x")));
  EXPECT_TRUE(Set(kAlice, "hf-token_2.old", "x").ok());
}

TEST_F(SecretTableTest, RefusesValuesThatNoVariableCanHold) {
  const absl::Status zero = Set(kAlice, "token", std::string("hunter2\0", 8));
  EXPECT_TRUE(absl::IsInvalidArgument(zero));
  EXPECT_THAT(std::string(zero.message()), HasSubstr("base64"));
  EXPECT_EQ(std::string(zero.message()).find("hunter2"), std::string::npos);
  const absl::Status large = Set(kAlice, "token", std::string(limits::kSecretBytes + 1, 'x'));
  EXPECT_EQ(large.message(), "secret token has 65537 bytes; the limit is 65536");
}

TEST_F(SecretTableTest, LimitsSecretsOfOneOwner) {
  for (size_t i = 0; i < limits::kSecretsPerOwner; ++i) {
    ASSERT_TRUE(Set(kAlice, absl::StrCat("s", i), "x").ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(Set(kAlice, "more", "x")));
  EXPECT_TRUE(Set(kAlice, "s7", "y").ok()) << "replacing needs no room";
  EXPECT_TRUE(Set(kBob, "more", "x").ok());
}

}  // namespace
}  // namespace muster::core
