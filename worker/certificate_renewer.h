// Renews this node's certificate before it expires.
#ifndef MUSTER_WORKER_CERTIFICATE_RENEWER_H_
#define MUSTER_WORKER_CERTIFICATE_RENEWER_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/security/client_security.h"
#include "common/time/steady_cond_var.h"
#include "grpcpp/client_context.h"

namespace muster {

// Whether the file of --tls-cert is the certificate of a node: then its worker needs no token.
bool HasNodeCertificate(const security::TlsFiles& tls);

// Owns a thread that asks the coordinator for the next certificate, for the same key, when a third
// of the validity is left, and replaces the file of --tls-cert. Later connections use it. A
// failure is logged and the request repeated.
class CertificateRenewer {
 public:
  CertificateRenewer(std::string coordinator, security::ClientSecurity security);
  // Cancels a request in progress.
  ~CertificateRenewer();

 private:
  void Run();
  // Waits for the time, or for the end of this object; returns whether it continues.
  bool Sleep(absl::Duration time) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status Renew() ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string coordinator_;
  const security::ClientSecurity security_;
  absl::Mutex mutex_;
  SteadyCondVar stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // in progress
  std::thread thread_;
};

}  // namespace muster

#endif  // MUSTER_WORKER_CERTIFICATE_RENEWER_H_
