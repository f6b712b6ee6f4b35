#include "coordinator/service/validate.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/limits.h"
#include "common/report_bounds.h"
#include "common/status.h"
#include "common/version.h"
#include "spec/files.h"

namespace muster::service {
namespace {

// A job id is a name, a dash and five characters.
constexpr size_t kJobIdLength = limits::kNameLength + 6;
// Maximum rows and columns of a terminal; the kernel stores 16 bits.
constexpr uint32_t kLongestSide = 65535;
constexpr int kLastSignal = 64;
constexpr size_t kExecCommandBytes = 128 << 10;
constexpr size_t kPathBytes = 4096;

template <typename... Words>
absl::Status Invalid(const Words&... words) {
  return absl::InvalidArgumentError(absl::StrCat(words...));
}

absl::Status ValidateRank(const v1::RankReport& rank) {
  const v1::ExitInfo& exit = rank.exit();
  RETURN_IF_ERROR(
      CheckLength("exit.stderr_tail", exit.stderr_tail().size(), limits::kStderrTailBytes));
  RETURN_IF_ERROR(CheckTime("exit.time", exit.time()));
  RETURN_IF_ERROR(CheckTime("silence", rank.silence()));
  RETURN_IF_ERROR(CheckBounds(exit.failure()));
  RETURN_IF_ERROR(CheckBounds(rank.failure()));
  RETURN_IF_ERROR(CheckBounds(rank.join()));
  RETURN_IF_ERROR(CheckBounds(rank.progress()));
  RETURN_IF_ERROR(CheckBounds(rank.checkpoint()));
  return CheckBounds(rank.summary());
}

absl::Status ValidateReport(const v1::GenerationReport& report) {
  RETURN_IF_ERROR(ValidateJobName(report.job_id()));
  RETURN_IF_ERROR(CheckCount("the ranks of a report", report.ranks_size(), limits::kSlotsPerNode));
  for (const v1::RankReport& rank : report.ranks()) RETURN_IF_ERROR(ValidateRank(rank));
  RETURN_IF_ERROR(CheckCount("the barriers of a report", report.passed_barriers_size(),
                             limits::kBarriersPerGeneration));
  for (const v1::BarrierId& barrier : report.passed_barriers()) {
    RETURN_IF_ERROR(CheckLength("barrier.group", barrier.group().size(), limits::kKeyBytes));
  }
  return absl::OkStatus();
}

absl::Status ValidateReports(
    const google::protobuf::RepeatedPtrField<v1::GenerationReport>& reports) {
  RETURN_IF_ERROR(
      CheckCount("the generations of a node", reports.size(), limits::kGenerationsPerNode));
  for (const v1::GenerationReport& report : reports) RETURN_IF_ERROR(ValidateReport(report));
  return absl::OkStatus();
}

absl::Status CheckUnavailable(absl::string_view reason) {
  return CheckLength("slot.unavailable", reason.size(), limits::kSlotReasonBytes);
}

absl::Status ValidateDevice(const v1::Device& device) {
  for (const std::string* text : {&device.name(), &device.pci_bus_id(), &device.driver_version()}) {
    RETURN_IF_ERROR(CheckLength("slot.device", text->size(), limits::kLabelBytes));
  }
  RETURN_IF_ERROR(
      CheckLength("slot.device.cpus", device.cpus().size(), limits::kReportedTextBytes));
  RETURN_IF_ERROR(
      CheckCount("the links of a device", device.links_size(), limits::kLinksPerDevice));
  for (const v1::DeviceLink& link : device.links()) {
    RETURN_IF_ERROR(CheckLength("slot.device.links.path", link.path().size(), limits::kLabelBytes));
  }
  return absl::OkStatus();
}

absl::Status ValidateSlots(const v1::SlotReport& report) {
  RETURN_IF_ERROR(
      CheckCount("the conditions of slots", report.conditions_size(), limits::kSlotsPerNode));
  for (const v1::SlotCondition& condition : report.conditions()) {
    RETURN_IF_ERROR(CheckUnavailable(condition.unavailable()));
  }
  return absl::OkStatus();
}

absl::Status ValidateRankNumber(uint32_t rank) {
  if (rank < limits::kRanksPerJob) return absl::OkStatus();
  return Invalid("rank is ", rank, "; the limit is ", limits::kRanksPerJob - 1);
}

absl::Status ValidateKey(absl::string_view job, absl::string_view key) {
  RETURN_IF_ERROR(ValidateJobName(job));
  if (key.empty()) return Invalid("the key is empty");
  return CheckLength("the key", key.size(), limits::kKeyBytes);
}

}  // namespace

absl::Status CheckProtocolVersion(uint32_t version, absl::string_view who) {
  if (version == kProtocolVersion) return absl::OkStatus();
  if (version == 0) return Invalid("protocol_version is missing");
  return absl::FailedPreconditionError(absl::StrCat(
      "the ", who, " uses protocol ", version, ", but this coordinator (Muster ", kSoftwareVersion,
      ") uses protocol ", kProtocolVersion, "; run the same version on both"));
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

absl::Status ValidateCancel(const v1::CancelJobRequest& request) {
  RETURN_IF_ERROR(ValidateJobName(request.job_id()));
  RETURN_IF_ERROR(CheckTime("grace_period", request.grace_period()));
  if (request.grace_period().seconds() >= 0 && request.grace_period().nanos() >= 0) {
    return absl::OkStatus();
  }
  return Invalid("grace_period is negative");
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

absl::Status ValidateReadFiles(const v1::ReadFilesRequest& request) {
  RETURN_IF_ERROR(ValidateJobName(request.job_id()));
  RETURN_IF_ERROR(ValidateRankNumber(request.rank()));
  if (request.path().empty()) return Invalid("path is empty");
  return CheckLength("path", request.path().size(), kPathBytes);
}

absl::Status ValidateHello(const v1::Hello& hello) {
  RETURN_IF_ERROR(CheckProtocolVersion(hello.protocol_version(), "worker"));
  RETURN_IF_ERROR(ValidateNodeName(hello.node_name()));
  if (hello.incarnation() == 0) return Invalid("incarnation is missing");
  RETURN_IF_ERROR(
      CheckLength("software_version", hello.software_version().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(
      CheckLength("advertise_address", hello.advertise_address().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(
      CheckLength("metrics_address", hello.metrics_address().size(), limits::kLabelBytes));
  RETURN_IF_ERROR(CheckCount("the slots of a node", hello.slots_size(), limits::kSlotsPerNode));
  absl::flat_hash_set<uint32_t> indices;
  for (const v1::Slot& slot : hello.slots()) {
    if (!indices.insert(slot.index()).second)
      return Invalid("slot ", slot.index(), " is listed twice");
    RETURN_IF_ERROR(CheckLength("slot.kind", slot.kind().size(), limits::kLabelBytes));
    RETURN_IF_ERROR(CheckLength("slot.uuid", slot.uuid().size(), limits::kLabelBytes));
    RETURN_IF_ERROR(CheckUnavailable(slot.unavailable()));
    RETURN_IF_ERROR(ValidateDevice(slot.device()));
  }
  RETURN_IF_ERROR(CheckCount("the labels of a node", hello.labels_size(), limits::kLabels));
  for (const auto& label : hello.labels()) {
    RETURN_IF_ERROR(CheckLength("a label's name", label.first.size(), limits::kLabelBytes));
    RETURN_IF_ERROR(CheckLength("a label's value", label.second.size(), limits::kLabelBytes));
  }
  RETURN_IF_ERROR(ValidateReports(hello.inventory()));
  int running = 0;
  for (const v1::GenerationReport& report : hello.inventory()) {
    running += static_cast<int>(
        std::count_if(report.ranks().begin(), report.ranks().end(),
                      [](const v1::RankReport& rank) { return rank.phase() != v1::EXITED; }));
  }
  return CheckCount("the ranks that run on a node", running, limits::kSlotsPerNode);
}

absl::Status ValidateInspection(const v1::InspectionReport& report) {
  RETURN_IF_ERROR(ValidateJobName(report.job_id()));
  RETURN_IF_ERROR(
      CheckCount("the ranks of an inspection", report.ranks_size(), limits::kSlotsPerNode));
  for (const v1::RankInspection& rank : report.ranks()) {
    RETURN_IF_ERROR(CheckLength("state", rank.state().size(), limits::kLabelBytes));
    RETURN_IF_ERROR(CheckLength("waits_in", rank.waits_in().size(), limits::kLabelBytes));
    RETURN_IF_ERROR(CheckLength("stack", rank.stack().size(), limits::kStackBytes));
    RETURN_IF_ERROR(CheckTime("silence", rank.silence()));
  }
  return absl::OkStatus();
}

absl::Status ValidateWorkerMessage(const v1::WorkerMessage& message) {
  switch (message.kind_case()) {
    case v1::WorkerMessage::kHello:
      return Invalid("Hello was sent twice in one session");
    case v1::WorkerMessage::kHeartbeat:
      return ValidateReports(message.heartbeat().progress());
    case v1::WorkerMessage::kReport:
      return ValidateReport(message.report());
    case v1::WorkerMessage::kPutKey:
      RETURN_IF_ERROR(ValidateKey(message.put_key().job_id(), message.put_key().key()));
      return CheckLength("the value", message.put_key().value().size(), limits::kValueBytes);
    case v1::WorkerMessage::kGetKey:
      return ValidateKey(message.get_key().job_id(), message.get_key().key());
    case v1::WorkerMessage::kArriveBarrier: {
      const v1::ArriveBarrier& arrive = message.arrive_barrier();
      RETURN_IF_ERROR(
          CheckCount("the arrivals at a barrier", arrive.ranks_size(), limits::kSlotsPerNode));
      return ValidateKey(arrive.job_id(), arrive.barrier().group());
    }
    case v1::WorkerMessage::kLeaving:
      return absl::OkStatus();
    case v1::WorkerMessage::kSlots:
      return ValidateSlots(message.slots());
    case v1::WorkerMessage::kInspection:
      return ValidateInspection(message.inspection());
    case v1::WorkerMessage::kLogUnavailable:
      return CheckLength("message", message.log_unavailable().message().size(),
                         limits::kReportedTextBytes);
    case v1::WorkerMessage::kTransferUnavailable:
      return CheckLength("message", message.transfer_unavailable().message().size(),
                         limits::kReportedTextBytes);
    case v1::WorkerMessage::KIND_NOT_SET:
      return Invalid("the message is of an unknown kind");
  }
  return Invalid("the message is of an unknown kind");
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
