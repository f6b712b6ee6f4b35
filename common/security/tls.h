// Checks the certificate and key files that flags name, and diagnoses failed TLS handshakes.
#ifndef MUSTER_COMMON_SECURITY_TLS_H_
#define MUSTER_COMMON_SECURITY_TLS_H_

#include <string>

#include "absl/status/status.h"

namespace muster::security {

// Paths of PEM files; empty if not given.
struct TlsFiles {
  std::string cert;  // certificate chain of this program
  std::string key;   // private key of cert; mode 0600
  std::string ca;    // CA certificate used to verify the peer
};

// Checks that each file exists and has the type that its flag requires, that key and certificate
// match, and that the certificate has not expired. INVALID_ARGUMENT, or the errors of
// ReadPrivateFile for the key; messages name the flag.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Determines by a separate handshake why a client with these files (without files: a plaintext
// client) cannot connect to the server at `target` (HOST:PORT), because gRPC does not report the
// reason. UNAUTHENTICATED with the reason and a remedy; OK if it finds no problem or cannot
// connect. Blocks for at most a few seconds.
absl::Status ProbeTls(const std::string& target, const TlsFiles& files);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_TLS_H_
