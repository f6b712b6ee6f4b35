// Requests to a rank's training from outside its thread: to stop, or to write a checkpoint.
#ifndef MUSTER_TRAINER_LOOP_RANK_REQUESTS_H_
#define MUSTER_TRAINER_LOOP_RANK_REQUESTS_H_

#include <atomic>
#include <csignal>

namespace muster::train {

// Thread-safe; RequestStop is async-signal-safe.
//
//   refused ──AcceptStops──▶ accepted ──RequestStop──▶ requested
//      ▲─────RefuseStops────────┘
class RankRequests {
 public:
  // Asks the training to save its state and stop because of `signal`. Returns false if there is
  // nothing to save: the process should then end at once.
  bool RequestStop(int signal) {
    int expected = kAccepted;
    stop_.compare_exchange_strong(expected, signal);
    return expected != kRefused && (!aborted_.load() || saves());
  }
  // A peer was lost: a stop ends the process at once, or after the checkpoint that is being written
  // and the state that the training leaves in memory. The training thread may wait for a device
  // that never answers.
  void Abort() {
    aborted_.store(true);
    EndIfAborted();
  }
  bool aborted() const { return aborted_.load(); }
  // Called when the writing of a checkpoint begins and ends.
  void SetWriting(bool writing) {
    writing_.store(writing);
    EndIfAborted();
  }
  // Called when a training begins that leaves its state in memory if a peer is lost, and once it
  // has done so.
  void SetLeavesState(bool leaves) {
    leaves_state_.store(leaves);
    EndIfAborted();
  }
  // Called once that training has its state and begins to write it.
  void BeginToLeave() { leaving_.store(true); }
  // Called when a training has had enough time to get its state: it is not waited for any longer.
  void GiveUpState() {
    if (!leaving_.load()) SetLeavesState(false);
  }
  // The next generation follows at once: the stop that follows need not wait for a disk.
  void LeaveInMemory() { leave_in_memory_.store(true); }
  // Asks for a checkpoint of the newest completed step.
  void RequestCheckpoint() { checkpoint_.store(true); }

  // Called by the training thread.
  void AcceptStops() { stop_.store(kAccepted); }
  // A request that was made before remains.
  void RefuseStops() {
    int expected = kAccepted;
    stop_.compare_exchange_strong(expected, kRefused);
  }
  bool stop_requested() const { return stop_.load() > 0; }
  // Signal of the first request to stop; 0 without one.
  int stop_signal() const { return stop_requested() ? stop_.load() : 0; }
  bool leave_in_memory() const { return leave_in_memory_.load(); }
  bool checkpoint_requested() const { return checkpoint_.load(); }
  void ClearCheckpointRequest() { checkpoint_.store(false); }

 private:
  // Repeats the signal of an earlier request, which RequestStop now refuses.
  void EndIfAborted() {
    if (aborted_.load() && !saves() && stop_requested()) std::raise(stop_signal());
  }
  bool saves() const { return writing_.load() || leaves_state_.load(); }

  static constexpr int kRefused = -1;
  static constexpr int kAccepted = 0;
  static_assert(std::atomic<int>::is_always_lock_free);  // for signal handlers

  std::atomic<int> stop_{kRefused};  // or the signal of the request
  std::atomic<bool> checkpoint_{false};
  std::atomic<bool> leave_in_memory_{false};
  std::atomic<bool> aborted_{false};
  std::atomic<bool> writing_{false};
  std::atomic<bool> leaves_state_{false};
  std::atomic<bool> leaving_{false};
};

}  // namespace muster::train

#endif  // MUSTER_TRAINER_LOOP_RANK_REQUESTS_H_
