#include "coordinator/service/checks/validate.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/limits.h"
#include "common/report_bounds.h"
#include "common/status.h"
#include "common/time/proto_time.h"
#include "common/version.h"
#include "spec/files.h"

namespace muster::service {
namespace {

constexpr absl::Duration kLongestJoinToken = absl::Hours(24 * 30);

// A job id is a name, a dash and five characters; that of a task of an array also a dash and an
// index.
constexpr size_t kJobIdLength = limits::kNameLength + 6 + 5;
// Maximum rows and columns of a terminal; the kernel stores 16 bits.
constexpr uint32_t kLongestSide = 65535;
constexpr int kLastSignal = 64;
constexpr size_t kExecCommandBytes = 128 << 10;
constexpr size_t kPathBytes = 4096;

template <typename... Words>
absl::Status Invalid(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(words...));
}

absl::Status ValidateRankNumber(uint32_t rank) {
  if (rank < limits::kRanksPerJob) return absl::OkStatus();
  return Invalid("rank is ", rank, "; the limit is ", limits::kRanksPerJob - 1);
}

absl::Status CheckNotNegative(absl::string_view field, const google::protobuf::Duration& duration) {
  RETURN_IF_ERROR(CheckTime(field, duration));
  if (duration.seconds() >= 0 && duration.nanos() >= 0) return absl::OkStatus();
  return Invalid(field, " is negative");
}

}  // namespace

absl::Status CheckProtocolVersion(uint32_t oldest, uint32_t newest, absl::string_view who) {
  if (oldest == 0) return Invalid("protocol_version is missing");
  if (CommonProtocolVersion(oldest, newest) != 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the ", who, " uses protocol ", oldest, ", but this coordinator (Muster ",
                   kSoftwareVersion, ") uses protocols ", kOldestProtocolVersion, " to ",
                   kProtocolVersion, "; run the same version on both"));
}

absl::Status ValidateSubmit(const v1::SubmitJobRequest& request) {
  if (!request.has_spec()) return Invalid("spec is missing");
  RETURN_IF_ERROR(CheckLength("spec", request.spec().ByteSizeLong(), limits::kSpecBytes));
  return CheckLength("idempotency_key", request.idempotency_key().size(),
                     limits::kIdempotencyKeyLength);
}

absl::Status ValidateJobName(absl::string_view job) {
  if (job.empty()) return Invalid("job_id is empty");
  return CheckLength("job_id", job.size(), kJobIdLength);
}

absl::Status ValidateCancel(absl::string_view job, const google::protobuf::Duration& grace_period) {
  RETURN_IF_ERROR(ValidateJobName(job));
  return CheckNotNegative("grace_period", grace_period);
}

absl::Status ValidateNodeName(absl::string_view name) {
  if (name.empty()) return Invalid("node_name is empty");
  RETURN_IF_ERROR(CheckLength("node_name", name.size(), limits::kNameLength));
  for (const char c : name) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.') {
      return Invalid("node_name '", absl::CHexEscape(name),
                     "' may contain only letters, digits, '-', '_' and '.'");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateCordon(absl::string_view node, absl::string_view reason) {
  RETURN_IF_ERROR(ValidateNodeName(node));
  return CheckLength("reason", reason.size(), limits::kCordonReasonBytes);
}

absl::Status ValidateDrain(const v1::DrainNodeRequest& request) {
  RETURN_IF_ERROR(ValidateCordon(request.name(), request.reason()));
  return CheckNotNegative("deadline", request.deadline());
}

absl::Status ValidateReadLog(const v1::ReadLogRequest& request) {
  RETURN_IF_ERROR(ValidateJobName(request.job_id()));
  if (request.stream() != v1::STDOUT && request.stream() != v1::STDERR) {
    return Invalid("stream is neither STDOUT nor STDERR");
  }
  return ValidateRankNumber(request.rank());
}

absl::Status ValidateExecStart(const v1::ExecInput& input) {
  if (!input.has_start()) return Invalid("the first message of the stream is not a start");
  const v1::ExecInput::Start& start = input.start();
  RETURN_IF_ERROR(ValidateJobName(start.job_id()));
  RETURN_IF_ERROR(ValidateRankNumber(start.rank()));
  if (start.command().empty() || start.command(0).empty()) return Invalid("command is empty");
  RETURN_IF_ERROR(CheckLength("term", start.term().size(), limits::kLabelBytes));
  return CheckLength("command", start.ByteSizeLong(), kExecCommandBytes);
}

absl::Status ValidateExecInput(const v1::ExecInput& input) {
  switch (input.kind_case()) {
    case v1::ExecInput::kStdinData:
      return CheckLength("stdin_data", input.stdin_data().size(), limits::kLogChunkBytes);
    case v1::ExecInput::kSize:
      if (input.size().rows() <= kLongestSide && input.size().columns() <= kLongestSide) break;
      return Invalid("the terminal's size is ", input.size().rows(), " x ", input.size().columns(),
                     "; the limit is ", kLongestSide);
    case v1::ExecInput::kSignal:
      if (input.signal() > 0 && input.signal() <= kLastSignal) break;
      return Invalid("signal is ", input.signal(), "; it must be from 1 to ", kLastSignal);
    case v1::ExecInput::kStdinEnd:
      break;
    case v1::ExecInput::kStart:
    case v1::ExecInput::KIND_NOT_SET:
      return Invalid("the message is not input of a started command");
  }
  return absl::OkStatus();
}

absl::Status ValidateExecOutput(const v1::ExecOutput& output) {
  RETURN_IF_ERROR(CheckLength("stdout_data", output.stdout_data().size(), limits::kLogChunkBytes));
  return CheckLength("stderr_data", output.stderr_data().size(), limits::kLogChunkBytes);
}

absl::Status ValidateGetReport(const v1::GetReportRequest& request) {
  if (request.days() <= limits::kReportedDays) return absl::OkStatus();
  return Invalid("days is ", request.days(), "; the limit is ", limits::kReportedDays);
}

absl::Status ValidateReadFiles(const v1::ReadFilesRequest& request) {
  RETURN_IF_ERROR(ValidateJobName(request.job_id()));
  RETURN_IF_ERROR(ValidateRankNumber(request.rank()));
  if (request.path().empty()) return Invalid("path is empty");
  return CheckLength("path", request.path().size(), kPathBytes);
}

absl::Status ValidateEnrollNode(const v1::EnrollNodeRequest& request) {
  RETURN_IF_ERROR(CheckLength("token", request.token().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(ValidateNodeName(request.node_name()));
  // The id becomes a part of a URI.
  RETURN_IF_ERROR(CheckLength("machine_id", request.machine_id().size(), limits::kLabelBytes));
  for (const char c : request.machine_id()) {
    if (!absl::ascii_isalnum(c) && c != '-' && c != '_' && c != '.') {
      return Invalid("machine_id '", absl::CHexEscape(request.machine_id()),
                     "' may contain only letters, digits, '-', '_' and '.'");
    }
  }
  return CheckLength("certificate_request", request.certificate_request().size(),
                     limits::kCertificateRequestBytes);
}

absl::Status ValidateCreateJoinToken(const v1::CreateJoinTokenRequest& request, absl::Time now) {
  if (!request.node().empty()) RETURN_IF_ERROR(ValidateNodeName(request.node()));
  if (request.uses() == 0 || request.uses() > limits::kJoinTokenUses) {
    return Invalid("uses is ", request.uses(), "; it must be from 1 to ", limits::kJoinTokenUses);
  }
  const absl::Duration validity = FromProto(request.expire_time()) - now;
  if (validity <= absl::ZeroDuration() || validity > kLongestJoinToken) {
    return Invalid("expire_time is in ", absl::FormatDuration(validity),
                   "; a join token is valid for at most ", absl::FormatDuration(kLongestJoinToken));
  }
  return absl::OkStatus();
}

absl::Status ValidateHello(const v1::Hello& hello) {
  RETURN_IF_ERROR(
      CheckProtocolVersion(hello.protocol_version(), hello.newest_protocol_version(), "worker"));
  RETURN_IF_ERROR(ValidateNodeName(hello.node_name()));
  if (hello.incarnation() == 0) return Invalid("incarnation is missing");
  return absl::OkStatus();
}

absl::Status ValidateFindMissingFiles(const v1::FindMissingFilesRequest& request) {
  RETURN_IF_ERROR(CheckCount("the digests", request.sha256_size(), limits::kFiles));
  for (const std::string& digest : request.sha256()) {
    if (!spec::IsSha256(digest)) {
      return Invalid("'", absl::CHexEscape(digest.substr(0, 100)), "' is not a SHA-256 digest");
    }
  }
  return absl::OkStatus();
}

std::string PeerHost(absl::string_view peer) {
  if (!absl::ConsumePrefix(&peer, "ipv4:") && !absl::ConsumePrefix(&peer, "ipv6:")) return "";
  // gRPC writes peers as URIs: the brackets and a zone's '%' are escaped.
  const std::string decoded = absl::StrReplaceAll(
      peer, {{"%5B", "["}, {"%5b", "["}, {"%5D", "]"}, {"%5d", "]"}, {"%25", "%"}});
  absl::string_view host = decoded;
  host = host.substr(0, host.rfind(':'));
  absl::ConsumePrefix(&host, "[");
  absl::ConsumeSuffix(&host, "]");
  // An IPv4 peer of a dual-stack socket.
  absl::ConsumePrefix(&host, "::ffff:");
  return std::string(host);
}

}  // namespace muster::service
