// A certificate authority: the key and certificate with which a cluster's certificates are signed.
#ifndef MUSTER_COMMON_SECURITY_AUTHORITY_H_
#define MUSTER_COMMON_SECURITY_AUTHORITY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/security/certificate.h"

namespace muster::security {

// A new serial number: 126 random bits, hexadecimal.
std::string NewSerial();

struct Validity {
  absl::Time not_before;
  absl::Time not_after;
};
// From up to five minutes before `now`, for clocks that are behind.
Validity ValidFor(absl::Duration duration, absl::Time now);

// Contents of a certificate to issue.
struct CertificateSubject {
  std::string common_name;
  std::vector<std::string> hosts;  // names and addresses
  std::string uri;                 // none if empty
  Usage usage = Usage::kClient;
};

// A value; thread-safe if it is const.
class Authority {
 public:
  // Makes a new key and certificate.
  static absl::StatusOr<Authority> Create(const std::string& common_name, const Validity& validity);
  // Reads the files. Errors: those of ReadPrivateFile for the key, INVALID_ARGUMENT if they are not
  // those of an authority.
  static absl::StatusOr<Authority> Load(const std::string& certificate_file,
                                        const std::string& key_file);

  // The certificate of a public key (SubjectPublicKeyInfo in DER), followed by the authority's, in
  // PEM. It does not outlive the authority's.
  absl::StatusOr<std::string> Issue(const std::string& public_key,
                                    const CertificateSubject& subject, const std::string& serial,
                                    const Validity& validity) const;

  const std::string& certificate() const { return certificate_; }  // PEM
  const std::string& key() const { return key_; }                  // PEM
  const std::string& pin() const { return pin_; }                  // see PinOf
  absl::Time not_after() const { return not_after_; }

 private:
  Authority() = default;
  static absl::StatusOr<Authority> FromText(std::string certificate, std::string key);

  std::string certificate_;
  std::string key_;
  std::string pin_;
  absl::Time not_after_;
};

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_AUTHORITY_H_
