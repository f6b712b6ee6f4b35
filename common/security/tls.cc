#include "common/security/tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/http/address.h"
#include "common/security/private_file.h"
#include "common/status.h"

namespace muster::security {
namespace {

constexpr int kConnectTimeoutMs = 1000;
constexpr int kAnswerTimeoutSeconds = 2;

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using SslContext = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using Ssl = std::unique_ptr<SSL, Free<SSL_free>>;
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using File = std::unique_ptr<FILE, Free<fclose>>;
using Names = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;

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
  // Without a terminal to ask for a password.
  char no_password[] = "";
  Key key(PEM_read_bio_PrivateKey(memory.get(), nullptr, nullptr, no_password));
  ERR_clear_error();
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls-key: ", path, " is not a PEM private key without a password"));
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

// "localhost, 10.0.0.1": what the certificate is good for.
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
  return texts.empty() ? "no name at all" : absl::StrJoin(texts, ", ");
}

// Connected within kConnectTimeoutMs, or -1.
OwnedFd Connect(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &first) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, Free<freeaddrinfo>> owner(first);
  for (const addrinfo* info = first; info != nullptr; info = info->ai_next) {
    OwnedFd fd(socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0) continue;
    if (connect(fd.get(), info->ai_addr, info->ai_addrlen) != 0) {
      pollfd wait = {fd.get(), POLLOUT, 0};
      int error = 0;
      socklen_t size = sizeof(error);
      if (errno != EINPROGRESS || poll(&wait, 1, kConnectTimeoutMs) != 1 ||
          getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0) {
        continue;
      }
    }
    const timeval timeout = {kAnswerTimeoutSeconds, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
    return fd;
  }
  return {};
}

// What is wrong with the server's certificate; OK when nothing is.
absl::Status VerifyVerdict(SSL* ssl, const std::string& target, const Address& address,
                           const TlsFiles& files) {
  const long result = SSL_get_verify_result(ssl);
  if (result == X509_V_OK) return absl::OkStatus();
  const Certificate shown(SSL_get1_peer_certificate(ssl));
  if (shown == nullptr) return absl::OkStatus();
  const std::string whose = absl::StrCat("the certificate of the coordinator at ", target);
  switch (result) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return absl::UnauthenticatedError(absl::StrCat(whose, " expired on ",
                                                     TimeText(X509_get0_notAfter(shown.get())),
                                                     ": the coordinator needs a new one"));
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return absl::UnauthenticatedError(absl::StrCat(whose, " is valid only from ",
                                                     TimeText(X509_get0_notBefore(shown.get())),
                                                     ": compare the clocks"));
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return absl::UnauthenticatedError(absl::StrCat(
          whose, " is for ", NamesOf(shown.get()), " and not for ", address.host,
          ": call the coordinator by such a name, or give it a certificate for this one"));
    default:
      return absl::UnauthenticatedError(absl::StrCat(
          whose, " is not signed by the CA in ", files.ca, " (",
          X509_verify_cert_error_string(result),
          "): give the coordinator's own CA with --tls-ca; if it is the right one, somebody else "
          "answers there"));
  }
}

// What the server said of us before it hung up; OK when it did not say.
absl::Status AlertVerdict(unsigned long error, const std::string& target, const TlsFiles& files) {
  const std::string who = absl::StrCat("the coordinator at ", target);
  switch (ERR_GET_REASON(error)) {
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
    case SSL_R_HTTP_REQUEST:
      return absl::UnauthenticatedError(
          absl::StrCat(who,
                       " speaks plain text, and --tls-ca asks for TLS: start it with "
                       "--tls-cert and --tls-key, or leave --tls-ca out"));
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
      if (!files.cert.empty()) break;
      return absl::UnauthenticatedError(
          absl::StrCat(who,
                       " wants a client certificate: give one that its CA has signed, with "
                       "--tls-cert and --tls-key"));
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
      return absl::UnauthenticatedError(
          absl::StrCat(who, " does not accept the client certificate ", files.cert,
                       ": it has to be signed by the CA of the coordinator's --tls-ca"));
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
      return absl::UnauthenticatedError(absl::StrCat(
          who, " does not accept the client certificate ", files.cert, ": it has expired"));
  }
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return absl::OkStatus();
  const char* reason = ERR_reason_error_string(error);
  return absl::UnauthenticatedError(
      absl::StrCat("no TLS with ", who, ": ", reason == nullptr ? "unknown error" : reason));
}

// A client's half of a handshake over `fd`, with the CA and the certificate of `files` where given.
Ssl MakeSsl(SSL_CTX* context, int fd, const Address& address, const TlsFiles& files) {
  if (!files.ca.empty()) {
    SSL_CTX_load_verify_locations(context, files.ca.c_str(), nullptr);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  }
  if (!files.cert.empty()) {
    SSL_CTX_use_certificate_chain_file(context, files.cert.c_str());
    SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM);
  }
  static constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(context, kHttp2, sizeof(kHttp2));
  Ssl ssl(SSL_new(context));
  SSL_set_fd(ssl.get(), fd);
  if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), address.host.c_str()) != 1) {
    SSL_set1_host(ssl.get(), address.host.c_str());
    SSL_set_tlsext_host_name(ssl.get(), address.host.c_str());
  }
  ERR_clear_error();
  return ssl;
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (files.cert.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(
        files.key.empty() ? "--tls-cert needs --tls-key too: the certificate's private key"
                          : "--tls-key needs --tls-cert too: the key's certificate");
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
  const OwnedFd fd = Connect(*address);
  if (fd.get() < 0) return absl::OkStatus();
  const SslContext context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return absl::OkStatus();
  const Ssl ssl = MakeSsl(context.get(), fd.get(), *address, files);
  int result = SSL_connect(ssl.get());
  if (files.ca.empty()) {
    // Whoever answers with a certificate speaks TLS, however it goes on.
    const Certificate shown(SSL_get1_peer_certificate(ssl.get()));
    ERR_clear_error();
    if (shown == nullptr) return absl::OkStatus();
    return absl::UnauthenticatedError(
        absl::StrCat("the coordinator at ", target,
                     " serves TLS, and this client speaks plain text: name the CA that signed the "
                     "coordinator's certificate with --tls-ca"));
  }
  if (result == 1) {
    // What the server thinks of our certificate comes after the handshake; else its first frame.
    char byte = 0;
    result = SSL_read(ssl.get(), &byte, 1);
  }
  if (result == 1) return absl::OkStatus();
  const unsigned long error = ERR_peek_error();
  ERR_clear_error();
  RETURN_IF_ERROR(VerifyVerdict(ssl.get(), target, *address, files));
  return AlertVerdict(error, target, files);
}

}  // namespace muster::security
