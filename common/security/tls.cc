#include "common/security/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/http/address.h"
#include "common/security/openssl.h"
#include "common/security/private_file.h"
#include "common/security/tls_socket.h"
#include "common/status.h"

namespace muster::security {
namespace {

using Certificate = OwnedCertificate;
using Key = OwnedKey;
using SslContext = OwnedSslContext;
using Ssl = OwnedSsl;
using Bio = OwnedBio;
using Names = OwnedNames;
using File = std::unique_ptr<FILE, Free<fclose>>;

absl::StatusOr<Certificate> ReadCertificate(absl::string_view flag, const std::string& path) {
  const File file(fopen(path.c_str(), "re"));
  if (file == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", ErrnoStatus(errno, absl::StrCat("read ", path)).message()));
  }
  Certificate certificate(PEM_read_X509(file.get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(flag, ": ", path, " is not a PEM certificate"));
  }
  return certificate;
}

absl::StatusOr<Key> ReadKey(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadPrivateFile(path);
  if (!text.ok()) return Annotate(text.status(), "--tls-key");
  const Bio memory(BIO_new_mem_buf(text->data(), static_cast<int>(text->size())));
  // An empty password keeps OpenSSL from prompting on the terminal.
  char no_password[] = "";
  Key key(PEM_read_bio_PrivateKey(memory.get(), nullptr, nullptr, no_password));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-key: ", path, " is not an unencrypted PEM private key"));
  }
  return key;
}

std::string TimeText(const ASN1_TIME* time) {
  tm parts = {};
  ASN1_TIME_to_tm(time, &parts);
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", absl::FromTM(parts, absl::UTCTimeZone()),
                          absl::UTCTimeZone());
}

bool IsPast(const ASN1_TIME* time) { return X509_cmp_current_time(time) < 0; }

// The certificate's subject alternative names: "localhost, 10.0.0.1".
std::string NamesOf(X509* certificate) {
  std::vector<std::string> texts;
  const Names names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) {
      texts.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                         ASN1_STRING_length(name->d.dNSName));
    } else if (name->type == GEN_IPADD) {
      const unsigned char* bytes = ASN1_STRING_get0_data(name->d.iPAddress);
      char text[INET6_ADDRSTRLEN] = {};
      const int family = ASN1_STRING_length(name->d.iPAddress) == 4 ? AF_INET : AF_INET6;
      inet_ntop(family, bytes, text, sizeof(text));
      texts.emplace_back(text);
    }
  }
  return texts.empty() ? "no host name" : absl::StrJoin(texts, ", ");
}

// Observations about the server during a handshake.
struct HandshakeResult {
  int verify_error = X509_V_OK;
  Certificate server_certificate;
  bool client_certificate_requested = false;
};

// Keeps the server's certificate, because OpenSSL drops one that fails verification.
int OnVerified(int ok, X509_STORE_CTX* store) {
  const auto* ssl = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto& handshake = *static_cast<HandshakeResult*>(SSL_get_app_data(ssl));
  X509* leaf = X509_STORE_CTX_get0_cert(store);
  X509_up_ref(leaf);
  handshake.server_certificate.reset(leaf);
  if (ok == 0 && handshake.verify_error == X509_V_OK) {
    handshake.verify_error = X509_STORE_CTX_get_error(store);
  }
  return ok;
}

// Only records the request: the certificate, if any, is already set in the context.
int OnCertificateRequest(SSL* ssl, void* /*unused*/) {
  static_cast<HandshakeResult*>(SSL_get_app_data(ssl))->client_certificate_requested = true;
  return 1;
}

// The client side of a handshake over `fd`, with the CA and certificate of `files` if given.
Ssl MakeSsl(SSL_CTX* context, int fd, const Address& address, const TlsFiles& files,
            HandshakeResult& handshake) {
  if (!files.ca.empty()) {
    SSL_CTX_load_verify_locations(context, files.ca.c_str(), nullptr);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, OnVerified);
  }
  if (!files.cert.empty()) {
    SSL_CTX_use_certificate_chain_file(context, files.cert.c_str());
    SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM);
  }
  SSL_CTX_set_cert_cb(context, OnCertificateRequest, nullptr);
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context, kHttp2, sizeof(kHttp2));
  Ssl ssl(SSL_new(context));
  SSL_set_app_data(ssl.get(), &handshake);
  SSL_set_fd(ssl.get(), fd);
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), address.host.c_str()) != 1) {
    SSL_set1_host(ssl.get(), address.host.c_str());
    SSL_set_tlsext_host_name(ssl.get(), address.host.c_str());
  }
  ERR_clear_error();
  return ssl;
}

// Why the server's certificate failed verification.
std::string VerifyErrorText(const HandshakeResult& handshake, const std::string& target,
                            const Address& address, const TlsFiles& files) {
  X509* certificate = handshake.server_certificate.get();
  const std::string subject = absl::StrCat("the certificate of the coordinator at ", target);
  switch (handshake.verify_error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::StrCat(subject, " expired on ", TimeText(X509_get0_notAfter(certificate)),
                          "; renew it");
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::StrCat(subject, " is not valid before ",
                          TimeText(X509_get0_notBefore(certificate)),
                          "; check the clocks of both machines");
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return absl::StrCat(
          subject, " is valid for ", NamesOf(certificate), ", not for ", address.host,
          "; connect by a name in the certificate or issue a certificate for ", address.host);
    default:
      return absl::StrCat(subject, " is not signed by the CA in ", files.ca, " (",
                          X509_verify_cert_error_string(handshake.verify_error),
                          "); pass the coordinator's CA certificate with --tls-ca; if it is the "
                          "right one, another server is listening at this address");
  }
}

// Why the handshake failed. If the server closed the connection without a reason, it is inferred
// from the server's request for a client certificate.
std::string HandshakeErrorText(const HandshakeResult& handshake, unsigned long error,
                               const std::string& target, const TlsFiles& files) {
  const std::string server = absl::StrCat("the coordinator at ", target);
  switch (ERR_GET_REASON(error)) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_HTTP_REQUEST:
      return absl::StrCat(server,
                          " serves plaintext, but --tls-ca requires TLS; start the coordinator "
                          "with --tls-cert and --tls-key, or omit --tls-ca");
  }
  if (handshake.client_certificate_requested && files.cert.empty()) {
    return absl::StrCat(server,
                        " requires a client certificate; pass one signed by its CA with "
                        "--tls-cert and --tls-key");
  }
  if (handshake.client_certificate_requested) {
    return absl::StrCat(server, " rejected the client certificate ", files.cert,
                        "; it must be signed by the CA of the coordinator's --tls-ca");
  }
  const char* reason = ERR_reason_error_string(error);
  return absl::StrCat("TLS handshake with ", server,
                      " failed: ", reason == nullptr ? "connection closed" : reason);
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (files.cert.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(
        files.key.empty() ? "--tls-cert needs --tls-key, the certificate's private key"
                          : "--tls-key needs --tls-cert, the key's certificate");
  }
  if (!files.ca.empty()) RETURN_IF_ERROR(ReadCertificate("--tls-ca", files.ca).status());
  if (files.cert.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Certificate certificate, ReadCertificate("--tls-cert", files.cert));
  ASSIGN_OR_RETURN(const Key key, ReadKey(files.key));
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    ERR_clear_error();
    return absl::InvalidArgumentError(absl::StrCat(
        "--tls-key: ", files.key, " is not the key of the certificate in ", files.cert));
  }
  if (IsPast(X509_get0_notAfter(certificate.get()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-cert: the certificate in ", files.cert, " expired on ",
                     TimeText(X509_get0_notAfter(certificate.get()))));
  }
  return absl::OkStatus();
}

absl::Status ProbeTls(const std::string& target, const TlsFiles& files) {
  const absl::StatusOr<Address> address = ParseAddress(target);
  if (!address.ok()) return absl::OkStatus();
  const OwnedFd fd = ConnectForHandshake(*address);
  if (fd.get() < 0) return absl::OkStatus();
  const SslContext context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::OkStatus();
  HandshakeResult handshake;
  const Ssl ssl = MakeSsl(context.get(), fd.get(), *address, files, handshake);
  int result = SSL_connect(ssl.get());
  if (files.ca.empty()) {
    // A server that sends a certificate uses TLS, whether or not the handshake succeeds.
    const Certificate certificate(SSL_get1_peer_certificate(ssl.get()));
    ERR_clear_error();
    if (certificate == nullptr) return absl::OkStatus();
    return absl::UnauthenticatedError(
        absl::StrCat("the coordinator at ", target,
                     " serves TLS, but this client uses plaintext; pass the CA certificate used to "
                     "verify the coordinator with --tls-ca"));
  }
  if (result == 1) {
    // The server reports a rejected client certificate only after the handshake; otherwise it sends
    // its first HTTP/2 frame.
    char byte = 0;
    result = SSL_read(ssl.get(), &byte, 1);
  }
  const unsigned long error = ERR_peek_error();
  ERR_clear_error();
  if (result == 1) return absl::OkStatus();
  return absl::UnauthenticatedError(handshake.verify_error != X509_V_OK
                                        ? VerifyErrorText(handshake, target, *address, files)
                                        : HandshakeErrorText(handshake, error, target, files));
}

}  // namespace muster::security
