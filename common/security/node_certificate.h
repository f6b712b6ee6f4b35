// The identity of a node in its certificate.
#ifndef MUSTER_COMMON_SECURITY_NODE_CERTIFICATE_H_
#define MUSTER_COMMON_SECURITY_NODE_CERTIFICATE_H_

#include <string>

#include "absl/time/time.h"

namespace muster::security {

struct NodeCertificate {
  std::string node;
  std::string machine_id;  // empty: the certificate is good on any machine
  std::string serial;      // hexadecimal
  absl::Time expire_time;
};

}  // namespace muster::security

#endif  // MUSTER_COMMON_SECURITY_NODE_CERTIFICATE_H_
