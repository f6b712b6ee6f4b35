// Limits on every resource that a peer can make grow. A request that exceeds one fails with
// RESOURCE_EXHAUSTED or INVALID_ARGUMENT and a message that contains the limit.
#ifndef MUSTER_COMMON_LIMITS_H_
#define MUSTER_COMMON_LIMITS_H_

#include <cstddef>
#include <cstdint>

namespace muster::limits {

inline constexpr int kMessageBytes = 16 << 20;       // any gRPC message
inline constexpr size_t kRequestBytes = 2 << 20;     // a request of a client, apart from streams
inline constexpr size_t kSpecBytes = 1 << 20;        // a serialized job spec
inline constexpr size_t kSpecMemoryBytes = 8 << 20;  // a job spec in memory
inline constexpr size_t kNameLength = 63;            // job and node names
inline constexpr size_t kIdempotencyKeyLength = 128;
inline constexpr uint32_t kNodes = 16384;
inline constexpr uint32_t kSlotsPerNode = 1024;
inline constexpr uint32_t kRanksPerJob = 131072;
inline constexpr size_t kJobs = 100000;  // including finished jobs, which are evicted first
inline constexpr uint32_t kTasksPerArray = 10000;
inline constexpr size_t kArrayBytes = 64 << 20;  // the specs of all tasks of an array in memory
inline constexpr uint32_t kDependencies = 64;    // of one kind, in a job spec
inline constexpr size_t kSecretBytes = 64 << 10;
inline constexpr size_t kSecretsPerOwner = 256;
inline constexpr size_t kJoinTokens = 1024;  // that have not expired
inline constexpr uint32_t kJoinTokenUses = kNodes;
inline constexpr size_t kCertificateRequestBytes = 16 << 10;
inline constexpr size_t kOwners = 4096;         // whose use of the cluster is recorded
inline constexpr uint32_t kReportedDays = 90;   // of an owner's use
inline constexpr size_t kEventsPerJob = 10000;  // the oldest are evicted first
// The same, while its owner has no memory left or the disk of the store is nearly full.
inline constexpr size_t kEventsWithoutRoom = 64;
inline constexpr uint64_t kLargestGeneration = 9'999'999'999;  // the store's keys have 10 digits
inline constexpr size_t kKeyBytes = 256;                       // a key in a generation's store
inline constexpr size_t kValueBytes = 64 << 10;
inline constexpr size_t kKeysPerGeneration = 262144;
inline constexpr size_t kValueBytesPerGeneration = 256 << 20;
inline constexpr size_t kBarriersPerGeneration = 1024;  // open at the same time
// Groups whose newest passed barrier the store keeps with the exit of a node's rank.
inline constexpr int kRecordedBarrierGroups = 16;
inline constexpr size_t kWatchersPerJob = 1024;
inline constexpr size_t kWatchers = 65536;  // over all jobs
inline constexpr size_t kWatchersPerCaller = 8192;
// The states of jobs that watchers have not read, over all watches; one caller may use half of it.
inline constexpr size_t kUnreadWatchBytes = 256 << 20;
inline constexpr size_t kLabels = 64;       // per node
inline constexpr size_t kLabelBytes = 256;  // also other short texts: an address, a phase, a digest
inline constexpr size_t kCordonReasonBytes = 256;
inline constexpr size_t kSlotReasonBytes = 512;  // why a slot cannot be used
inline constexpr size_t kLinksPerDevice = 64;
inline constexpr size_t kStderrTailBytes = 8 << 10;
inline constexpr size_t kStderrTailLines = 50;
inline constexpr size_t kExitTextBytesPerGeneration =
    4 << 20;  // stderr tails and messages kept by the coordinator
inline constexpr size_t kLogChunkBytes = 64 << 10;
// Open at the same time, by all callers and by one (identified by the name of its token).
inline constexpr size_t kLogTransfers = 2048;
inline constexpr size_t kLogTransfersPerCaller = 512;
// The end of each stream of an exited rank's log that the coordinator keeps.
inline constexpr size_t kLogTailBytes = 16 << 10;
inline constexpr size_t kLogTailLines = 256;   // with known times
inline constexpr uint32_t kLogTailRanks = 64;  // larger jobs: of rank 0 and of failed ranks only
inline constexpr size_t kLogTailBytesPerGeneration = 2 << 20;
inline constexpr uint64_t kLogTailGenerations = 4;        // the newest of a job
inline constexpr size_t kLogTailBytesInTotal = 64 << 20;  // the oldest are deleted first
inline constexpr size_t kCurvePoints = 512;               // of a job; beyond, neighbours are merged
inline constexpr int kHistoryNodes = 64;  // whose software and hardware a job's history has
inline constexpr size_t kHistoryBytesInTotal = 64 << 20;  // the oldest are deleted first
inline constexpr size_t kSessions = 2 * kNodes;  // worker streams, including those being closed
inline constexpr size_t kSessionQueueBytes = 64 << 20;  // waiting to be written to one worker
inline constexpr uint32_t kJobsPerList = 10000;         // in one response
inline constexpr size_t kReportedTextBytes = 8 << 10;   // a message in a rank's report
inline constexpr size_t kWarningBytes = 512;
// Reported waits in the hosted c10d store of a generation.
inline constexpr size_t kStoreWaits = 8;
inline constexpr size_t kStoreWaitBytes = 1024;
inline constexpr int kWarningsPerRank = 8;
inline constexpr int kWarningsPerJob = 32;
inline constexpr size_t kGenerationsPerNode =
    16384;  // generations that a worker still holds, including ended ones
// A rank's newest windows of steps in a report.
inline constexpr int kStepWindows = 12;
// Number of losses that are not finite, or spikes, of a rank in a generation.
inline constexpr int kLossAnomalies = 16;
inline constexpr size_t kRecordedLosses = 100000;
inline constexpr size_t kRecordedEvaluations = 10000;
inline constexpr int kRecordedDevices = 1024;  // in a summary
inline constexpr int kStepParts = 32;
inline constexpr size_t kFingerprintEntries = 32;   // in a rank's JoinInfo
inline constexpr size_t kFiles = 1000;              // in a job spec
inline constexpr uint64_t kFilesBytes = 256 << 20;  // total size of a job spec's files
inline constexpr size_t kUploadsPerCaller = 16;     // open at the same time
inline constexpr size_t kStackBytes = 16 << 10;     // size of one rank's stacks
inline constexpr size_t kTransfers = 256;           // open execs, and open copies
inline constexpr size_t kTransfersPerCaller = 64;

}  // namespace muster::limits

#endif  // MUSTER_COMMON_LIMITS_H_
