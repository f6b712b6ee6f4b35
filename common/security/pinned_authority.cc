#include "common/security/pinned_authority.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/http/address.h"
#include "common/security/certificate.h"
#include "common/security/openssl.h"
#include "common/security/tls_socket.h"
#include "common/status.h"

namespace muster::security {
namespace {

constexpr size_t kPinDigits = 64;

absl::Status CheckPin(absl::string_view pin) {
  absl::string_view digits = pin;
  if (absl::ConsumePrefix(&digits, "sha256:") && digits.size() == kPinDigits &&
      digits.find_first_not_of("0123456789abcdef") == absl::string_view::npos) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", pin, "' is not a pin: sha256: and 64 hexadecimal digits, as muster node token prints"));
}

}  // namespace

absl::StatusOr<std::string> FetchPinnedAuthority(const std::string& target,
                                                 const std::string& pin) {
  RETURN_IF_ERROR(CheckPin(pin));
  ASSIGN_OR_RETURN(const Address address, ParseAddress(target));
  const OwnedFd fd = ConnectForHandshake(address);
  if (fd.get() < 0) return absl::UnavailableError(absl::StrCat("cannot connect to ", target));
  const OwnedSslContext context(SSL_CTX_new(TLS_client_method()));
  const OwnedSsl ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), fd.get());
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof(kHttp2));
  SSL_set_tlsext_host_name(ssl.get(), address.host.c_str());
  const int connected = SSL_connect(ssl.get());
  ERR_clear_error();
  STACK_OF(X509)* const chain = SSL_get_peer_cert_chain(ssl.get());
  if (connected != 1 || chain == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("the server at ", target, " does not serve TLS; check the address"));
  }
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    const OwnedBio out(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(out.get(), sk_X509_value(chain, i));
    char* data = nullptr;
    const long size = BIO_get_mem_data(out.get(), &data);
    std::string pem(data, size);
    const absl::StatusOr<CertificateInfo> info = ReadCertificate(pem);
    if (info.ok() && info->is_authority && PinOf(info->public_key) == pin) return pem;
  }
  return absl::UnauthenticatedError(absl::StrCat(
      "no certificate of the server at ", target, " has the pin ", pin,
      "; it is not the coordinator that created the token, or another server has its address"));
}

}  // namespace muster::security
