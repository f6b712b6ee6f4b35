#include "coordinator/service/auth/own_certificate.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/security/certificate.h"
#include "common/security/private_file.h"
#include "common/security/text_file.h"
#include "common/status.h"

namespace muster::service {

absl::Status CheckChain(const security::TlsFiles& tls, const security::Authority& authority) {
  ASSIGN_OR_RETURN(const std::string text, security::ReadTextFile(tls.cert));
  for (const std::string& pem : security::SplitChain(text)) {
    const absl::StatusOr<security::CertificateInfo> info = security::ReadCertificate(pem);
    if (info.ok() && security::PinOf(info->public_key) == authority.pin()) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--tls-cert: ", tls.cert,
                   " does not contain the certificate of the CA, by which new nodes recognize the "
                   "coordinator; append the file of --tls-ca to it"));
}

absl::StatusOr<bool> RenewOwnCertificate(const security::TlsFiles& tls,
                                         const security::Authority& authority, absl::Time now) {
  ASSIGN_OR_RETURN(const std::string text, security::ReadTextFile(tls.cert));
  ASSIGN_OR_RETURN(const security::CertificateInfo current, security::ReadCertificate(text));
  const absl::Duration validity = current.not_after - current.not_before;
  if (current.not_after - now > validity / 3) return false;
  ASSIGN_OR_RETURN(
      const std::string renewed,
      authority.Issue(current.public_key,
                      {current.common_name, current.hosts, "", security::Usage::kServer},
                      security::NewSerial(), security::ValidFor(validity, now)));
  RETURN_IF_ERROR(security::WritePrivateFile(tls.cert, renewed, /*lock=*/false).status());
  return true;
}

}  // namespace muster::service
