// The constants of Job.reason, FirstFailure.reason and JobEvent.type. They are meant for programs;
// the message next to each is meant for people.
#ifndef MUSTER_COORDINATOR_CORE_REASONS_H_
#define MUSTER_COORDINATOR_CORE_REASONS_H_

namespace muster::core::reasons {

// Reasons of job states.
inline constexpr char kWaitingForResources[] = "WaitingForResources";
inline constexpr char kHeldByUser[] = "HeldByUser";
inline constexpr char kDependency[] = "Dependency";  // other jobs have to end first
inline constexpr char kDependencyFailed[] = "DependencyFailed";
inline constexpr char kArrayLimit[] = "ArrayLimit";  // other tasks of its array run
inline constexpr char kRendezvous[] = "Rendezvous";
inline constexpr char kRunning[] = "Running";
inline constexpr char kCompleted[] = "Completed";
inline constexpr char kCancelledByUser[] = "CancelledByUser";
inline constexpr char kTimeLimit[] = "TimeLimit";
// Rebuilt from its workers' records.
inline constexpr char kRecovered[] = "Recovered";
inline constexpr char kRequeuedByUser[] = "RequeuedByUser";
// Drained by an operator, or its worker is shutting down.
inline constexpr char kNodeDrained[] = "NodeDrained";
inline constexpr char kPreempted[] = "Preempted";  // a job of a higher class takes its place
inline constexpr char kGrowing[] = "Growing";      // an elastic job starts again on more nodes
inline constexpr char kDeviceShared[] = "DeviceShared";  // ranks would be on the same GPU

// The message of a job that succeeded.
inline constexpr char kAllExited[] = "all ranks exited with code 0";

// Reasons of failures, and of the job states that result from them.
inline constexpr char kRankFailed[] = "RankFailed";
inline constexpr char kRankKilled[] = "RankKilled";
inline constexpr char kRankHung[] = "RankHung";
inline constexpr char kOutOfMemory[] = "OutOfMemory";
inline constexpr char kLaunchFailed[] = "LaunchFailed";
inline constexpr char kNodeLost[] = "NodeLost";
inline constexpr char kRendezvousTimedOut[] = "RendezvousTimedOut";
inline constexpr char kFingerprintMismatch[] = "FingerprintMismatch";
inline constexpr char kRankUnkillable[] = "RankUnkillable";  // a process outlives SIGKILL

}  // namespace muster::core::reasons

namespace muster::core::events {

inline constexpr char kSubmitted[] = "Submitted";
inline constexpr char kHeld[] = "Held";
inline constexpr char kRecovered[] = "Recovered";
inline constexpr char kReleased[] = "Released";
inline constexpr char kShared[] = "Shared";
inline constexpr char kUnshared[] = "Unshared";
inline constexpr char kPlaced[] = "Placed";
inline constexpr char kWorldSent[] = "WorldSent";
inline constexpr char kRunning[] = "Running";
inline constexpr char kCheckpointsOnOneNode[] = "CheckpointsOnOneNode";
inline constexpr char kCheckpointRequested[] = "CheckpointRequested";
inline constexpr char kCheckpointFailed[] = "CheckpointFailed";
inline constexpr char kLossScaleLowered[] = "LossScaleLowered";
// A problem with what a rank reported; see Job.warnings.
inline constexpr char kWarning[] = "Warning";
inline constexpr char kLogLinesLost[] = "LogLinesLost";  // a node could not store output
inline constexpr char kRankFailed[] = "RankFailed";
inline constexpr char kFirstFailure[] = "FirstFailure";
inline constexpr char kRankUnkillable[] = "RankUnkillable";
inline constexpr char kDeviceUnhealthy[] = "DeviceUnhealthy";
inline constexpr char kNodeSuspect[] = "NodeSuspect";
inline constexpr char kNodeSilent[] = "NodeSilent";  // and its ranks may still run
inline constexpr char kNodeAdopted[] = "NodeAdopted";
inline constexpr char kNodeLost[] = "NodeLost";
inline constexpr char kJobHung[] = "JobHung";
inline constexpr char kHangEnded[] = "HangEnded";
inline constexpr char kStragglerFound[] = "StragglerFound";
inline constexpr char kStragglerEnded[] = "StragglerEnded";
inline constexpr char kLossNotFinite[] = "LossNotFinite";
inline constexpr char kLossSpike[] = "LossSpike";
inline constexpr char kStopping[] = "Stopping";
inline constexpr char kPreempted[] = "Preempted";
inline constexpr char kRequeued[] = "Requeued";
inline constexpr char kFinished[] = "Finished";

}  // namespace muster::core::events

#endif  // MUSTER_COORDINATOR_CORE_REASONS_H_
