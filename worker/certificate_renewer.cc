#include "worker/certificate_renewer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/grpc/channel.h"
#include "common/grpc/deadline.h"
#include "common/grpc/status.h"
#include "common/security/certificate.h"
#include "common/security/private_file.h"
#include "common/security/text_file.h"
#include "common/status.h"
#include "glog/logging.h"
#include "grpcpp/grpcpp.h"
#include "proto/muster/v1/identity.grpc.pb.h"

namespace muster {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(30);
// Interval at which the file is looked at: an operator may replace it.
constexpr absl::Duration kLongestSleep = absl::Hours(1);
constexpr absl::Duration kShortestSleep = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Minutes(10);

absl::StatusOr<security::CertificateInfo> ReadFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, security::ReadTextFile(path));
  return security::ReadCertificate(text);
}

// Time until a third of the validity is left.
absl::Duration UntilDue(const security::CertificateInfo& certificate) {
  const absl::Time due =
      certificate.not_after - (certificate.not_after - certificate.not_before) / 3;
  return due - absl::Now();
}

}  // namespace

bool HasNodeCertificate(const security::TlsFiles& tls) {
  if (tls.cert.empty()) return false;
  const auto certificate = ReadFile(tls.cert);
  return certificate.ok() && security::NodeOf(*certificate).has_value();
}

CertificateRenewer::CertificateRenewer(std::string coordinator, security::ClientSecurity security)
    : coordinator_(std::move(coordinator)),
      security_(std::move(security)),
      thread_([this] { Run(); }) {}

CertificateRenewer::~CertificateRenewer() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    stopped_.Signal();
    if (call_ != nullptr) call_->TryCancel();
  }
  thread_.join();
}

bool CertificateRenewer::Sleep(absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  return !stopped_.WaitFor(&mutex_, time, [this] {
    mutex_.AssertHeld();
    return stopping_;
  });
}

void CertificateRenewer::Run() {
  absl::Duration pause;
  do {
    const auto certificate = ReadFile(security_.tls.cert);
    const absl::Duration due = certificate.ok() ? UntilDue(*certificate) : absl::ZeroDuration();
    if (due > absl::ZeroDuration()) {
      pause = std::clamp(due, kShortestSleep, kLongestSleep);
      continue;
    }
    const absl::Status renewed = certificate.ok() ? Renew() : certificate.status();
    if (renewed.ok()) {
      LOG(INFO) << "renewed the certificate of this node, " << security_.tls.cert;
      pause = kShortestSleep;
      continue;
    }
    const absl::Duration left =
        certificate.ok() ? certificate->not_after - absl::Now() : absl::ZeroDuration();
    LOG(WARNING) << "cannot renew the certificate of this node, " << security_.tls.cert
                 << ", which expires in " << absl::FormatDuration(left) << ": "
                 << renewed.message();
    pause = std::clamp(left / 10, kShortestSleep, kLongestPause);
  } while (Sleep(pause));
}

absl::Status CertificateRenewer::Renew() {
  const auto stub = v1::IdentityService::NewStub(OpenChannel(coordinator_, {}, security_));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kCallTimeout));
  {
    absl::MutexLock lock(&mutex_);
    if (stopping_) return absl::CancelledError("the worker is stopping");
    call_ = &context;
  }
  v1::RenewCertificateResponse response;
  const grpc::Status status =
      stub->RenewCertificate(&context, v1::RenewCertificateRequest(), &response);
  {
    absl::MutexLock lock(&mutex_);
    call_ = nullptr;
  }
  RETURN_IF_ERROR(FromGrpcStatus(status));
  RETURN_IF_ERROR(security::ReadCertificate(response.certificate_chain()).status());
  return security::WritePrivateFile(security_.tls.cert, response.certificate_chain(),
                                    /*lock=*/false)
      .status();
}

}  // namespace muster
