#include "coordinator/core/identity/identity_table.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/limits.h"
#include "coordinator/core/records.h"
#include "coordinator/core/testing/parts.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const Actor kAdmin{"olga", true};
constexpr absl::Duration kValidity = absl::Hours(24 * 90);

class IdentityTableTest : public ::testing::Test {
 protected:
  absl::Status Reply() const {
    EXPECT_EQ(context_.effects.replies.size(), 1u);
    return context_.effects.replies[0].job.status();
  }
  absl::Status CreateToken(const std::string& id, uint32_t uses = 1, const std::string& node = "") {
    context_.effects = Effects();
    table_.Handle(CreateJoinToken{RequestId(1), id, "digest of " + id,
                                  context_.now.wall + absl::Hours(1), uses, NodeName(node),
                                  kAdmin});
    return Reply();
  }
  absl::Status Enroll(const std::string& token, const std::string& node,
                      const std::string& serial = "01", const std::string& machine = "m1") {
    context_.effects = Effects();
    table_.Handle(EnrollNode{RequestId(2), "digest of " + token, NodeName(node), machine, serial,
                             context_.now.wall + kValidity});
    return Reply();
  }
  security::NodeCertificate Certificate(const std::string& node, const std::string& serial,
                                        const std::string& machine = "m1") const {
    return {node, machine, serial, context_.now.wall + kValidity};
  }
  absl::Status Renew(const std::string& node, const std::string& serial,
                     const std::string& new_serial) {
    context_.effects = Effects();
    table_.Handle(RenewNode{RequestId(3), Certificate(node, serial), new_serial,
                            context_.now.wall + kValidity});
    return Reply();
  }
  absl::Status Admit(const std::string& node, std::optional<security::NodeCertificate> certificate,
                     const std::string& machine = "m1") {
    SessionOpened event = testing::MakeSession(1, node);
    event.hello.set_machine_id(machine);
    event.certificate = std::move(certificate);
    return table_.Admit(event);
  }
  static std::string Text(const absl::Status& status) { return std::string(status.message()); }

  Context context_ = testing::MakeContext();
  IdentityTable table_{context_};
};

TEST_F(IdentityTableTest, TokensHaveUsesAndAnEnd) {
  EXPECT_TRUE(absl::IsUnauthenticated(Enroll("a", "node-1"))) << "no such token";
  ASSERT_TRUE(CreateToken("a", 2).ok());
  EXPECT_TRUE(Enroll("a", "node-1").ok());
  EXPECT_TRUE(Enroll("a", "node-2").ok());
  const absl::Status used = Enroll("a", "node-3");
  EXPECT_TRUE(absl::IsUnauthenticated(used));
  EXPECT_THAT(Text(used), HasSubstr("join token a is used up"));
  EXPECT_THAT(context_.effects.writes, IsEmpty());

  ASSERT_TRUE(CreateToken("b").ok());
  testing::Advance(context_, absl::Hours(1));
  const absl::Status expired = Enroll("b", "node-3");
  EXPECT_TRUE(absl::IsUnauthenticated(expired));
  EXPECT_THAT(Text(expired), HasSubstr("join token b expired at 2023-11-14 23:13:20 UTC"));
  EXPECT_EQ(table_.ListTokens(context_.now).tokens_size(), 0);
}

TEST_F(IdentityTableTest, TokensCanBeListedAndRevoked) {
  ASSERT_TRUE(CreateToken("a", 5, "node-1").ok());
  const v1::ListJoinTokensResponse list = table_.ListTokens(context_.now);
  ASSERT_EQ(list.tokens_size(), 1);
  EXPECT_EQ(list.tokens(0).id(), "a");
  EXPECT_EQ(list.tokens(0).uses_left(), 5u);
  EXPECT_EQ(list.tokens(0).node(), "node-1");
  EXPECT_EQ(list.tokens(0).created_by(), "olga");
  context_.effects = Effects();
  table_.Handle(RevokeJoinToken{RequestId(4), "a", kAdmin});
  EXPECT_TRUE(Reply().ok());
  EXPECT_TRUE(absl::IsUnauthenticated(Enroll("a", "node-1")));
  context_.effects = Effects();
  table_.Handle(RevokeJoinToken{RequestId(4), "a", kAdmin});
  EXPECT_TRUE(absl::IsNotFound(Reply()));
}

TEST_F(IdentityTableTest, StoresOnlyTheDigestOfAToken) {
  ASSERT_TRUE(CreateToken("a").ok());
  ASSERT_EQ(context_.effects.writes.size(), 1u);
  EXPECT_EQ(context_.effects.writes[0].key, "join/a");
  v1::JoinTokenRecord record;
  ASSERT_TRUE(record.ParseFromString(*context_.effects.writes[0].value));
  EXPECT_EQ(record.digest(), "digest of a");
}

TEST_F(IdentityTableTest, NameWithAnIdentityNeedsATokenOfItsOwn) {
  ASSERT_TRUE(CreateToken("any", 9).ok());
  ASSERT_TRUE(Enroll("any", "node-1", "01").ok());
  const absl::Status taken = Enroll("any", "node-1", "02");
  EXPECT_TRUE(absl::IsPermissionDenied(taken));
  EXPECT_THAT(Text(taken), HasSubstr("muster node token --node node-1"));
  ASSERT_TRUE(CreateToken("its", 9, "node-1").ok());
  EXPECT_THAT(Text(Enroll("its", "node-2", "03")),
              HasSubstr("is for node node-1, not for node node-2"));
  EXPECT_TRUE(Enroll("its", "node-1", "04").ok());
  EXPECT_THAT(context_.effects.revoked_certificates, ElementsAre("01"))
      << "the machine that had the name is replaced";
  EXPECT_TRUE(absl::IsPermissionDenied(Admit("node-1", Certificate("node-1", "01"))));
  EXPECT_TRUE(Admit("node-1", Certificate("node-1", "04")).ok());
}

TEST_F(IdentityTableTest, CertificateAdmitsOneNameOnOneMachine) {
  EXPECT_TRUE(Admit("node-1", std::nullopt).ok()) << "a node without an identity";
  ASSERT_TRUE(CreateToken("a").ok());
  ASSERT_TRUE(Enroll("a", "node-1").ok());
  EXPECT_TRUE(Admit("node-1", Certificate("node-1", "01")).ok());
  const absl::Status other = Admit("node-2", Certificate("node-1", "01"));
  EXPECT_TRUE(absl::IsPermissionDenied(other));
  EXPECT_THAT(Text(other), HasSubstr("certificate of node node-1, but registers as node node-2"));
  const absl::Status moved = Admit("node-1", Certificate("node-1", "01"), "m2");
  EXPECT_TRUE(absl::IsPermissionDenied(moved));
  EXPECT_THAT(Text(moved), HasSubstr("is for machine m1, but the worker runs on machine m2"));
  const absl::Status shared = Admit("node-1", std::nullopt);
  EXPECT_TRUE(absl::IsPermissionDenied(shared)) << "a shared token is not enough for this name";
  EXPECT_THAT(Text(shared), HasSubstr("--tls-cert"));
}

TEST_F(IdentityTableTest, RemovalRevokesAllCertificatesAndFreesTheName) {
  ASSERT_TRUE(CreateToken("a", 2).ok());
  ASSERT_TRUE(Enroll("a", "node-1", "01").ok());
  ASSERT_TRUE(Renew("node-1", "01", "02").ok());
  EXPECT_TRUE(Admit("node-1", Certificate("node-1", "01")).ok()) << "until it expires";
  // Issued with the authority's key on another machine.
  EXPECT_TRUE(Admit("node-1", Certificate("node-1", "99")).ok());
  context_.effects = Effects();
  table_.Remove(NodeName("node-1"));
  EXPECT_THAT(context_.effects.revoked_certificates, ElementsAre("01", "02", "99"));
  for (const char* serial : {"01", "02", "99"}) {
    const absl::Status status = Admit("node-1", Certificate("node-1", serial));
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << serial;
    EXPECT_THAT(Text(status), HasSubstr("was revoked"));
    EXPECT_TRUE(absl::IsPermissionDenied(Renew("node-1", serial, "03")));
  }
  EXPECT_FALSE(table_.Has(NodeName("node-1")));
  EXPECT_TRUE(Admit("node-1", std::nullopt).ok());
  EXPECT_TRUE(Enroll("a", "node-1", "04", "m2").ok());
  EXPECT_TRUE(Admit("node-1", Certificate("node-1", "04", "m2"), "m2").ok());
}

TEST_F(IdentityTableTest, RestartKeepsTokensAndRevocations) {
  ASSERT_TRUE(CreateToken("a", 2).ok());
  ASSERT_TRUE(Enroll("a", "node-1", "01").ok());
  std::vector<store::Mutation> writes = context_.effects.writes;
  table_.Remove(NodeName("node-1"));
  writes.insert(writes.end(), context_.effects.writes.begin(), context_.effects.writes.end());

  Context context = testing::MakeContext();
  context.now = context_.now;
  IdentityTable loaded(context);
  v1::IdentityRecord identity;
  v1::JoinTokenRecord token;
  for (const store::Mutation& write : writes) {
    if (write.key == "identity/node-1") ASSERT_TRUE(identity.ParseFromString(*write.value));
    if (write.key == "join/a") ASSERT_TRUE(token.ParseFromString(*write.value));
  }
  loaded.Restore(identity);
  loaded.Restore(token);
  EXPECT_THAT(context.effects.revoked_certificates, ElementsAre("01"));
  EXPECT_EQ(loaded.ListTokens(context.now).tokens(0).uses_left(), 1u);

  // When all its certificates have expired, nothing needs to be remembered of a removed node.
  Context later = testing::MakeContext();
  later.now = context_.now;
  testing::Advance(later, kValidity);
  IdentityTable forgetting(later);
  forgetting.Restore(identity);
  ASSERT_FALSE(later.effects.writes.empty());
  EXPECT_EQ(later.effects.writes.back().key, "identity/node-1");
  EXPECT_FALSE(later.effects.writes.back().value.has_value());
}

TEST_F(IdentityTableTest, LimitsTokens) {
  for (size_t i = 0; i < limits::kJoinTokens; ++i) {
    ASSERT_TRUE(CreateToken(absl::StrCat(i)).ok());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(CreateToken("one-more")));
  testing::Advance(context_, absl::Hours(1));
  EXPECT_TRUE(CreateToken("one-more").ok()) << "expired tokens do not count";
}

}  // namespace
}  // namespace muster::core
