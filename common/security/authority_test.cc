#include "common/security/authority.h"

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "common/security/certificate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::security {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr absl::Duration kYear = absl::Hours(24 * 365);

class AuthorityTest : public ::testing::Test {
 protected:
  static Authority Make() {
    auto authority = Authority::Create("Muster CA", ValidFor(kYear, absl::Now()));
    EXPECT_TRUE(authority.ok()) << authority.status();
    return *std::move(authority);
  }
  static std::string NewPublicKey() { return *PublicKeyOf(*NewPrivateKey()); }

  const Authority authority_ = Make();
};

TEST_F(AuthorityTest, IssuesWhatItIsAskedFor) {
  const std::string key = NewPublicKey();
  const std::string serial = NewSerial();
  const absl::Time now = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()));
  const auto chain =
      authority_.Issue(key, {"head", {"head", "10.0.0.1", "fd00::1"}, "", Usage::kServer}, serial,
                       ValidFor(absl::Hours(1), now));
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_THAT(SplitChain(*chain), ElementsAre(testing::_, authority_.certificate()));
  const CertificateInfo info = *ReadCertificate(*chain);
  EXPECT_EQ(info.common_name, "head");
  EXPECT_EQ(info.serial, serial);
  EXPECT_THAT(info.hosts, ElementsAre("head", "10.0.0.1", "fd00::1"));
  EXPECT_EQ(info.usage, Usage::kServer);
  EXPECT_EQ(info.public_key, key);
  EXPECT_EQ(info.not_after, now + absl::Hours(1));
  EXPECT_EQ(info.not_before, now - absl::Minutes(5));
  EXPECT_FALSE(info.is_authority);
  EXPECT_TRUE(IsIssuedBy(*chain, authority_.certificate()));
  EXPECT_FALSE(IsIssuedBy(*chain, Make().certificate()));
  EXPECT_FALSE(NodeOf(info).has_value());
}

TEST_F(AuthorityTest, CertificateEndsWithItsAuthority) {
  const auto chain = authority_.Issue(NewPublicKey(), {.common_name = "a"}, NewSerial(),
                                      ValidFor(3 * kYear, absl::Now()));
  EXPECT_EQ(ReadCertificate(*chain)->not_after, authority_.not_after());
}

TEST_F(AuthorityTest, NodeCertificateNamesNodeAndMachine) {
  const auto issue = [this](const std::string& uri) {
    const auto chain = authority_.Issue(NewPublicKey(), {"node-1", {kNodeHost}, uri, Usage::kBoth},
                                        NewSerial(), ValidFor(absl::Hours(1), absl::Now()));
    return NodeOf(*ReadCertificate(*chain));
  };
  const auto bound = issue(NodeUri("node-1", "4c4c45"));
  ASSERT_TRUE(bound.has_value());
  EXPECT_EQ(bound->node, "node-1");
  EXPECT_EQ(bound->machine_id, "4c4c45");
  EXPECT_THAT(bound->serial, MatchesRegex("[0-9a-f]{32}"));
  const auto anywhere = issue(NodeUri("node-1", ""));
  ASSERT_TRUE(anywhere.has_value());
  EXPECT_EQ(anywhere->machine_id, "");
}

TEST_F(AuthorityTest, NamesAreNotParsed) {
  const auto chain =
      authority_.Issue(NewPublicKey(), {"a", {"a,DNS:head"}, "muster://node/a,b", Usage::kClient},
                       NewSerial(), ValidFor(absl::Hours(1), absl::Now()));
  ASSERT_TRUE(chain.ok()) << chain.status();
  EXPECT_THAT(ReadCertificate(*chain)->hosts, ElementsAre("a,DNS:head"));
  EXPECT_THAT(ReadCertificate(*chain)->uris, ElementsAre("muster://node/a,b"));
}

TEST_F(AuthorityTest, AuthorityIsOne) {
  const CertificateInfo info = *ReadCertificate(authority_.certificate());
  EXPECT_TRUE(info.is_authority);
  EXPECT_EQ(authority_.pin(), PinOf(info.public_key));
  EXPECT_THAT(authority_.pin(), MatchesRegex("sha256:[0-9a-f]{64}"));
}

TEST(CertificateRequest, ProvesPossessionOfTheKey) {
  const std::string key = *NewPrivateKey();
  std::string request = *NewCertificateRequest(key);
  EXPECT_EQ(*PublicKeyOfRequest(request), *PublicKeyOf(key));
  request.back() ^= 1;
  EXPECT_THAT(std::string(PublicKeyOfRequest(request).status().message()),
              HasSubstr("signature does not match"));
  EXPECT_TRUE(absl::IsInvalidArgument(PublicKeyOfRequest("junk").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(PublicKeyOfRequest("").status()));
}

}  // namespace
}  // namespace muster::security
