// Keys, certificate requests and certificates, as text.
#ifndef MUSTER_COMMON_SECURITY_CERTIFICATE_H_
#define MUSTER_COMMON_SECURITY_CERTIFICATE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/node_certificate.h"

namespace muster::security {

// A new ECDSA key on P-256, as PEM.
absl::StatusOr<std::string> NewPrivateKey();

// The public key of a private key (PEM), as SubjectPublicKeyInfo in DER.
absl::StatusOr<std::string> PublicKeyOf(absl::string_view private_key);

// A PKCS #10 request in DER, signed with the private key (PEM).
absl::StatusOr<std::string> NewCertificateRequest(absl::string_view private_key);
// The public key of a request whose signature is valid. INVALID_ARGUMENT otherwise, and for keys
// other than ECDSA on P-256.
absl::StatusOr<std::string> PublicKeyOfRequest(absl::string_view request);

// Roles in TLS that a certificate allows.
enum class Usage { kServer, kClient, kBoth };

// Contents of a certificate.
struct CertificateInfo {
  std::string serial;  // hexadecimal
  std::string common_name;
  absl::Time not_before;
  absl::Time not_after;
  std::vector<std::string> hosts;  // names and addresses
  std::vector<std::string> uris;
  std::string public_key;  // SubjectPublicKeyInfo in DER
  Usage usage = Usage::kBoth;
  bool is_authority = false;
};

// Reads the first certificate of a PEM text. INVALID_ARGUMENT if there is none.
absl::StatusOr<CertificateInfo> ReadCertificate(absl::string_view pem);
// Whether the first certificate of `pem` is signed by the authority with this certificate.
bool IsIssuedBy(absl::string_view pem, absl::string_view authority);
// All certificates of a PEM text, one text each.
std::vector<std::string> SplitChain(absl::string_view pem);

// The identity in a node's certificate: the URI muster://node/NAME?machine=ID, whose machine may be
// missing. nullopt for a certificate without one.
std::optional<NodeCertificate> NodeOf(const CertificateInfo& certificate);
std::string NodeUri(absl::string_view node, absl::string_view machine_id);

// A name in every node's certificate, under which nodes call each other. It keeps a node from
// serving under the name or address of the coordinator.
inline constexpr char kNodeHost[] = "node.muster.internal";

// "sha256:" and the SHA-256 of a public key, in hexadecimal: what `muster cluster join` compares.
std::string PinOf(absl::string_view public_key);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_CERTIFICATE_H_
