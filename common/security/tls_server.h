// TLS of a server whose clients are browsers.
#ifndef MUSTER_COMMON_SECURITY_TLS_SERVER_H_
#define MUSTER_COMMON_SECURITY_TLS_SERVER_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/security/openssl.h"
#include "common/security/tls.h"
#include "common/time/time.h"

namespace muster::security {

// Serves the certificate in `files`, which it reads again every ten seconds; while they are not
// usable, it keeps the previous one. Thread-safe.
class TlsServer {
 public:
  explicit TlsServer(TlsFiles files) : files_(std::move(files)) {}

  // The server's side of a handshake that is about to begin on the socket. Null, with the reason in
  // the log, if the files could never be used.
  OwnedSsl NewConnection(int socket);

 private:
  const TlsFiles files_;
  absl::Mutex mutex_;
  OwnedSslContext context_ ABSL_GUARDED_BY(mutex_);
  SteadyTime next_load_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_TLS_SERVER_H_
