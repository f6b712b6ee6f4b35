#include "common/security/certificate.h"

#include <arpa/inet.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <time.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/security/openssl.h"
#include "common/sha256.h"
#include "common/status.h"

namespace muster::security {
namespace {

constexpr absl::string_view kNodeUri = "muster://node/";
constexpr absl::string_view kMachine = "?machine=";

OwnedBio TextBio(absl::string_view text) {
  return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string TextOf(const OwnedBio& bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, size);
}

absl::Status Failed(absl::string_view what) {
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, ": ", reason == nullptr ? "failed" : reason));
}

std::string EncodeKey(EVP_PKEY* key) {
  unsigned char* bytes = nullptr;
  const int size = i2d_PUBKEY(key, &bytes);
  if (size <= 0) return "";
  std::string text(reinterpret_cast<char*>(bytes), size);
  OPENSSL_free(bytes);
  return text;
}

absl::StatusOr<OwnedKey> ParsePrivateKey(absl::string_view pem) {
  // An empty password keeps OpenSSL from prompting on the terminal.
  char no_password[] = "";
  OwnedKey key(PEM_read_bio_PrivateKey(TextBio(pem).get(), nullptr, nullptr, no_password));
  ERR_clear_error();
  if (key == nullptr) return absl::InvalidArgumentError("not an unencrypted PEM private key");
  return key;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  tm parts = {};
  ASN1_TIME_to_tm(time, &parts);
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string SerialOf(const X509* certificate) {
  const OwnedNumber number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  char* digits = BN_bn2hex(number.get());
  std::string text = absl::AsciiStrToLower(digits);
  OPENSSL_free(digits);
  return text;
}

void ReadNames(X509* certificate, CertificateInfo& info) {
  const OwnedNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  const auto text = [](const ASN1_STRING* string) {
    return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(string)),
                       ASN1_STRING_length(string));
  };
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) {
      info.hosts.push_back(text(name->d.dNSName));
    } else if (name->type == GEN_URI) {
      info.uris.push_back(text(name->d.uniformResourceIdentifier));
    } else if (name->type == GEN_IPADD) {
      char address[INET6_ADDRSTRLEN] = {};
      const int family = ASN1_STRING_length(name->d.iPAddress) == 4 ? AF_INET : AF_INET6;
      inet_ntop(family, ASN1_STRING_get0_data(name->d.iPAddress), address, sizeof(address));
      info.hosts.emplace_back(address);
    }
  }
}

}  // namespace

absl::StatusOr<std::string> NewPrivateKey() {
  const OwnedKey key(EVP_EC_gen("P-256"));
  const OwnedBio out(BIO_new(BIO_s_mem()));
  if (key == nullptr ||
      PEM_write_bio_PrivateKey(out.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return Failed("generate a private key");
  }
  return TextOf(out);
}

absl::StatusOr<std::string> PublicKeyOf(absl::string_view private_key) {
  ASSIGN_OR_RETURN(const OwnedKey key, ParsePrivateKey(private_key));
  return EncodeKey(key.get());
}

absl::StatusOr<std::string> NewCertificateRequest(absl::string_view private_key) {
  ASSIGN_OR_RETURN(const OwnedKey key, ParsePrivateKey(private_key));
  const OwnedRequest request(X509_REQ_new());
  unsigned char* bytes = nullptr;
  if (X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0) {
    return Failed("sign a certificate request");
  }
  const int size = i2d_X509_REQ(request.get(), &bytes);
  if (size <= 0) return Failed("encode a certificate request");
  std::string text(reinterpret_cast<char*>(bytes), size);
  OPENSSL_free(bytes);
  return text;
}

absl::StatusOr<std::string> PublicKeyOfRequest(absl::string_view request) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(request.data());
  const OwnedRequest parsed(d2i_X509_REQ(nullptr, &bytes, static_cast<long>(request.size())));
  ERR_clear_error();
  if (parsed == nullptr) {
    return absl::InvalidArgumentError("certificate_request is not a PKCS #10 request in DER");
  }
  EVP_PKEY* const key = X509_REQ_get0_pubkey(parsed.get());
  char group[32] = {};
  if (key == nullptr || EVP_PKEY_get_group_name(key, group, sizeof(group), nullptr) != 1 ||
      OBJ_sn2nid(group) != NID_X9_62_prime256v1) {
    ERR_clear_error();
    return absl::InvalidArgumentError("certificate_request: the key is not an ECDSA key on P-256");
  }
  const int valid = X509_REQ_verify(parsed.get(), key);
  ERR_clear_error();
  if (valid != 1) {
    return absl::InvalidArgumentError("certificate_request: the signature does not match the key");
  }
  return EncodeKey(key);
}

absl::StatusOr<CertificateInfo> ReadCertificate(absl::string_view pem) {
  const OwnedCertificate certificate(
      PEM_read_bio_X509(TextBio(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  if (certificate == nullptr) return absl::InvalidArgumentError("not a PEM certificate");
  CertificateInfo info;
  info.serial = SerialOf(certificate.get());
  char name[256] = {};
  X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name,
                            sizeof(name));
  info.common_name = name;
  info.not_before = TimeOf(X509_get0_notBefore(certificate.get()));
  info.not_after = TimeOf(X509_get0_notAfter(certificate.get()));
  ReadNames(certificate.get(), info);
  info.public_key = EncodeKey(X509_get0_pubkey(certificate.get()));
  const uint32_t usage = X509_get_extended_key_usage(certificate.get());
  if ((usage & XKU_SSL_CLIENT) == 0) info.usage = Usage::kServer;
  if ((usage & XKU_SSL_SERVER) == 0) info.usage = Usage::kClient;
  info.is_authority = X509_check_ca(certificate.get()) == 1;
  ERR_clear_error();
  return info;
}

bool IsIssuedBy(absl::string_view pem, absl::string_view authority) {
  const auto parse = [](absl::string_view text) {
    return OwnedCertificate(PEM_read_bio_X509(TextBio(text).get(), nullptr, nullptr, nullptr));
  };
  const OwnedCertificate certificate = parse(pem);
  const OwnedCertificate issuer = parse(authority);
  const bool signed_by = certificate != nullptr && issuer != nullptr &&
                         X509_verify(certificate.get(), X509_get0_pubkey(issuer.get())) == 1;
  ERR_clear_error();
  return signed_by;
}

std::vector<std::string> SplitChain(absl::string_view pem) {
  constexpr absl::string_view kEnd = "-----END CERTIFICATE-----\n";
  std::vector<std::string> chain;
  for (size_t at = 0;;) {
    const size_t begin = pem.find("-----BEGIN CERTIFICATE-----", at);
    const size_t end = pem.find(kEnd, at);
    if (begin == absl::string_view::npos || end == absl::string_view::npos || end < begin) break;
    at = end + kEnd.size();
    chain.emplace_back(pem.substr(begin, at - begin));
  }
  return chain;
}

std::string NodeUri(absl::string_view node, absl::string_view machine_id) {
  return machine_id.empty() ? absl::StrCat(kNodeUri, node)
                            : absl::StrCat(kNodeUri, node, kMachine, machine_id);
}

std::optional<NodeCertificate> NodeOf(const CertificateInfo& certificate) {
  for (absl::string_view uri : certificate.uris) {
    if (!absl::ConsumePrefix(&uri, kNodeUri)) continue;
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(uri, absl::MaxSplits(kMachine, 1));
    return NodeCertificate{parts.first, parts.second, certificate.serial, certificate.not_after};
  }
  return std::nullopt;
}

std::string PinOf(absl::string_view public_key) {
  return absl::StrCat("sha256:", Sha256Hex(public_key));
}

}  // namespace muster::security
