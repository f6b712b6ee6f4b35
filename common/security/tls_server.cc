#include "common/security/tls_server.h"

#include <glog/logging.h>
#include <openssl/err.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/status.h"
#include "common/time/now.h"

namespace muster::security {
namespace {

constexpr absl::Duration kReloadInterval = absl::Seconds(10);
// Rate limit, because each connection of a client may find the same problem.
constexpr int kSecondsBetweenLogLines = 60;

absl::StatusOr<OwnedSslContext> Load(const TlsFiles& files) {
  RETURN_IF_ERROR(CheckTlsFiles(files));
  OwnedSslContext context(SSL_CTX_new(TLS_server_method()));
  SSL_CTX* const raw = context.get();
  const bool loaded = raw != nullptr && SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION) == 1 &&
                      SSL_CTX_use_certificate_chain_file(raw, files.cert.c_str()) == 1 &&
                      SSL_CTX_use_PrivateKey_file(raw, files.key.c_str(), SSL_FILETYPE_PEM) == 1;
  ERR_clear_error();
  if (!loaded) return absl::InvalidArgumentError("--tls-cert: OpenSSL cannot use the files");
  return context;
}

}  // namespace

OwnedSsl TlsServer::NewConnection(int socket) {
  absl::MutexLock lock(&mutex_);
  const SteadyTime now = SteadyNow();
  if (now >= next_load_) {
    next_load_ = now + kReloadInterval;
    absl::StatusOr<OwnedSslContext> loaded = Load(files_);
    if (loaded.ok()) {
      context_ = *std::move(loaded);
    } else {
      LOG_EVERY_T(ERROR, kSecondsBetweenLogLines)
          << "cannot load the certificate of the HTTP server: " << loaded.status().message();
    }
  }
  if (context_ == nullptr) return nullptr;
  OwnedSsl ssl(SSL_new(context_.get()));
  if (ssl != nullptr) SSL_set_fd(ssl.get(), socket);
  return ssl;
}

}  // namespace muster::security
