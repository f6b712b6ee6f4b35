// Owners of OpenSSL's objects.
#ifndef MUSTER_COMMON_SECURITY_OPENSSL_H_
#define MUSTER_COMMON_SECURITY_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

namespace muster::security {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using OwnedCertificate = std::unique_ptr<X509, Free<X509_free>>;
using OwnedRequest = std::unique_ptr<X509_REQ, Free<X509_REQ_free>>;
using OwnedKey = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using OwnedBio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using OwnedNumber = std::unique_ptr<BIGNUM, Free<BN_free>>;
using OwnedNames = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;
using OwnedStore = std::unique_ptr<X509_STORE, Free<X509_STORE_free>>;
using OwnedStoreContext = std::unique_ptr<X509_STORE_CTX, Free<X509_STORE_CTX_free>>;
using OwnedSslContext = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;
using OwnedSsl = std::unique_ptr<SSL, Free<SSL_free>>;

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_OPENSSL_H_
