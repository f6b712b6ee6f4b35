#include "common/security/authority.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random_id.h"
#include "common/security/certificate.h"
#include "common/security/openssl.h"
#include "common/security/private_file.h"
#include "common/security/text_file.h"
#include "common/status.h"

namespace muster::security {
namespace {

constexpr absl::Duration kClockTolerance = absl::Minutes(5);

absl::Status Failed(absl::string_view what) {
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  return absl::InternalError(absl::StrCat(what, ": ", reason == nullptr ? "failed" : reason));
}

OwnedBio TextBio(absl::string_view text) {
  return OwnedBio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

OwnedKey ParseKey(const std::string& pem) {
  char no_password[] = "";
  return OwnedKey(PEM_read_bio_PrivateKey(TextBio(pem).get(), nullptr, nullptr, no_password));
}

OwnedCertificate ParseCertificate(const std::string& pem) {
  return OwnedCertificate(PEM_read_bio_X509(TextBio(pem).get(), nullptr, nullptr, nullptr));
}

bool SetTime(ASN1_TIME* field, absl::Time time) {
  return ASN1_TIME_adj(field, absl::ToTimeT(time), 0, 0) != nullptr;
}

// Adds an extension in the notation of openssl.cnf.
bool AddExtension(X509* certificate, X509* issuer, int type, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, type, value.c_str());
  if (extension == nullptr) return false;
  const bool added = X509_add_ext(certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool SetBasics(X509* certificate, const std::string& serial, const std::string& common_name,
               const Validity& validity) {
  BIGNUM* digits = nullptr;
  if (BN_hex2bn(&digits, serial.c_str()) == 0) return false;
  const OwnedNumber number(digits);
  return X509_set_version(certificate, X509_VERSION_3) == 1 &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr &&
         SetTime(X509_getm_notBefore(certificate), validity.not_before) &&
         SetTime(X509_getm_notAfter(certificate), validity.not_after) &&
         X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_UTF8,
                                    reinterpret_cast<const unsigned char*>(common_name.c_str()), -1,
                                    -1, 0) == 1;
}

// Adds the subject alternative names. They are not given as text, in which a comma would begin
// another name.
bool AddNames(X509* certificate, const CertificateSubject& subject) {
  const OwnedNames names(sk_GENERAL_NAME_new_null());
  const auto add = [&names](int type, const std::string& text) {
    GENERAL_NAME* const name = a2i_GENERAL_NAME(nullptr, nullptr, nullptr, type, text.c_str(), 0);
    return name != nullptr && sk_GENERAL_NAME_push(names.get(), name) > 0;
  };
  for (const std::string& host : subject.hosts) {
    if (!add(GEN_IPADD, host) && !add(GEN_DNS, host)) return false;
  }
  if (!subject.uri.empty() && !add(GEN_URI, subject.uri)) return false;
  ERR_clear_error();  // of names that are not addresses
  if (sk_GENERAL_NAME_num(names.get()) == 0) return true;
  return X509_add1_ext_i2d(certificate, NID_subject_alt_name, names.get(), 0, X509V3_ADD_DEFAULT) ==
         1;
}

const char* UsageText(Usage usage) {
  switch (usage) {
    case Usage::kServer:
      return "serverAuth";
    case Usage::kClient:
      return "clientAuth";
    case Usage::kBoth:
      break;
  }
  return "serverAuth,clientAuth";
}

std::string PemOf(X509* certificate) {
  const OwnedBio out(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(out.get(), certificate);
  char* data = nullptr;
  const long size = BIO_get_mem_data(out.get(), &data);
  return std::string(data, size);
}

}  // namespace

std::string NewSerial() {
  // A first digit from 4 to 7 makes it a positive number of exactly 16 bytes.
  return absl::StrCat(RandomId(1, "4567"), RandomId(31, "0123456789abcdef"));
}

Validity ValidFor(absl::Duration duration, absl::Time now) {
  return {now - std::min(kClockTolerance, duration / 10), now + duration};
}

absl::StatusOr<Authority> Authority::Create(const std::string& common_name,
                                            const Validity& validity) {
  ASSIGN_OR_RETURN(std::string key_text, NewPrivateKey());
  const OwnedKey key = ParseKey(key_text);
  const OwnedCertificate certificate(X509_new());
  X509* const x509 = certificate.get();
  if (!SetBasics(x509, NewSerial(), common_name, validity) ||
      X509_set_issuer_name(x509, X509_get_subject_name(x509)) != 1 ||
      X509_set_pubkey(x509, key.get()) != 1 ||
      !AddExtension(x509, x509, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(x509, x509, NID_key_usage, "critical,keyCertSign,cRLSign") ||
      !AddExtension(x509, x509, NID_subject_key_identifier, "hash") ||
      X509_sign(x509, key.get(), EVP_sha256()) == 0) {
    return Failed("make a certificate authority");
  }
  return FromText(PemOf(x509), std::move(key_text));
}

absl::StatusOr<Authority> Authority::Load(const std::string& certificate_file,
                                          const std::string& key_file) {
  ASSIGN_OR_RETURN(std::string certificate, ReadTextFile(certificate_file));
  ASSIGN_OR_RETURN(std::string key, ReadPrivateFile(key_file));
  absl::StatusOr<Authority> authority = FromText(std::move(certificate), std::move(key));
  if (authority.ok()) return authority;
  return Annotate(authority.status(), absl::StrCat(certificate_file, " and ", key_file));
}

absl::StatusOr<Authority> Authority::FromText(std::string certificate, std::string key) {
  ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(certificate));
  ASSIGN_OR_RETURN(const std::string public_key, PublicKeyOf(key));
  if (!info.is_authority) {
    return absl::InvalidArgumentError("the certificate is not that of a certificate authority");
  }
  if (public_key != info.public_key) {
    return absl::InvalidArgumentError("the key is not that of the certificate");
  }
  Authority authority;
  // Without what else the file may contain.
  authority.certificate_ = PemOf(ParseCertificate(certificate).get());
  authority.key_ = std::move(key);
  authority.pin_ = PinOf(public_key);
  authority.not_after_ = info.not_after;
  return authority;
}

absl::StatusOr<std::string> Authority::Issue(const std::string& public_key,
                                             const CertificateSubject& subject,
                                             const std::string& serial,
                                             const Validity& validity) const {
  const OwnedKey own_key = ParseKey(key_);
  const OwnedCertificate issuer = ParseCertificate(certificate_);
  const auto* bytes = reinterpret_cast<const unsigned char*>(public_key.data());
  const OwnedKey key(d2i_PUBKEY(nullptr, &bytes, static_cast<long>(public_key.size())));
  const OwnedCertificate certificate(X509_new());
  X509* const x509 = certificate.get();
  const Validity bounded = {validity.not_before, std::min(validity.not_after, not_after_)};
  if (key == nullptr || !SetBasics(x509, serial, subject.common_name, bounded) ||
      X509_set_issuer_name(x509, X509_get_subject_name(issuer.get())) != 1 ||
      X509_set_pubkey(x509, key.get()) != 1 ||
      !AddExtension(x509, issuer.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(x509, issuer.get(), NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(x509, issuer.get(), NID_ext_key_usage, UsageText(subject.usage)) ||
      !AddExtension(x509, issuer.get(), NID_authority_key_identifier, "keyid") ||
      !AddNames(x509, subject) || X509_sign(x509, own_key.get(), EVP_sha256()) == 0) {
    return Failed(absl::StrCat("issue a certificate for ", subject.common_name));
  }
  return absl::StrCat(PemOf(x509), certificate_);
}

}  // namespace muster::security
