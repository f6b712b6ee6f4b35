// Certificates and keys as the programs' flags name them, and why a handshake fails.
#ifndef MUSTER_COMMON_SECURITY_TLS_H_
#define MUSTER_COMMON_SECURITY_TLS_H_

#include <string>

#include "absl/status/status.h"

namespace muster::security {

// Names of PEM files; empty where there is none.
struct TlsFiles {
  std::string cert;  // what this program shows, with its chain
  std::string key;   // of cert; mode 0600
  std::string ca;    // who must have signed what the peer shows
};

// Whether the files can be used: each is there and is what its flag says, key and certificate
// belong together, the certificate is not expired. INVALID_ARGUMENT, or what ReadPrivateFile says
// of the key, in words that name the flag.
absl::Status CheckTlsFiles(const TlsFiles& files);

// Asks the server at `target` (HOST:PORT), by a handshake of its own, why a client with these files
// (none: one without TLS) cannot talk to it; gRPC says no more than that it could not connect.
// UNAUTHENTICATED with the reason and what to do; OK when it finds nothing wrong, or nobody there.
// Blocks, for a few seconds at the most.
absl::Status ProbeTls(const std::string& target, const TlsFiles& files);

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_TLS_H_
