#include "coordinator/service/auth/own_certificate.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/time/clock.h"
#include "common/security/authority.h"
#include "common/security/certificate.h"
#include "common/security/text_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace muster::service {
namespace {

using security::Authority;
using security::CertificateInfo;
using security::ValidFor;

class OwnCertificateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "own_certificate.XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    tls_.cert = directory_ + "/cert";
    const std::string key = *security::PublicKeyOf(*security::NewPrivateKey());
    chain_ = *authority_.Issue(key, {"head", {"head", "10.0.0.1"}, "", security::Usage::kServer},
                               security::NewSerial(), ValidFor(absl::Hours(30), now_));
    std::ofstream(tls_.cert) << chain_;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  CertificateInfo Read() const {
    return *security::ReadCertificate(*security::ReadTextFile(tls_.cert));
  }

  const absl::Time now_ = absl::Now();
  const Authority authority_ = *Authority::Create("CA", ValidFor(absl::Hours(1000), now_));
  std::string directory_;
  std::string chain_;
  security::TlsFiles tls_;
};

TEST_F(OwnCertificateTest, IsRenewedWhenAThirdOfItsValidityIsLeft) {
  const CertificateInfo first = Read();
  EXPECT_FALSE(*RenewOwnCertificate(tls_, authority_, now_ + absl::Hours(19)));
  EXPECT_EQ(Read().serial, first.serial);
  EXPECT_TRUE(*RenewOwnCertificate(tls_, authority_, now_ + absl::Hours(20)));
  const CertificateInfo renewed = Read();
  EXPECT_NE(renewed.serial, first.serial);
  EXPECT_EQ(renewed.hosts, first.hosts);
  EXPECT_EQ(renewed.public_key, first.public_key);
  EXPECT_EQ(renewed.usage, first.usage);
  EXPECT_GE(renewed.not_after, first.not_after + absl::Hours(20) - absl::Seconds(1));
  EXPECT_TRUE(CheckChain(tls_, authority_).ok());
}

TEST_F(OwnCertificateTest, ChainMustContainTheAuthority) {
  EXPECT_TRUE(CheckChain(tls_, authority_).ok());
  std::ofstream(tls_.cert) << security::SplitChain(chain_)[0];
  const absl::Status status = CheckChain(tls_, authority_);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("append the file of --tls-ca"));
}

}  // namespace
}  // namespace muster::service
